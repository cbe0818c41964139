"""Imported networks compute what torch does, or are refused."""

import sys

import numpy as np
import pytest

from loopwright.dsl.errors import LoopwrightError
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.reference import Reference
from loopwright.graph.tuning.tune import tune_model
from tests.graph.modules import Function, drawn_again

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.torch


def assert_as_in_torch(function, *inputs):
    made = build_model(Function(function), inputs, threads=1)(*inputs)
    torch.testing.assert_close(made, function(*inputs), equal_nan=True)


def test_negative_indices_count_from_the_end():
    def last(x):
        return x[:, -1] * 2, x[..., -1], x[:, [0, -1, 3]], torch.roll(x, 1, 2)

    assert_as_in_torch(last, torch.randn(2, 5, 4, 3))


def test_a_token_that_the_vocabulary_lacks_is_an_error():
    net = nn.Embedding(10, 4)
    model = build_model(net, (torch.tensor([1, 2]),), threads=1)
    for wrong in (10, -11, 10**9):
        with pytest.raises(LoopwrightError, match="index that is outside"):
            model(torch.tensor([1, wrong]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[torch.arange(4), i],
        lambda x, i: x[i, i],
        lambda x, i: x.index_put((torch.arange(4), i), torch.ones(4)),
    ],
    ids=["rows and columns", "twice the same", "index_put"],
)
def test_negative_indices_in_tensors_count_from_the_end(function):
    x, i = torch.randn(4, 5), torch.tensor([0, 3, -1, -4])
    model = build_model(Function(function), (x, i), threads=1)
    for indices in (i, torch.tensor([-1, 2, 1, -2])):
        torch.testing.assert_close(torch.as_tensor(model(x, indices)), function(x, indices))
    model(x, torch.tensor([10**9, -(10**9), 7, -7]))  # reads and writes nothing else


def test_gathered_elements_are_the_tensors_own():
    x, i = torch.arange(20.0).reshape(4, 5), torch.tensor([[0, 3], [1, 2], [4, 4], [2, 0]])
    model = build_model(Function(lambda x, i: torch.gather(x, 1, i + 0)), (x, i), threads=1)
    torch.testing.assert_close(torch.as_tensor(model(x, i)), torch.gather(x, 1, i))
    wild = np.asarray(model(x, torch.full((4, 2), 10**9)))
    assert all(value in row for value, row in zip(wild[:, 0], x.numpy()))


def test_what_is_put_at_one_index_many_times_adds_up():
    def count(i, v):
        return torch.zeros(10).index_put((i,), v, accumulate=True)

    i, v = torch.randint(0, 10, (200_000,)), torch.ones(200_000)
    model = build_model(Function(count), (i, v), threads=2)
    for _ in range(5):
        assert np.asarray(model(i, v)).sum() == 200_000


def test_a_tuple_of_one_stays_a_tuple():
    model = build_model(Function(lambda x: (x * 2,)), (torch.ones(1, 3),), threads=1)
    (y,) = model(torch.ones(1, 3))
    assert tuple(y.shape) == (1, 3)


class _Dict(torch.nn.Module):
    def forward(self, x):
        return {"twice": x * 2, "rest": [x + 1]}


def test_a_dict_comes_out_as_a_dict_of_the_kind_of_array_that_went_in():
    x = torch.randn(3, 5)
    model = build_model(_Dict(), (x,), threads=1)
    torch.testing.assert_close(model(x), _Dict()(x))
    got = model(x.numpy())
    assert isinstance(got["rest"][0], np.ndarray)
    assert np.array_equal(got["twice"], 2 * x.numpy())


def test_tuples_of_inputs_are_given_flat():
    net, x = Function(lambda x, s: x + s[0] * s[1]), torch.randn(2, 3)
    for model in (net, torch.export.export(net, (x, (x, x + 1)))):
        made = build_model(model, (x, (x, x + 1)), threads=1)
        torch.testing.assert_close(made(x, x, x + 1), x + x * (x + 1))


def test_arrays_may_lie_backwards():
    x = np.arange(6, dtype=np.float32)[::-1]
    made = build_model(Function(lambda x: x * 2), (x,), threads=1)
    np.testing.assert_array_equal(made(x), x * 2)


