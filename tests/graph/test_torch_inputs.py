"""Inputs of torch models: their names, their order, and those that cannot be."""

import warnings
from collections import UserDict
from types import MappingProxyType

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import ShapeError
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.modules import Function

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class _Minus(torch.nn.Module):
    def forward(self, a, b):
        return a - 2 * b


class _Spelled(torch.nn.Module):
    def forward(self, X, inputIds, x):
        return X - 2 * inputIds + 3 * x


class _Optional(torch.nn.Module):
    def forward(self, a, mask=None, b=None):
        return a if b is None else a - 2 * b


def _program(module, *inputs, **options):
    return torch.export.export(module, inputs, **options)


@pytest.mark.parametrize("mapping", [dict, UserDict, MappingProxyType])
def test_inputs_given_by_name_keep_the_order_of_the_model(mapping):
    a, b = torch.randn(2, 3, 4)
    made = build_model(_Minus(), mapping({"b": b, "a": a}), threads=1)
    torch.testing.assert_close(made(a, b), a - 2 * b)
    torch.testing.assert_close(made(b=b, a=a), a - 2 * b)


class _Weighed(torch.nn.Module):
    """The weight is called as an input or as a result of the exporter's is."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.register_buffer(name, torch.arange(6.0).reshape(2, 3))

    def forward(self, a, b):
        return torch.matmul(getattr(self, self.name), a) - b


@pytest.mark.parametrize("name", ["a", "b", "matmul", "sub"])
def test_a_weight_may_have_the_name_of_an_input_or_of_a_result(name):
    a, b = torch.randn(3, 3), torch.randn(2, 3)
    module = _Weighed(name)
    made = build_model(module, (a, b), threads=1)
    torch.testing.assert_close(made(a=a, b=b), module(a, b))


def test_a_tensor_given_twice_stands_for_two_inputs():
    a, b = torch.randn(2, 3, 4)
    made = build_model(_Minus(), (a, a), threads=1)
    torch.testing.assert_close(made(a, b), a - 2 * b)


def test_names_beyond_the_signature_come_last():
    class Rest(torch.nn.Module):
        def forward(self, a, **rest):
            return a - 2 * rest["c"] + 3 * rest["b"]

    a, b, c = torch.randn(3, 3, 4)
    made = build_model(Rest(), {"c": c, "a": a, "b": b}, threads=1)
    torch.testing.assert_close(made(a, c, b), a - 2 * c + 3 * b)


def test_a_script_is_refused_also_where_its_inputs_have_names():
    a, b = torch.randn(2, 3, 4)
    script = torch.jit.trace(_Minus(), (a, b))
    with pytest.raises(ModelError, match=r"cannot export the model: .*that it was made of"):
        build_model(script, {"a": a, "b": b}, threads=1)


def test_a_shape_in_place_of_an_input_is_told_to_be_no_example():
    with pytest.raises(ModelError, match=r"no input is a tensor: give examples, as torch\.zeros"):
        build_model(torch.nn.Linear(8, 4), ((2, 8),), threads=1)


class _Asking(torch.nn.Module):
    def forward(self, x):
        return 2 * x if torch.compiler.is_compiling() else 3 * x


def test_a_module_that_does_something_else_where_it_is_traced_is_refused():
    x = torch.randn(3, 4)
    with pytest.raises(ModelError, match="asks whether it is traced"):
        build_model(_Asking(), (x,), threads=1)
    torch.testing.assert_close(build_model(_program(_Asking(), x), threads=1)(x), 2 * x)


class _Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class _Keeping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = None

    def forward(self, x):
        self.first = 2 * x if self.first is None else self.first
        return self.first + x


@pytest.mark.parametrize("module", [_Counting, _Keeping])
def test_a_module_that_keeps_something_from_call_to_call_is_refused(module):
    with pytest.raises(ModelError, match="or keeps something from call to call"):
        build_model(module(), (torch.randn(3, 4),), threads=1)


class _Casting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        self.layer = self.layer.to(x.dtype)
        return self.layer(x)


def test_a_layer_that_forward_casts_is_refused_with_what_to_do():
    with pytest.raises(
        ModelError, match=r"in forward; a module that moves or casts a layer .*do so before"
    ):
        build_model(_Casting(), (torch.randn(3, 4),), threads=1)


def test_packed_weights_are_refused_with_what_to_do():
    net = torch.nn.Sequential(torch.nn.Linear(8, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.ao.quantization
        packed = torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear})
    with pytest.raises(ModelError, match="packed cannot be exported: give the module as it was"):
        build_model(packed, (torch.randn(2, 8),))


def test_an_error_of_torch_is_told_without_its_dump():
    class Branch(torch.nn.Module):
        def forward(self, x):
            return 2 * x if x.sum() > 0 else x

    said = rf"data-dependent.*at {__file__}:\d+, in forward; .*take torch.where"
    with pytest.raises(ModelError, match=said):
        build_model(Branch(), (torch.randn(3),), threads=1)


def test_a_choice_by_elements_is_told_with_its_line():
    class Equal(torch.nn.Module):
        def forward(self, x):
            return x if torch.equal(x, 0 * x) else 2 * x

    with pytest.raises(ModelError, match=rf"equal.*{__file__}:\d+, in forward; .*torch.where"):
        build_model(Equal(), (torch.randn(3),), threads=1)


def test_a_result_that_is_no_tensor_is_refused_with_what_to_do():
    class Kept(torch.nn.Module):
        def forward(self, x):
            return 2 * x, object()

    said = "has a object, which torch does not take apart: return tensors, or .*use_cache=False"
    with pytest.raises(ModelError, match=said):
        build_model(Kept(), (torch.randn(3),), threads=1)


def test_a_model_that_keeps_or_changes_what_it_made_is_built_without_a_warning(recwarn):
    class Keeping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = {"a": torch.zeros(3)}

        def forward(self, x):
            self.kept["a"] = torch.arange(3.0)
            y = x.clone()
            y += self.kept["a"]
            return y

    x = torch.randn(3)
    torch.testing.assert_close(build_model(Keeping(), (x,), threads=1)(x), x + torch.arange(3.0))
    assert not [str(w.message) for w in recwarn]


def test_inputs_are_called_as_the_model_spells_them():
    net, (X, ids, x), n = _Spelled(), torch.randn(3, 3, 4), torch.export.Dim("n")
    words = {"X": X, "inputIds": ids, "x": x}
    dynamic = _program(net, X, ids, x, dynamic_shapes=({0: n}, {0: n}, {0: n}))
    for model in (net, _program(net, X, ids, x), dynamic):
        made = build_model(model, words, threads=1)
        torch.testing.assert_close(made(**words), net(**words))
        torch.testing.assert_close(made(X, ids, x), net(**words))


def test_a_container_of_one_tensor_is_given_flat():
    x, y = torch.randn(2, 3, 4)
    in_dict = build_model(Function(lambda d, y: d["x"] - 2 * y), ({"x": x}, y), threads=1)
    torch.testing.assert_close(in_dict(x, y), x - 2 * y)
    in_list = build_model(Function(lambda xs: xs[0] * 2), ([x],), threads=1)
    torch.testing.assert_close(in_list(x), x * 2)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"z": torch.ones(3, 4)}, "no input 'z'; it takes a, b"),
        ({"a": torch.ones(3, 4)}, "input b is not given; the model takes a, b"),
        ((torch.ones(3, 4),) * 3, "3 inputs given; the model takes a, b"),
        (
            {"b": torch.ones(7), "a": torch.ones(3, 4)},
            r"input b is \(3, 4\) in the program, \(7,\) is given: leave inputs out, .* export it",
        ),
        (([torch.ones(3, 4)], torch.ones(3, 4)), r"input a is \(3, 4\) .* \(1, 3, 4\) is given"),
    ],
)
def test_inputs_that_a_program_of_fixed_shapes_does_not_take_are_refused(inputs, said):
    program = _program(_Minus(), torch.ones(3, 4), torch.ones(3, 4))
    with pytest.raises(ModelError, match=said):
        build_model(program, inputs, threads=1)


def test_nested_inputs_of_a_program_of_fixed_shapes_are_compared_by_their_places():
    net = Function(lambda d: d["a"].sum() * d["b"])
    program = _program(net, {"b": torch.ones(5), "a": torch.ones(3, 4)})
    assert build_model(program, ({"a": torch.ones(3, 4), "b": torch.ones(5)},), threads=1)
    with pytest.raises(ModelError, match=r"is \(3, 4\) in the program, \(5,\) is given"):
        build_model(program, ({"a": torch.ones(5), "b": torch.ones(5)},), threads=1)
    with pytest.raises(ModelError, match="nested otherwise than in the program"):
        build_model(program, ({"a": torch.ones(3, 4)},), threads=1)


class _Nested(torch.nn.Module):
    def forward(self, batch, state, extra=None):
        h = (batch["a"] - 2 * batch["b"]) * state[0]
        return {"h": h if extra is None else h + extra["e"]}


def _nested():
    batch = {"a": torch.randn(3, 4), "b": torch.randn(3, 4)}
    return batch, [torch.randn(3, 4)]


def _open_inputs():
    shape = (lw.dim("n", 2, 9), 4)
    return {n: lw.tensor(n, shape) for n in "ab"}, [lw.tensor("s", shape)]


@pytest.mark.parametrize("inputs", [_nested, _open_inputs])
def test_a_call_takes_inputs_nested_as_the_module_takes_them(inputs):
    network = build_model(_Nested(), inputs(), threads=1)
    batch, state = _nested()
    (expected,) = _Nested()(batch, state).values()
    turned = {"b": batch["b"], "a": batch["a"]}
    for found in (
        network(batch, state),
        network(turned, tuple(state)),
        network(batch, state=state),
        network(state=state, batch=turned),
        network(*batch.values(), *state),
        network(*batch.values(), state_0=state[0]),
    ):
        torch.testing.assert_close(found["h"], expected)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, b, s: f({"a": b["a"]}, s), r"give \{'a': 'batch_a', 'b': 'batch_b'\}"),
        (lambda f, b, s: f(b, [*s, *s]), r"nested otherwise .* give \['state_0'\]"),
        (lambda f, b, s: f(b), "input state is missing: the model takes batch, state"),
        (lambda f, b, s: f(b, s, c=b), "'c' is no input: the model takes batch, state"),
        (lambda f, b, s: f(batch=b["a"], state=s), "Tensor of shape .* is nested otherwise"),
        (lambda f, b, s: f({**b, "b": b["b"].double()}, s), "batch_b has dtype float64"),
    ],
)
def test_inputs_of_a_call_that_are_nested_otherwise_are_refused_with_the_names(call, said):
    network = build_model(_Nested(), _nested(), threads=1)
    with pytest.raises(ShapeError, match=said):
        call(network, *_nested())


def test_constants_among_the_inputs_are_refused_with_what_to_do():
    a, b = torch.randn(2, 3, 4)
    with pytest.raises(ModelError, match=r"input b is 2\.5, a constant.*wrap the model"):
        build_model(_program(_Minus(), a, 2.5), threads=1)
    made = build_model(_Optional(), {"b": b, "a": a}, threads=1)
    torch.testing.assert_close(made(a, b), a - 2 * b)


def test_an_input_may_be_none_where_the_module_takes_it(tmp_path):
    a, b = torch.randn(2, 3, 4)
    for model in (_Optional(), _program(_Optional(), a, None, b)):
        made = build_model(model, (a, None, b), threads=1)
        for found in (made(a, None, b), made(a, b), made(a, b=b), made(a, mask=None, b=b)):
            torch.testing.assert_close(found, a - 2 * b)
        with pytest.raises(ShapeError, match="3 inputs"):
            made(a, a, b)
    with pytest.raises(ModelError, match="an array where the program has None"):
        build_model(_program(_Optional(), a, None, b), (a, a, b), threads=1)
    made.export(tmp_path / "net.so")
    np.testing.assert_allclose(lw.load(tmp_path / "net.so")(a, b), a - 2 * b, rtol=1e-6)
    n = lw.dim("n", 2, 9)
    shapes = lw.tensor("a", (n, 4)), None, lw.tensor("b", (n, 4))
    for rows in (a, a[:2]):
        found = build_model(_Optional(), shapes, threads=1)(rows, None, rows)
        torch.testing.assert_close(found, -rows)


def test_none_may_stand_in_a_nested_input():
    def told(state, pair):
        return state["x"] - pair[1] if state["m"] is None and pair[0] is None else state["m"]

    x, y = torch.randn(2, 3, 4)
    made = build_model(Function(told), ({"x": x, "m": None}, (None, y)), threads=1)
    torch.testing.assert_close(made({"x": x, "m": None}, (None, y)), x - y)


class _Flagged(torch.nn.Module):
    def forward(self, x, flag=True):
        return x.relu() if flag else x


@pytest.mark.parametrize("x", [torch.ones(3), lw.tensor("x", (lw.dim("n", 1, 8),))])
def test_a_number_by_which_a_module_decides_is_refused_with_what_to_do(x, capfd):
    with pytest.raises(ModelError, match=r"numbers given, True, .*leave it out where the module"):
        build_model(_Flagged(), (x, True), threads=1)
    assert "def forward" not in "".join(capfd.readouterr())  # the graph that torch prints


def test_a_class_of_modules_is_told_to_be_none():
    with pytest.raises(ModelError, match=r"_Minus is a class: make a module of it, _Minus\(…\)"):
        build_model(_Minus, (torch.ones(3), torch.ones(3)))


@pytest.mark.parametrize(
    "x", [torch.ones(2, 3).to_sparse(), torch.ones(2, 3, device="meta")], ids=["sparse", "meta"]
)
def test_tensors_that_no_array_can_be_are_an_error_of_the_call(x):
    made = build_model(Function(lambda x: x * 2), (torch.ones(2, 3),), threads=1)
    with pytest.raises(ShapeError, match=r"Tensor of shape \(2, 3\).* is no dense array"):
        made(x)


def test_the_dims_of_an_open_program_are_called_as_the_user_named_them():
    x, rows = torch.randn(4, 3), torch.export.Dim("rows", min=2, max=9)
    program = _program(Function(lambda x: x * 2), x, dynamic_shapes=(({0: rows},),))
    with pytest.raises(ModelError, match=r'\[rows, 3\]: .*e.g. dims={"rows": \(1, 512\)}'):
        build_model(program)
    made = build_model(program, dims={"rows": (2, 9)}, threads=1)
    assert [d.name for d in made.library.dims] == ["rows"]
    torch.testing.assert_close(made(x), x * 2)


def test_an_axis_that_is_a_multiple_of_a_dim_follows_it():
    half = torch.export.Dim("half", min=2, max=8)
    x, y = torch.randn(4, 3), torch.randn(8, 3)
    shapes = (({0: half}, {0: 2 * half}),)
    net = Function(lambda x, y: (x.sum(0), y * 2))
    program = _program(net, x, y, dynamic_shapes=shapes)
    with pytest.raises(ModelError, match=r'open shape \[half, 3\].*dims=\{"half": \(1, 512\)\}'):
        build_model(program)
    model = build_model(program, dims={"half": (2, 8)}, threads=1)
    assert [str(d) for d in model.library.dims] == ["half: 2 to 8"]
    x, y = torch.randn(3, 3), torch.randn(6, 3)
    torch.testing.assert_close(model(x, y), (x.sum(0), y * 2))
