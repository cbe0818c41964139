"""Numbers rounded to steps of a scale, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import limits
from loopwright.dsl.expr import Expr
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.operators.reduction import along
from loopwright.graph.importers.onnx.values import Value, define, dtype_of, number, shape_of


@operator("QuantizeLinear")
def _quantize(call: Call) -> Value:
    if call.has(2):
        dtype = call.dtype(2)
    else:
        kind = call.get("output_dtype", 0)
        dtype = dtype_of(kind) if kind else "uint8"
    return quantized(call, call.value(0), dtype)


def quantized(call: Call, x: Value, dtype: str) -> Value:
    """`clip(round(x / scale) + zero)`, scale and zero being the inputs 1 and 2."""
    low, high = limits(dtype)
    scale = _along(call, call.value(1), shape_of(x))
    zero = _along(call, call.value(2), shape_of(x)) if call.has(2) else np.zeros((), dtype)

    def body(a: Expr, s: Expr, z: Expr) -> Expr:
        a, s = f.cast(a, "float32"), f.cast(s, "float32")
        return within(f.round(a / s) + f.cast(z, "float32"), low, high)

    return call.broadcast([x, scale, zero], body, dtype)


@operator("DequantizeLinear")
def _dequantize(call: Call) -> Value:
    call = replace(call, inputs=tuple(_in_bytes(x) for x in call.inputs))
    x, dtype = call.value(0), call.dtype(1)
    scale = _along(call, call.value(1), shape_of(x))
    if not call.has(2):
        return call.broadcast([x, scale], lambda a, s: f.cast(a, dtype) * s)
    zero = _along(call, call.value(2), shape_of(x))

    def body(a: Expr, s: Expr, z: Expr) -> Expr:
        return f.cast(f.cast(a, "int32") - f.cast(z, "int32"), dtype) * s

    return call.broadcast([x, scale, zero], body)


def _in_bytes(x: Value | None) -> Value | None:
    """Known numbers of 2 or 4 bits in bytes."""
    if isinstance(x, np.ndarray) and str(x.dtype) in ("int2", "uint2", "int4", "uint4"):
        return x.astype(np.uint8 if str(x.dtype).startswith("u") else np.int8)
    return x


def _along(call: Call, value: Value, shape: tuple[int, ...]) -> Value:
    """A scale of each element of an axis, or of blocks of it, as it broadcasts to a shape."""
    own = shape_of(value)
    if own in ((), (1,)):
        return value
    axis = call.checked_axis(int(call.get("axis", 1)), len(shape))
    block = int(call.get("block_size", 0))
    if len(own) == 1 and not block:
        full = tuple(n if d == axis else 1 for d, n in enumerate(shape))
        return call.define(full, lambda *i: call.as_tensor(value)[i[axis]], "scale")
    block = block or -(-shape[axis] // own[axis])
    return call.define(
        shape,
        lambda *i: call.as_tensor(value)[
            tuple(x // block if d == axis else x for d, x in enumerate(i))
        ],
        "scale",
    )


@operator("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> list[Value]:
    x = call.tensor(0)
    scale, zero = _range(x)
    steps = define("steps", call.shape(), lambda *i: f.cast(_steps(x[i], scale, zero), "uint8"))
    return [steps, scale, define("zero", (), lambda: f.cast(zero[()], "uint8"))]


def rounded(x: Tensor) -> Tensor:
    """The real numbers that 256 steps leave of `x`: `DynamicQuantizeLinear`, and back."""
    scale, zero = _range(x)
    return define(
        "rounded", shape_of(x), lambda *i: (_steps(x[i], scale, zero) - zero[()]) * scale[()]
    )


def _range(x: Tensor) -> tuple[Tensor, Tensor]:
    """The scale of 256 steps from the least to the greatest element and 0, and the step of 0."""
    highest, lowest = (
        along(x, range(len(x.shape or ())), op, keep=False) for op in ("max", "min")
    )

    def width() -> Expr:
        return f.max(highest[()], 0) - f.min(lowest[()], 0)

    # Zeros alone have the scale 1, as in onnxruntime. It divides: a product rounds otherwise.
    scale = define("scale", (), lambda: f.where(f.equal(width(), 0), 1, width() / 255))

    def start() -> Expr:
        return within(f.round((number(0, "float32") - f.min(lowest[()], 0)) / scale[()]), 0, 255)

    return scale, define("start", (), start)


def _steps(x: Expr, scale: Tensor, zero: Tensor) -> Expr:
    return within(f.round(x / scale[()]) + zero[()], 0, 255)
