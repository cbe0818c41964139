"""Imported ONNX models compute what onnxruntime does, or are refused."""

import sys

import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.onnx.call import OPERATORS
from loopwright.graph.tuning.tune import tune_model
from tests.graph.onnx_nodes import node_model

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.onnx
_ONES = np.float32(1), np.uint8(1)


def made(nodes, inputs, output, *weights):
    """A model of some operators: inputs as name, type and shape, weights as name and array."""
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        nodes if isinstance(nodes, list) else [nodes],
        "g",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*output)],
        [numpy_helper.from_array(array, name) for name, array in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def misread(monkeypatch):
    """A model of an operator whose rule is wrong."""
    from onnx import TensorProto, helper

    monkeypatch.setitem(OPERATORS, "Relu", lambda call: call.each(lambda x: x))
    node = helper.make_node("Relu", ["x"], ["y"])
    return made(node, [("x", TensorProto.FLOAT, (4, 8))], ("y", TensorProto.FLOAT, (4, 8)))


def test_what_the_importer_reads_wrongly_is_refused(misread, tmp_path):
    with pytest.raises(ModelError, match=r"than in onnxruntime: output 0 is off by.*check=False"):
        build_model(misread, threads=1)
    with pytest.raises(ModelError, match="than in onnxruntime"):
        tune_model(misread, trials=1, records=tmp_path / "r.db", threads=1)


@pytest.mark.parametrize("largest", [0, 1])
def test_greatest_elements_may_come_in_any_order_where_the_model_leaves_that_open(largest):
    from onnx import TensorProto, helper

    options = {"axis": -1, "largest": largest, "sorted": 0}
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], **options)
    x = ("x", TensorProto.FLOAT, (4, 40))
    model = made(node, [x], ("v", TensorProto.FLOAT, (4, 9)), ("k", np.array([9])))
    a = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)
    wanted = -np.sort(-a) if largest else np.sort(a)
    np.testing.assert_array_equal(build_model(model, threads=1)(a), wanted[:, :9])
    assert node.attribute[2].i == 0  # the model stays as it is


def test_the_comparison_can_be_left_out(misread, tmp_path, monkeypatch):
    import onnx

    build_model(misread, threads=1, check=False)
    monkeypatch.chdir(tmp_path)
    onnx.save(misread, "net.onnx")
    refused = CliRunner().invoke(main, ["build", "net.onnx"])
    assert refused.exit_code == 1
    assert "--no-check" in refused.output
    assert CliRunner().invoke(main, ["build", "net.onnx", "--no-check"]).exit_code == 0


def test_where_there_is_no_onnxruntime_models_are_built(misread, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    build_model(misread, threads=1)


def test_integers_that_name_rows_are_within_the_table():
    from onnx import TensorProto, helper

    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    node = helper.make_node("Gather", ["table", "i"], ["y"])
    inputs = [("i", TensorProto.INT64, (3,))]
    model = made(node, inputs, ("y", TensorProto.FLOAT, (3, 4)), ("table", table))
    found = build_model(model, threads=1)(np.array([4, 0, -1]))
    assert np.array_equal(found, table[[4, 0, -1]])


def test_examples_may_be_tensors_of_torch():
    torch = pytest.importorskip("torch")
    from onnx import TensorProto, helper

    node = helper.make_node("Relu", ["x"], ["y"])
    model = made(node, [("x", TensorProto.FLOAT, ("N",))], ("y", TensorProto.FLOAT, ("N",)))
    x = torch.tensor([-1.0, 2.0])
    assert build_model(model, (x,), threads=1)(x).tolist() == [0.0, 2.0]


def test_what_rounding_leaves_of_zero_is_no_difference():
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("InstanceNormalization", ["x", "s", "b"], ["n"]),
        helper.make_node("GlobalAveragePool", ["n"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, (1, 4, 9, 9))]
    weights = ("s", np.ones(4, np.float32)), ("b", np.zeros(4, np.float32))
    build_model(made(nodes, inputs, ("y", TensorProto.FLOAT, (1, 4, 1, 1)), *weights), threads=1)


def test_programs_for_another_processor_are_not_run():
    from onnx import TensorProto, helper

    node = helper.make_node("Relu", ["x"], ["y"])
    model = made(node, [("x", TensorProto.FLOAT, (64,))], ("y", TensorProto.FLOAT, (64,)))
    build_model(model, target={"kind": "llvm", "mcpu": "skylake-avx512"}, threads=1)


@pytest.mark.parametrize("op", ["MatMulInteger", "DynamicQuantizeMatMul"])
def test_sums_of_large_products_of_bytes_are_compared_with_exact_ones(op):
    rng = np.random.default_rng(0)
    x = rng.integers(200, 256, (4, 64)).astype(np.uint8)
    known = {"w": rng.integers(80, 128, (64, 8)).astype(np.int8)}
    options = {}
    if op == "DynamicQuantizeMatMul":
        x, options = x.astype(np.float32), {"domain": "com.microsoft"}
        known["scale"] = np.float32(0.1)
    model = node_model(op, {"x": x}, known, opset=17, **options)
    exact = x.astype(np.float64) @ known["w"] * float(known.get("scale", 1))
    np.testing.assert_allclose(build_model(model, {"x": x}, threads=1)(x), exact, rtol=0.01)


def test_a_difference_in_a_quantized_model_asks_for_real_data(monkeypatch):
    rule = OPERATORS["DynamicQuantizeLinear"]
    monkeypatch.setitem(OPERATORS, "DynamicQuantizeLinear", lambda call: [rule(call)[0], *_ONES])
    x = {"x": np.linspace(0, 9, 8).astype(np.float32)}
    with pytest.raises(ModelError, match="give arrays of real data as inputs"):
        build_model(node_model("DynamicQuantizeLinear", x, results=3, opset=17), threads=1)


def test_the_inputs_that_are_given_are_compared(monkeypatch):
    from onnx import TensorProto, helper

    # Of random numbers none is infinite, so that it would not be seen that one sign counts.
    monkeypatch.setitem(
        OPERATORS, "IsInf", lambda call: call.each(lambda x: lw.equal(lw.abs(x), np.inf))
    )
    node = helper.make_node("IsInf", ["x"], ["y"], detect_negative=0)
    model = made(node, [("x", TensorProto.FLOAT, (2,))], ("y", TensorProto.BOOL, (2,)))
    build_model(model, threads=1)
    x = np.array([np.inf, -np.inf], np.float32)
    with pytest.raises(ModelError, match="output 0 differs"):
        build_model(model, {"x": x}, threads=1)
