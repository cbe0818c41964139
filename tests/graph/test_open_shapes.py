"""What follows from open sizes: images of another size, widths, numbers, torch's assertions."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function
from tests.graph.test_open_model import model_of, random

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
node = onnx.helper.make_node
pytestmark = pytest.mark.onnx
PLAIN = {"coordinate_transformation_mode": "asymmetric"}


def check_at(built, model, shapes):
    reference = onnx.reference.ReferenceEvaluator(model)
    for seed, shape in enumerate(shapes):
        x = random(*shape, seed=seed)
        got, wanted = built(x), reference.run(None, {"x": x})
        for a, b in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_pools_of_open_images_may_round_up():
    window = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}
    nodes = [
        node("MaxPool", ["x"], ["m"], **window),
        node("AveragePool", ["x"], ["a"], pads=[1, 1], **window),
        node("AveragePool", ["x"], ["i"], pads=[1, 1], count_include_pad=1, kernel_shape=[3]),
    ]
    model = model_of(nodes, {"x": (1, 2, "w")}, ("m", "a", "i"))
    built = lw.build_model(model, dims={"w": (6, 19)}, threads=1)
    assert len(built.frames) == 1
    check_at(built, model, [(1, 2, w) for w in range(6, 20)])


def test_windows_that_step_may_be_padded_to_the_same_size():
    upper = {"auto_pad": "SAME_UPPER", "strides": [2]}
    nodes = [
        node("Conv", ["x", "w"], ["c"], auto_pad="SAME_LOWER", strides=[3]),
        node("Conv", ["x", "w"], ["d"], **upper),
        node("MaxPool", ["x"], ["m"], kernel_shape=[3], **upper),
        node("AveragePool", ["x"], ["a"], kernel_shape=[2], **upper),
    ]
    weights = [("w", random(3, 2, 4))]
    model = model_of(nodes, {"x": (1, 2, "n")}, ("c", "d", "m", "a"), weights)
    built = lw.build_model(model, dims={"n": (2, 12)}, threads=1)
    check_at(built, model, [(1, 2, n) for n in range(2, 13)])


@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_both_axes_of_an_image_may_be_padded_to_the_same_size(op):
    upper = {"auto_pad": "SAME_UPPER", "strides": [2, 2], "kernel_shape": [2, 2]}
    inputs = ["x", "w"][: 2 if op == "Conv" else 1]
    weights = [("w", random(3, 3, 2, 2))][: len(inputs) - 1]
    model = model_of([node(op, inputs, ["y"], **upper)], {"x": (1, 3, "h", "n")}, ("y",), weights)
    built = lw.build_model(model, dims={"h": (10, 60), "n": (10, 60)}, threads=1)
    sizes = [(10, 10), (10, 60), (60, 10), (18, 30), (33, 35), (36, 46), (59, 60), (60, 59)]
    check_at(built, model, [(1, 3, h, n) for h, n in sizes])


def test_batches_of_images_with_channels_last_may_be_padded_to_the_same_size():
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2]),
    ]
    inputs, weights = {"x": ("b", "h", "n", 3)}, [("w", random(8, 3, 3, 3))]
    model = model_of(nodes, inputs, ("y",), weights)
    built = lw.build_model(model, dims={"b": (2, 4), "h": (3, 31), "n": (3, 31)}, threads=1)
    sizes = [(2, 3, 3), (4, 31, 31), (2, 7, 13), (3, 8, 30), (4, 12, 5), (2, 31, 4)]
    check_at(built, model, [(*size, 3) for size in sizes])


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        ("linear", {}),
        ("cubic", PLAIN),
        ("nearest", {"nearest_mode": "round_prefer_ceil"}),
        ("nearest", {**PLAIN, "nearest_mode": "floor"}),
    ],
)
def test_open_images_grow_by_a_fraction(mode, how):
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode=mode, **how)]
    weights = [("scales", np.array([1, 1, 1.5], np.float32))]
    model = model_of(nodes, {"x": (1, 2, "w")}, ["y"], weights)
    built = lw.build_model(model, dims={"w": (3, 11)}, threads=1)
    check_at(built, model, [(1, 2, w) for w in (3, 4, 5, 10, 11)])


@pytest.mark.parametrize(
    ("scale", "how"),
    [
        (0.3, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
        (
            1.2,
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "round_prefer_ceil"},
        ),
        (2.5, {"nearest_mode": "round_prefer_floor"}),
    ],
)
def test_the_nearest_of_two_elements_is_that_of_onnxruntime(scale, how):
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="nearest", **how)]
    weights = [("scales", np.array([1, 1, scale], np.float32))]
    model = model_of(nodes, {"x": (1, 2, "w")}, ["y"], weights)
    built = lw.build_model(model, dims={"w": (10, 60)}, threads=1)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for w in (10, 37, 60):
        x = random(1, 2, w)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(built(x), wanted)
        fixed = lw.build_model(model, {"x": x}, threads=1, check=False)
        np.testing.assert_array_equal(fixed(x), wanted)


def test_an_open_image_that_shrinks_to_one_element_keeps_the_first():
    how = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
    nodes = [node("Resize", ["x", "", "scales"], ["y"], **how)]
    weights = [("scales", np.array([1, 1, 0.25], np.float32))]
    model = model_of(nodes, {"x": (1, 2, "w")}, ["y"], weights)
    built = lw.build_model(model, dims={"w": (4, 24)}, threads=1)
    for w in (4, 7):
        x = random(1, 2, w)
        np.testing.assert_array_equal(built(x), x[:, :, :1])
    x = random(1, 2, 8)
    np.testing.assert_allclose(built(x), (x[:, :, 1::4] + x[:, :, 2::4]) / 2, rtol=1e-5)


def test_an_output_with_fewer_axes_at_some_sizes_is_refused():
    model = model_of([node("Squeeze", ["x"], ["y"])], {"x": ("n", 3)}, ["y"])
    with pytest.raises(ModelError, match=r"output 0 has other numbers of axes at other sizes"):
        lw.build_model(model, dims={"n": (1, 9)}, threads=1)


def test_open_images_grow_to_the_size_of_another_one():
    pool = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    nodes = [
        node("MaxPool", ["x"], ["half"], **pool),
        node("MaxPool", ["half"], ["small"], **pool),
        node("Shape", ["half"], ["size"]),
        node("Resize", ["small", "", "", "size"], ["large"], mode="linear"),
        node("Add", ["half", "large"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, 2, "h", 9)}, ["y"])
    built = lw.build_model(model, dims={"h": (6, 21)}, threads=1)
    check_at(built, model, [(1, 2, h, 9) for h in range(6, 22)])


def test_known_numbers_that_vary_with_a_size_are_computed_in_the_call():
    numbers = {"zero": 0, "one": 1}
    nodes = [
        node("Shape", ["x"], ["shape"], start=1, end=2),
        node("Squeeze", ["shape"], ["n"]),
        node("Neg", ["n"], ["first"]),
        node("Range", ["first", "zero", "one"], ["places"]),
        node("Cast", ["places"], ["p"], to=1),
        node("Cast", ["n"], ["count"], to=1),
        node("Sqrt", ["count"], ["root"]),
        node("Div", ["p", "root"], ["share"]),
        node("Div", ["x", "count"], ["parts"]),  # by powers of two, too
        node("Add", ["parts", "share"], ["y"]),
    ]
    weights = [(name, np.array(value)) for name, value in numbers.items()]
    model = model_of(nodes, {"x": (2, "n")}, ["y"], weights)
    built = lw.build_model(model, dims={"n": (2, 40)}, threads=1)
    assert [[(d.low, d.high) for d in frame.dims] for frame in built.frames] == [[(2, 40)]]
    check_at(built, model, [(2, n) for n in (2, 3, 16, 17, 40)])


def test_rows_are_padded_to_a_multiple():
    nodes = [
        node("Shape", ["x"], ["n"], start=1, end=2),
        node("Add", ["n", "seven"], ["more"]),
        node("Div", ["more", "eight"], ["blocks"]),
        node("Mul", ["blocks", "eight"], ["all"]),
        node("Sub", ["all", "n"], ["after"]),
        node("Concat", ["none", "after"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["wide"]),
        node("Reshape", ["wide", "rows"], ["y"]),
    ]
    weights = [("seven", np.array([7])), ("eight", np.array([8])), ("none", np.zeros(3, int))]
    weights += [("rows", np.array([2, -1, 8]))]
    model = model_of(nodes, {"x": (2, "n")}, ["y"], weights)
    built = lw.build_model(model, dims={"n": (9, 40)}, threads=1)
    check_at(built, model, [(2, n) for n in (9, 15, 16, 17, 24, 33, 40)])


@pytest.mark.torch
def test_a_padding_that_has_no_element_at_some_sizes_is_one_step_at_all():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    F = torch.nn.functional
    conv = torch.nn.Conv1d(2, 4, 3, padding=1)

    def paddings(x):
        n = x.shape[-1]
        more = (4 - n % 4) % 4
        rows = F.pad(x, (0, more)).view(2, -1, 4).sum(-1)
        middle = F.pad(x, (more // 2, more - more // 2), value=1.5)
        ends = F.pad(x[None], (0, more), mode="reflect"), F.pad(x[None], (more, 0), "replicate")
        odd = (5 - n % 5) % 5
        around = [F.pad(x, (odd // 2, odd - odd // 2), m) for m in ("reflect", "circular")]
        pool = F.max_pool1d(F.pad(x, (-(n % 5), 0)), 5)
        less = x[:, ::2].repeat_interleave(2, 1)
        image = conv(F.pad(x, (0, more)))[:, :n]
        same = F.pad(less, (0, n - less.shape[-1])) + x
        return rows, middle, *ends, same, image, pool, *around

    built = lw.build_model(
        Function(paddings), (lw.tensor("x", (2, lw.dim("n", 5, 26))),), threads=1
    )
    assert len(built.frames) <= 2
    for n in range(5, 27):
        x = torch.randn(2, n)
        with torch.no_grad():
            torch.testing.assert_close(built(x), paddings(x), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
def test_what_torch_asserts_of_sizes_is_tried_at_all_of_them():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Halves(torch.nn.Module):
        def forward(self, x):
            return x.view(2, x.shape[1] // 2, 2).sum(2)

    n = lw.dim("n", 2, 20)
    with pytest.raises(ModelError, match=r"as n=3: torch\.export asserts .*or a multiple"):
        lw.build_model(Halves(), (lw.tensor("x", (2, n)),), threads=1)
    even = lw.dim("n", 2, 20, multiple=2)
    built = lw.build_model(Halves(), (lw.tensor("x", (2, even)),), threads=1)
    for size in (2, 4, 14, 20):
        x = random(2, size)
        np.testing.assert_allclose(built(x), x.reshape(2, -1, 2).sum(2), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
def test_a_branch_of_torch_that_not_all_sizes_take_is_refused():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Odd(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[1] % 2 == 0 else x + 1

    with pytest.raises(ModelError, match=r"torch\.export asserts"):
        lw.build_model(Odd(), (lw.tensor("x", (2, lw.dim("n", 2, 20))),), threads=1)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("branch", "low"),
    [
        (lambda x: x * 2 if x.shape[0] != 1 else x, 1),
        (lambda x: x * 2 if x.shape[0] > 1 else x, 1),
        (lambda x: x * 2 if x.shape[0] == 1 else x, 1),
        (lambda x: x.sum(0) if x.shape[0] % 8 == 1 else x.mean(0), 1),
        (lambda x: x[6:] if x.shape[0] != 7 else x, 7),
    ],
)
def test_a_branch_of_torch_at_a_size_of_one_is_refused(branch, low):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Branch(torch.nn.Module):
        def forward(self, x):
            return branch(x)

    with pytest.raises(ModelError, match=r"torch\.export (asserts|traces)"):
        lw.build_model(Branch(), (lw.tensor("x", (lw.dim("n", low, 40), 3)),), threads=1)


@pytest.mark.torch
def test_what_torch_itself_asserts_of_a_size_of_one_is_let_through():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):  # F.linear asserts that a transposed argument is no row
            return self.linear(x.transpose(0, 1).contiguous()).relu()

    module = Product().train()
    built = lw.build_model(module, (lw.tensor("x", (3, lw.dim("n", 1, 40))),), threads=1)
    assert module.training
    for n in (1, 2, 40):
        x = torch.randn(3, n)
        np.testing.assert_allclose(built(x), module(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.torch
def test_a_dim_of_one_value_is_a_fixed_extent_to_torch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    sizes = lw.dim("n", 5, 5), lw.dim("m", 2, 9)
    built = lw.build_model(torch.nn.ReLU(), (lw.tensor("x", sizes),), threads=1)
    x = random(5, 7)
    np.testing.assert_array_equal(built(x), np.maximum(x, 0))


@pytest.mark.torch
def test_names_of_axes_that_are_one_word_are_two_dims():
    model = model_of(
        [node("Relu", ["x"], ["y"]), node("Relu", ["z"], ["w"])],
        {"x": ("n.1", 4), "z": ("n_1", 4)},
        ("y", "w"),
    )
    built = lw.build_model(model, dims={"n.1": (1, 4), "n_1": (1, 6)}, threads=1)
    assert [str(d) for d in built.library.dims] == ["n_1_: 1 to 4", "n_1: 1 to 6"]
    assert [y.shape for y in built(random(2, 4), random(5, 4))] == [(2, 4), (5, 4)]


def test_a_dim_whose_name_is_no_text_is_refused():
    model = model_of([node("Relu", ["x"], ["y"])], {"x": ("n", 4)}, ["y"])
    with pytest.raises(ModelError, match=r'3 is no name: give texts, {"batch": \(1, 512\)}'):
        lw.build_model(model, dims={3: (1, 8)})


def test_a_shape_in_place_of_a_tensor_of_torch_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(ModelError, match=r'the shape \(n, 3\).*give lw\.tensor\("x", \(n, 3\)\)'):
        lw.build_model(torch.nn.ReLU(), ((lw.dim("n", 1, 9), 3),), threads=1)


@pytest.mark.torch
def test_functions_that_torch_traces_for_one_size_have_any():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    F = torch.nn.functional

    class Net(torch.nn.Module):
        def forward(self, x):
            n = x.shape[3]
            mean = F.adaptive_avg_pool2d(x, 3)
            most = F.adaptive_max_pool1d(x[0], 4)
            rows = F.adaptive_avg_pool2d(x, (None, 1)), F.adaptive_max_pool2d(x, (1, None))
            return mean, most, *rows, x * torch.linspace(-1, 2, n)

    n = lw.dim("n", 1, 7)
    built = lw.build_model(Net(), (lw.tensor("x", (1, 2, 5, n)),), threads=1)
    for size in (1, 2, 3, 6, 7):
        x = torch.randn(1, 2, 5, size)
        x[0, 0, 0, 0] = torch.inf  # of the first windows alone
        torch.testing.assert_close(built(x), Net()(x), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
def test_shapes_and_what_follows_from_them_alone_are_results():
    true = onnx.numpy_helper.from_array(np.array([True]))
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Size", ["x"], ["size"]),
        node("Gather", ["shape", "one"], ["n"]),
        node("Mul", ["n", "n"], ["square"]),
        node("Unsqueeze", ["n", "zero"], ["row"]),
        node("Concat", ["row", "two"], ["turned"], axis=0),
        node("Reshape", ["x", "turned"], ["y"]),
        node("ConstantOfShape", ["shape"], ["fill"], value=true),
        node("EyeLike", ["x"], ["eye"], k=1),
    ]
    weights = [("zero", np.array([0])), ("one", np.array(1)), ("two", np.array([2]))]
    outputs = ("shape", "size", "n", "square", "turned", "y", "fill", "eye")
    model = model_of(nodes, {"x": (2, "n")}, outputs, weights)
    built = lw.build_model(model, dims={"n": (1, 9)}, threads=1)
    check_at(built, model, [(2, n) for n in (1, 2, 7, 9)])


def test_known_values_of_half_an_open_size_are_in_no_layout():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    def scaled(x):
        return x[:, ::2] * torch.linspace(0, 1, (x.shape[1] + 1) // 2)

    given = (lw.tensor("x", (2, lw.dim("n", 5, 12))),)
    built = lw.build_model(Function(scaled), given, threads=1)
    for n in (5, 6, 11, 12):
        x = torch.randn(2, n)
        torch.testing.assert_close(built(x), scaled(x), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: sum(x[k] for k in range(x.shape[0])), r"a loop in Python over an open axis"),
        (lambda x: sum(x), r"a loop in Python, of an open axis gives another number of parts"),
        (lambda x: x.split(4)[0], r"split\(4, 0\) of an open axis .*tensor_split"),
        (lambda x: x / float(x.shape[0]), r"math.sqrt\(n\) .*write n as it is, n \*\* 0.5"),
        (
            lambda x: torch_functions().adaptive_max_pool1d(x, 2, return_indices=True),
            r"adaptive_max_pool1d with return_indices.*leave return_indices out",
        ),
    ],
)
def test_a_function_that_open_sizes_cannot_have_is_refused_by_name(function, words):
    pytest.importorskip("onnxscript")
    n = lw.dim("n", 1, 40)
    shape = (2, 3, n) if "pool" in words else (n, 3, 5)
    with pytest.raises(ModelError, match=words):
        lw.build_model(Function(function), (lw.tensor("x", shape),), threads=1)


def torch_functions():
    return pytest.importorskip("torch").nn.functional


@pytest.mark.torch
def test_a_convolution_of_channels_last_may_have_images_of_one_row():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    halved, mixed = torch.nn.Conv2d(3, 4, 2, stride=2), torch.nn.Conv2d(4, 4, 1)

    def network(x):
        rows = halved(x).permute(0, 2, 3, 1).contiguous()
        return mixed(rows.permute(0, 3, 1, 2))

    shape = (1, 3, lw.dim("h", 2, 9), 4)
    built = lw.build_model(Function(network), (lw.tensor("x", shape),), threads=1)
    for h in range(2, 10):
        x = torch.randn(1, 3, h, 4)
        torch.testing.assert_close(built(x), network(x).detach(), rtol=1e-4, atol=1e-5)
