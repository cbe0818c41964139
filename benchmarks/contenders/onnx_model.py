"""Rows as ONNX models: constants are initializers, other inputs are inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from peers import UnableError
from suites.row import Arrays, Row

from contenders.contract import filled, strides_and_pads

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as missing:
    raise UnableError("onnx is not installed") from missing

_OPSET = 17


def model(row: Row, inputs: Arrays) -> Any:
    """One operator, or the few that ONNX has for it; its result is called "out"."""
    constants = {t.name for t in row.request.workload.constants}
    nodes, more = _nodes(row, inputs)
    weights = {n: a for n, a in inputs.items() if n in constants} | more
    graph = helper.make_graph(
        nodes,
        "row",
        [
            helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape)
            for n, a in inputs.items()
            if n not in constants
        ],
        [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, shape(row))],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    made.ir_version = 8  # that of the opset
    onnx.checker.check_model(made)
    return made


def shape(row: Row) -> tuple[int, ...]:
    """Of the result."""
    return row.request.workload.outputs[0].shape


def feeds(row: Row, inputs: Arrays) -> Arrays:
    """What is not constant."""
    constants = {t.name for t in row.request.workload.constants}
    return {n: a for n, a in inputs.items() if n not in constants}


def _nodes(row: Row, inputs: Arrays) -> tuple[list[Any], Arrays]:
    """The nodes, and constants that they need beside those of the row."""
    a = filled(row, {name: name for name in inputs})  # names in place of values
    node = helper.make_node
    match row.operator:
        case "conv2d" | "depthwise_conv2d" | "conv2d_transpose":
            op = "ConvTranspose" if row.operator == "conv2d_transpose" else "Conv"
            channels = inputs[a["x"]].shape[1]
            groups = channels if row.operator == "depthwise_conv2d" else a.get("groups", 1)
            window = list(inputs[a["w"]].shape[2:])
            return [node(op, [a["x"], a["w"]], ["out"], group=groups, **_window(a, window))], {}
        case "max_pool2d" | "avg_pool2d":
            op = "MaxPool" if row.operator == "max_pool2d" else "AveragePool"
            padded = {} if op == "MaxPool" else {"count_include_pad": 1}
            return [node(op, [a["x"]], ["out"], **_window(a, [a["window"]] * 2), **padded)], {}
        case "global_avg_pool2d":
            return [node("ReduceMean", [a["x"]], ["out"], axes=[2, 3], keepdims=0)], {}
        case "dense":
            return [node("Gemm", [a["x"], a["w"]], ["out"], transB=1)], {}
        case "matmul":
            return [node("MatMul", [a["a"], a["b"]], ["out"])], {}
        case "batch_matmul":
            return _product(a["a"], a["b"], bool(a.get("transpose_b")), "out"), {}
        case "einsum":
            operands = [v for n, v in a.items() if n != "spec"]
            return [node("Einsum", operands, ["out"], equation=a["spec"])], {}
        case "softmax":
            return [node("Softmax", [a["x"]], ["out"], axis=-1)], {}
        case "layer_norm":
            operands = [a["x"], a["scale"], a["shift"]]
            return [node("LayerNormalization", operands, ["out"], axis=-1, epsilon=1e-5)], {}
        case "attention":
            factor = np.array(inputs[a["q"]].shape[-1] ** -0.5, np.float32)
            return [
                *_product(a["q"], a["k"], True, "scores"),
                node("Mul", ["scores", "factor"], ["scaled"]),
                node("Softmax", ["scaled"], ["weights"], axis=-1),
                node("MatMul", ["weights", a["v"]], ["out"]),
            ], {"factor": factor}
    raise UnableError(f"no ONNX model of {row.operator}")


def _window(a: Mapping[str, Any], window: list[int]) -> dict[str, list[int]]:
    stride, pad = strides_and_pads(a)
    return {"kernel_shape": window, "strides": [stride] * 2, "pads": [pad] * 4}


def _product(one: str, other: str, transposed: bool, out: str) -> list[Any]:
    if not transposed:
        return [helper.make_node("MatMul", [one, other], [out])]
    turned = helper.make_node("Transpose", [other], [f"{other}_T"], perm=[0, 2, 1])
    return [turned, helper.make_node("MatMul", [one, f"{other}_T"], [out])]
