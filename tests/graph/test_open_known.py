"""Results of open models that are known at each size: what a call gives is of its own size."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright.graph.errors import ModelError

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.onnx
X = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
BEYOND = {"first": [9], "end": [20], "one": [1]}
"""Places of columns that `x` has not."""


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


EMPTY = node("Slice", "x first end one", "e")
TWOS = [
    node("Shape", "x", "s"),
    node("ConstantOfShape", "s", "k", value=numpy_helper.from_array(np.array([2], np.int64))),
]


def model(nodes, types, known):
    """A model of x, of n rows, whose results are of these types, by their names."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    results = [helper.make_tensor_value_info(name, t, None) for name, t in types.items()]
    weights = [numpy_helper.from_array(np.array(array), name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "g", [x], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(nodes, types, wanted, most=40, **known):
    built = lw.build_model(model(nodes, types, known), dims={"n": (1, most)}, threads=1)
    for n in {1, 3, most}:
        results = built(X[:n])
        results = results if isinstance(results, tuple) else (results,)
        for found, right in zip(results, wanted(X[:n]), strict=True):
            assert (found.shape, found.dtype) == (right.shape, right.dtype)
            np.testing.assert_allclose(found, right, rtol=1e-6)
    return built


def test_a_mask_of_dropout_has_the_size_of_the_call():
    dropout = node("Dropout", "x", "y mask")
    types = {"y": TensorProto.FLOAT, "mask": TensorProto.BOOL}
    check([dropout], types, lambda x: (x, np.ones(x.shape, bool)))


def test_a_result_without_elements_has_the_size_of_the_call(tmp_path):
    nodes = [EMPTY, node("Relu", "x", "y")]
    types = dict.fromkeys("ey", TensorProto.FLOAT)
    built = check(nodes, types, lambda x: (x[:, :0], np.maximum(x, 0)), **BEYOND)
    built.export(tmp_path / "net.so")
    empty, positive = lw.load(tmp_path / "net.so")(X[:7])
    assert empty.shape == (7, 0)
    np.testing.assert_array_equal(positive, np.maximum(X[:7], 0))


@pytest.mark.parametrize(
    ("over", "wanted"),
    [
        (node("ReduceSum", "e one", "y"), lambda x: np.zeros((len(x), 1), np.float32)),
        (node("ReduceProd", "e one", "y"), lambda x: np.ones((len(x), 1), np.float32)),
        (node("MatMul", "e w", "y"), lambda x: np.zeros((len(x), 3), np.float32)),
        (node("Pad", "e widths", "y"), lambda x: np.zeros((len(x), 3), np.float32)),
        (node("Concat", "e x e", "y", axis=1), lambda x: x),
    ],
    ids=["sum", "product", "matrix product", "padding", "joined"],
)
def test_an_operator_that_reads_no_elements_gives_results_of_the_size_of_the_call(over, wanted):
    known = {"w": np.zeros((0, 3), np.float32), "widths": [0, 1, 0, 2], **BEYOND}
    check([EMPTY, over], {"y": TensorProto.FLOAT}, lambda x: (wanted(x),), **known)


def test_a_known_result_that_follows_no_formula_is_right_at_each_size_or_refused():
    nodes, types = [*TWOS, node("NonZero", "k", "y")], {"y": TensorProto.INT64}
    check(nodes, types, lambda x: (np.stack(np.nonzero(np.ones(x.shape))),), most=5)
    with pytest.raises(ModelError, match="the model has other steps at n=32, as at 8 sizes"):
        check(nodes, types, lambda x: ())


def test_a_long_chain_of_known_values_from_a_size_is_computed_in_each_call():
    torch = pytest.importorskip("torch")

    class Positions(torch.nn.Module):
        def forward(self, x):
            place = torch.arange(x.shape[0], -x.shape[0], -1.0, dtype=torch.int64).float()
            for _ in range(6):
                place = place.sin() + 1.5
            return x[:, 0] * place[: x.shape[0]]

    built = lw.build_model(Positions(), (lw.tensor("x", (lw.dim("n", 1, 40), 4)),))
    for n in (1, 17, 40):
        x = torch.as_tensor(X[:n])
        torch.testing.assert_close(built(x), Positions()(x), rtol=1e-4, atol=1e-5)