def test_an_input_that_is_no_tensor_is_an_error():
    with pytest.raises(ModelError, match="no tensor"):
        build_model(Function(lambda x: x), (object(),), threads=1)


def test_integers_that_are_others_are_refused():
    x = torch.arange(12).reshape(3, 4)
    wanted = Reference("torch", [x], [x.numpy()])
    wanted.check(lambda x: [x.numpy()])
    flipped = x.numpy().copy()
    flipped[0] += 1  # a third of them: places of the largest among several, say
    wanted.check(lambda x: [flipped])
    with pytest.raises(ModelError, match="output 0 differs in more than 50%"):
        wanted.check(lambda x: [x.numpy() + 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_compared_but_for_what_is_too_large_for_them(dtype):
    x = torch.tensor([1.0, 0.9 * torch.finfo(dtype).max, -0.9 * torch.finfo(dtype).max]).to(dtype)
    wanted = Reference("torch", [x], [x])
    inf, nan = float("inf"), float("nan")
    wanted.check(lambda x: torch.tensor([1.0, inf, -inf]).to(dtype))
    for wrong in (nan, inf, -inf, 3.0):
        with pytest.raises(ModelError, match="other results than in torch"):
            wanted.check(lambda x, wrong=wrong: torch.tensor([wrong, inf, -inf]).to(dtype))
    for wrong in (nan, -inf):
        with pytest.raises(ModelError, match="other results than in torch"):
            wanted.check(lambda x, wrong=wrong: torch.tensor([1.0, wrong, -inf]).to(dtype))
    infinite = Reference("torch", [x], [x * 2])
    infinite.check(lambda x: torch.tensor([2.0, inf, nan]).to(dtype))


def test_an_infinity_that_differs_is_told():
    inf, nan = float("inf"), float("nan")
    for wanted, got in ((1.0, inf), (inf, 1.0), (nan, 1.0), (1.0, nan), (inf, -inf), (inf, nan)):
        reference = Reference("torch", [np.ones(1)], [np.array([wanted, 2.0], np.float32)])
        with pytest.raises(ModelError, match="output 0 differs in an infinity or NaN"):
            reference.check(lambda x, got=got: np.array([got, 2.0], np.float32))


def test_a_number_stays_a_number():
    x, t = np.ones(3, np.float32), np.array(2, np.float32)
    made = build_model(Function(lambda x, t: x * t), (x, t), threads=1)
    np.testing.assert_array_equal(made(x, t), x * 2)


@pytest.mark.parametrize("count", [140, pytest.param(260, marks=pytest.mark.slow)])
def test_functions_of_very_many_arrays_are_called_as_a_whole(count):
    def joined(*xs):
        return torch.cat([x * n for n, x in enumerate(xs)])

    xs = tuple(torch.randn(2, 3) for _ in range(count))
    made = build_model(
        Function(lambda x: joined(*(x[n] for n in range(count)))), (torch.stack(xs),)
    )
    torch.testing.assert_close(torch.as_tensor(made(torch.stack(xs))), joined(*xs))


def test_nan_is_found():
    def found(x):
        return torch.where(x.isnan(), 0.0, x), x.isfinite().float(), (x != x).float()

    assert_as_in_torch(found, torch.tensor([1.0, float("nan"), -2.0, float("inf")]))


def test_what_the_importer_lacks_is_there():
    def every(x):
        return {
            "amax": x.amax((2, 3)),
            "amin that keeps its axis": x.amin(1, keepdim=True),
            "amax of all": x.amax(),
            "prod": x.prod(1),
            "prod of the first axis": x.prod(0) * x.prod(0, keepdim=True),
            "prod of integers": x.ceil().int().prod(0),
            "logsumexp": x.logsumexp(1),
            "floor": x // 2,
            "elu": nn.functional.elu(100 * x, 0.5),
            "selu": nn.functional.selu(x),
            "min": x.min(1, keepdim=True)[0],
            "where the min is": x.min(1)[1],
            "any": (x > 9).any(),
            "celu": nn.functional.celu(x, 0.7),
            "group norm without weights": nn.functional.group_norm(x, 1),
            "group norm without a bias": nn.functional.group_norm(
                x, 5, torch.arange(5.0), eps=0.1
            ),
        }

    assert_as_in_torch(every, torch.randn(2, 5, 4, 3))


@pytest.mark.parametrize(
    ("net", "shape", "dtype"),
    [
        (nn.Upsample(size=(7, 5)), (1, 2, 4, 4), torch.float32),
        (nn.Linear(4, 3, bias=False).double(), (2, 4), torch.float64),
    ],
    ids=["nearest elements", "64 bits"],
)
def test_modules_that_round_and_have_wide_types_are_read_as_torch_means_them(net, shape, dtype):
    net, x = drawn_again(net), torch.randn(shape, dtype=dtype)
    made = build_model(net, (x,), threads=1)(x)
    torch.testing.assert_close(made, net(x).detach())


@pytest.fixture
def misread(monkeypatch):
    """A network that is read as another one, which differs in what is below zero."""
    from onnxscript import opset18

    wrong = {torch.ops.aten.relu.default: opset18.Identity}
    monkeypatch.setattr("loopwright.graph.importers.torch.to_onnx.translations", lambda: wrong)
    return nn.ReLU()


def test_what_the_exporter_reads_wrongly_is_refused(misread, tmp_path):
    net, x = misread, torch.randn(1, 2, 9, 9)
    with pytest.raises(ModelError, match=r"other results than in torch.*ONNX"):
        build_model(net, (x,), threads=1)
    with pytest.raises(ModelError, match="other results than in torch"):
        tune_model(net, (x,), trials=1, records=tmp_path / "r.db", threads=1)


def test_a_program_that_writes_leaves_the_callers_tensors_alone():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x, again):
            x.mul_(2)
            self.count.add_(1)
            return again + self.count

    net, x = Writes(), torch.ones(3)
    program = torch.export.export(net, (x, x))
    reference = Reference.of_torch(program)
    torch.testing.assert_close(reference.outputs[0], torch.full((3,), 3.0))  # x twice is one x
    torch.testing.assert_close(x, torch.ones(3))
    torch.testing.assert_close(reference.inputs[0], torch.ones(3))
    torch.testing.assert_close(net.count, torch.zeros(3))
    torch.testing.assert_close(program.state_dict["count"], torch.zeros(3))


def test_examples_that_are_the_same_everywhere_do_not_hide_a_wrong_reading(misread):
    """Zeros stand for a shape; what is misread shows on other numbers alone."""
    x = torch.zeros(1, 2, 9, 9)
    with pytest.raises(ModelError, match="other results than in torch"):
        build_model(misread, (x,), threads=1)


def test_a_model_that_could_not_be_compared_says_why(monkeypatch):
    onnx = pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "net",
        [value("x", onnx.TensorProto.FLOAT, (2, 3))],
        [value("y", onnx.TensorProto.FLOAT, (2, 3))],
    )
    made = build_model(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    )
    (note,) = (n for n in made.notes if n.startswith("its results were not compared"))
    assert note.endswith('onnxruntime is not installed: pip install "loopwright[onnx]"')


def test_a_model_may_return_none_among_its_tensors():
    x = torch.randn(2, 3)
    made = build_model(Function(lambda x: (x + 1, None, {"y": [None, x * 2]})), (x,), threads=1)
    first, nothing, rest = made(x)
    torch.testing.assert_close(first, x + 1)
    assert nothing is None
    assert rest["y"][0] is None
    torch.testing.assert_close(rest["y"][1], x * 2)


def test_what_the_exporter_lacks_is_there():
    def every(x):
        known = torch.nan_to_num(x)
        return {
            "fmax": torch.fmax(x, x.flip(0)),
            "fmin": torch.fmin(x, x.flip(0)),
            "logsigmoid of large numbers": nn.functional.logsigmoid(100 * known),
            **{
                f"cdist {p}": torch.cdist(known, torch.ones(3, 4), p)
                for p in (0, 1, 2, 3, float("inf"))
            },
        }

    x = torch.randn(5, 4)
    x[0, 1] = x[4, 2] = float("nan")
    assert_as_in_torch(every, x)
