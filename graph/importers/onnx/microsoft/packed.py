"""Products with weights of a few bits, several in a byte, and rows of such weights."""

from __future__ import annotations

import functools
import math
import operator as operators

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.operators.shapes import reshaped
from loopwright.graph.importers.onnx.values import Array, Value, define, shape_of

_FEW = 8
"""Rows of data up to which weights stay packed: so few products do not pay for reading whole
floats. With more rows, unpacking costs more than that."""


@operator(
    "com.microsoft:MatMulNBits",
    limit=f"weights must be known; for more than {_FEW} rows of data they are kept as floats, "
    "with open axes for more than one row of a sample, too",
)
def _matmul_n_bits(call: Call) -> Value:
    rows, columns = int(call.get("N")), int(call.get("K"))
    bits, size = int(call.get("bits", 4)), int(call.get("block_size"))
    if call.has(4):
        raise call.unsupported("its columns are sorted into groups (g_idx); export without")
    if 8 % bits:
        raise call.unsupported(f"its weights have {bits} bits; they may have 2, 4 or 8")
    blocks = -(-columns // size)
    scale = call.required(2).astype(np.float32).reshape(rows, blocks)
    zero = call.required(3, 1 << (bits - 1))
    if zero.dtype == np.uint8:
        zero = _unpacked(zero.reshape(rows, -1), bits)[:, :blocks]
    zero = np.broadcast_to(
        zero.astype(np.float32).reshape(-1, blocks if zero.size > 1 else 1), scale.shape
    )
    packed, shape = call.required(1).reshape(rows, -1), (*call.shape()[:-1], rows)
    few = math.prod(shape[:-1]) <= _FEW
    if call.open:  # sizes of few rows are a box, not those below a curve
        few = few and 1 in (len(shape) - 1, shape[-2])
    if few:
        flat = call.as_tensor(reshaped(call, call.value(0), (math.prod(shape[:-1]), columns)))
        made = reshaped(call, _few_rows(call, flat, packed, scale, zero, bits, size), shape)
    else:
        numbers = _unpacked(packed, bits).reshape(rows, blocks, size)
        real = (numbers - zero[..., None]) * scale[..., None]
        weights = real.reshape(rows, -1)[:, :columns].T.astype(call.dtype())
        made = product(call, call.value(0), np.ascontiguousarray(weights))
    return call.plus(made, 5)


def _few_rows(
    call: Call, x: Tensor, packed: Array, scale: Array, zero: Array, bits: int, size: int
) -> Tensor:
    """x[m, k] times (number[k, n] - zero[b, n]) × scale[b, n], for blocks b of so many k: sums
    within blocks, then over blocks with their scales."""
    (rows, columns), (out, blocks) = shape_of(x), scale.shape
    each = 8 // bits
    weights = call.as_tensor(np.ascontiguousarray(packed.T))
    scales = call.as_tensor(np.ascontiguousarray(scale.T))
    less = zero.reshape(-1)[:1] if (zero == zero[0, 0]).all() else np.ascontiguousarray(zero.T)
    m, b, n = Index("m", rows), Index("b", blocks), Index("n", out)
    q = Index("q", size // each)
    sums, y = Tensor("blocks"), Tensor("matmulnbits")
    parts: list[Expr] = []
    for place in range(each):
        k = b * size + q * each + place
        value = f.cast(x[m, k], "float32")
        if columns % size:
            value = f.where(k < columns, value, 0)
        number = f.unpack(weights[b * (size // each) + q, n], bits, place)
        parts.append(value * (f.cast(number, "float32") - call.read(less, (b, n))))
    sums[m, b, n] += functools.reduce(operators.add, parts)
    y[m, n] += sums[m, b, n] * scales[b, n]
    if x.dtype == "float32":
        return y
    return define("matmulnbits", (rows, out), lambda i, j: f.cast(y[i, j], x.dtype))


def _unpacked(packed: Array, bits: int) -> Array:
    """Numbers of a few bits, the lowest bits of each byte first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (packed[..., None] >> shifts & (1 << bits) - 1).reshape(*packed.shape[:-1], -1)


@operator(
    "com.microsoft:GatherBlockQuantized",
    limit="rows of a matrix that is known, quantized along its columns",
)
def _gather_block_quantized(call: Call) -> Value:
    """Rows of a table of a few bits, made real as they are read."""
    table, size = call.required(0), int(call.get("block_size", 128))
    axes = (int(call.get("gather_axis", 0)), int(call.get("quantize_axis", 1)))
    if table.ndim != 2 or axes[0] % 2 != 0 or axes[1] % 2 != 1:
        raise call.unsupported(f"its table is {table.shape}, its axes {axes}; they may be (0, 1)")
    scale = call.required(2)
    blocks = scale.shape[1]
    if table.dtype == np.uint8:
        bits = int(call.get("bits", 4))
        zero = call.required(3, np.uint8(1 << (bits - 1)))
        if call.has(3):
            zero = _unpacked(zero, bits)[:, :blocks]
    else:  # ONNX's own types of 4 bits
        bits, zero = 8, call.required(3, 0).astype(np.int8)
        table = table.astype(np.int8)
    each, rows = 8 // bits, call.value(1)
    kept, scales = call.as_tensor(table), call.as_tensor(scale)
    less = call.as_tensor(np.broadcast_to(zero.astype(np.float32), scale.shape).copy())

    def body(*i: Index) -> Expr:
        *at, k = i
        row = call.read(rows, tuple(at))
        parts = [kept[row, k // each]]
        if bits < 8:
            parts = [f.unpack(parts[0], bits, place) for place in range(each)]
        number = parts[-1]
        for place in range(each - 1):
            number = f.where(f.equal(k % each, place), parts[place], number)
        real = f.cast(number, "float32") - less[row, k // size]
        return f.cast(real * f.cast(scales[row, k // size], "float32"), scales.dtype)

    return define("gatherblock", (*shape_of(rows), table.shape[1] * each), body)
