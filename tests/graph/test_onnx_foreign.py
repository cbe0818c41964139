"""Operators that are left to TVM: single steps of a network that is ours else."""

import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.graph.build import build_model
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.onnx.call import OPERATORS
from loopwright.graph.tuning.tune import tune_model
from tests.graph.onnx_nodes import computed, node_model

pytestmark = [pytest.mark.onnx, pytest.mark.usefixtures("brief")]


def between(rng):
    """A convolution, a scatter into its result, and a ReLU; inputs x, i, u."""
    from onnx import TensorProto, helper, numpy_helper

    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("ScatterElements", ["c", "i", "u"], ["s"], axis=1),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    shapes = {"x": (1, 3, 8, 8), "i": (1, 1, 6, 6), "u": (1, 1, 6, 6)}
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name == "i" else TensorProto.FLOAT, shape
        )
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 6, 6))],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x, u = (rng.standard_normal(shapes[n]).astype(np.float32) for n in "xu")
    return model, (x, rng.integers(-4, 4, shapes["i"]), u)


def test_one_operator_of_tvms_leaves_the_others_to_us(tmp_path):
    from onnx.reference import ReferenceEvaluator

    model, inputs = between(np.random.default_rng(0))
    made = build_model(model, threads=1)
    wanted = ReferenceEvaluator(model).run(None, dict(zip("xiu", inputs)))[0]
    np.testing.assert_allclose(made(*inputs), wanted, rtol=1e-4, atol=1e-5)
    (note,) = made.notes
    assert note.startswith("ScatterElements_scatter_elements keeps TVM's path")
    assert {task.name for task in made.work.tasks} >= {"conv", "relu"}
    made.export(tmp_path / "net.so")
    again = lw.load(tmp_path / "net.so")
    np.testing.assert_array_equal(again(*inputs), made(*inputs))


def test_what_is_ours_around_it_is_tuned(tmp_path):
    model, inputs = between(np.random.default_rng(1))
    options = {"trials": 4, "threads": 1, "records": tmp_path / "r.db"}
    made = tune_model(model, inputs, **options)
    assert isinstance(made, TunedModel)
    assert made.records


def test_an_operator_that_the_table_lacks_is_tvms(monkeypatch):
    monkeypatch.delitem(OPERATORS, "Erf")
    x = np.linspace(-2, 2, 7).astype(np.float32)
    made = build_model(node_model("Erf", {"x": x}), threads=1)
    np.testing.assert_allclose(made(x), [math.erf(v) for v in x], rtol=1e-4, atol=1e-6)
    assert not made.work.fallback  # the notation reads TVM's function


def test_known_inputs_of_such_an_operator_are_its_weights():
    data, updates = np.zeros((3, 2), np.float32), np.ones((2, 2), np.float32)
    got = computed(
        "ScatterND",
        {"x": data, "i": np.array([[2], [0]])},
        {"u": updates},
        opset=18,
    )
    np.testing.assert_array_equal(got, [[1, 1], [0, 0], [1, 1]])


def test_what_neither_side_reads_is_an_error_that_names_the_operator(monkeypatch):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ModelError, match=r"NonZero: the shape of its result depends on data"):
        computed("NonZero", {"x": x})
    monkeypatch.delitem(OPERATORS, "NonZero")
    with pytest.raises(ModelError, match=r"NonZero has no rule here.*TVM's virtual machine"):
        computed("NonZero", {"x": x})
