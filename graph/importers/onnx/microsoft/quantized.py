"""Operators of com.microsoft on quantized numbers: they are made real, computed, and rounded to
steps of a scale again."""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import OPERATORS, Call, operator
from loopwright.graph.importers.onnx.operators.linear import product, requantized, without_zero
from loopwright.graph.importers.onnx.operators.quantization import rounded
from loopwright.graph.importers.onnx.operators.recurrent import recurrence
from loopwright.graph.importers.onnx.operators.reduction import along
from loopwright.graph.importers.onnx.operators.shapes import joined, transposed
from loopwright.graph.importers.onnx.values import Value, define, shape_of

for _name in ("QuantizeLinear", "DequantizeLinear"):
    operator(f"com.microsoft:{_name}")(OPERATORS[_name])


def _real(call: Call, place: int, axis: int | None = None) -> Tensor:
    """A quantized input as float32, its scale and zero point being the next two."""
    x = without_zero(call, call.value(place), call.optional(place + 2), axis)
    scale = call.value(place + 1)
    if shape_of(scale) in ((), (1,)):
        return define("real", shape_of(x), lambda *i: f.cast(x[i], "float32") * call.single(scale))
    own = call.as_tensor(scale)
    return define(
        "real",
        shape_of(x),
        lambda *i: f.cast(x[i], "float32") * own[i[-1 if axis is None else axis]],
    )


def _rounded(call: Call, x: Value, scale: int) -> Value:
    """Real numbers rounded to steps of a scale, whose zero point is the next input."""
    inputs = [*call.inputs, None][: scale + 2]
    if inputs[scale + 1] is None:
        inputs[scale + 1] = np.zeros((), call.dtype(0))
    return requantized(replace(call, inputs=tuple(inputs)), call.as_tensor(x), scale, scale + 1)


@operator("com.microsoft:QLinearAdd", "com.microsoft:QLinearMul")
def _of_two(call: Call) -> Value:
    join = operators.add if call.op == "QLinearAdd" else operators.mul
    return _rounded(call, call.broadcast([_real(call, 0), _real(call, 3)], join), 6)


@operator("com.microsoft:QLinearSigmoid", "com.microsoft:QLinearLeakyRelu")
def _of_one(call: Call) -> Value:
    slope = float(call.get("alpha", 0.01))
    function: Callable[[Expr], Expr] = f.sigmoid
    if call.op == "QLinearLeakyRelu":
        function = lambda x: f.where(x >= 0, x, x * slope)  # noqa: E731
    return _rounded(call, call.broadcast([_real(call, 0)], function), 3)


@operator("com.microsoft:QLinearSoftmax", "com.microsoft:QLinearAveragePool")
def _of_windows(call: Call) -> Value:
    op = call.op.removeprefix("QLinear")
    if call.get("channels_last", 0):
        raise call.unsupported("its channels stand last")
    version = int(call.get("opset", 13))  # whose Softmax it was
    (made,) = call.by(op, op=op, inputs=(_real(call, 0),), version=version)
    return _rounded(call, made, 3)


@operator("com.microsoft:QLinearWhere")
def _where(call: Call) -> Value:
    sides = [call.value(0), _real(call, 1), _real(call, 4)]
    return _rounded(replace(call, inputs=call.inputs[1:]), call.broadcast(sides, f.where), 6)


@operator("com.microsoft:QLinearGlobalAveragePool")
def _global_pool(call: Call) -> Value:
    x, rank = _real(call, 0), len(call.shape())
    axes = range(1, rank - 1) if call.get("channels_last", 0) else range(2, rank)
    share = 1 / math.prod(call.shape()[a] for a in axes)
    total = along(x, axes, "sum")
    return _rounded(call, call.broadcast([total], lambda e: e * share), 3)


@operator("com.microsoft:QLinearConcat")
def _concat(call: Call) -> Value:
    parts: list[Value] = [_real(call, n) for n in range(2, len(call.inputs), 3)]
    axis = call.checked_axis(int(call.get("axis")), len(shape_of(parts[0])))
    return _rounded(call, joined(call, parts, axis), 0)


@operator("com.microsoft:QGemm")
def _gemm(call: Call) -> Value:
    a, b = without_zero(call, call.value(0), call.value(2)), call.value(3)
    columns = 0 if call.get("transB", 0) else 1
    b = without_zero(call, b, call.value(5), columns)
    sides = [
        transposed(side, (1, 0)) if call.get(name, 0) else side
        for side, name in ((a, "transA"), (b, "transB"))
    ]
    values = [call.plus(product(call, *sides), 6), call.value(1), call.value(4)]
    alpha = float(call.get("alpha", 1.0))
    made = call.broadcast(values, lambda x, s, t: f.cast(x, "float32") * s * t * alpha)
    return _rounded(call, made, 7) if call.has(7) else made


def _made_real(call: Call) -> Value:
    """A product of integers, times two scales, with a bias."""
    a = without_zero(call, call.value(0), call.optional(4), len(call.shape(0)) - 2)
    b = without_zero(call, call.value(1), call.optional(5), len(call.shape(1)) - 1)
    values: list[Value] = [product(call, a, b), call.value(2), call.value(3)]
    made = call.broadcast(values, lambda x, s, t: f.cast(x, "float32") * s * t)
    return call.plus(made, 6)


operator("com.microsoft:MatMulIntegerToFloat")(_made_real)


@operator("com.microsoft:DynamicQuantizeMatMul")
def _dynamic_matmul(call: Call) -> Value:
    x, scale, zero = call.by("DynamicQuantizeLinear")
    weights, step, own, bias = map(call.optional, range(1, 5))
    inputs = (x, weights, scale, step, zero, own, bias)
    return _made_real(replace(call, inputs=inputs))


@operator("com.microsoft:DynamicQuantizeLSTM")
def _lstm(call: Call) -> Value | Sequence[Value]:
    """An LSTM whose weights are quantized. Its data are rounded to 256 steps, and the states of a
    batch anew before each iteration. Products of the numbers that are left are floats."""
    weights = []
    for place, scale in ((1, 8), (2, 10)):
        kept, steps = call.known(place), call.known(scale)
        zero = call.known(scale + 1, np.zeros_like(steps, np.int32))
        assert kept is not None
        assert steps is not None
        assert zero is not None
        ways = (steps.shape[0], 1, -1)  # one of each direction, or of each of its columns
        real = (kept.astype(np.int32) - zero.astype(np.int32).reshape(ways)) * steps.reshape(ways)
        weights.append(real.astype(np.float32).swapaxes(1, 2))
    inputs = (call.value(0), *weights, *call.inputs[3:8])
    return recurrence(replace(call, op="LSTM", inputs=inputs), rounded)
