"""Norms over batches, layers, instances and groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import sum_type
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.padding import pad
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.halves import in_float32
from loopwright.graph.importers.onnx.operators.reduction import along
from loopwright.graph.importers.onnx.operators.shapes import reshaped
from loopwright.graph.importers.onnx.values import Array, Value, define, shape_of


@operator("BatchNormalization")
def _batch_norm(call: Call) -> Value | Sequence[Value]:
    for n in range(1, 5):
        call.check_shape(n, call.shape()[1])
    if call.get("training_mode", 0):
        return _in_training(call)
    epsilon, x = call.get("epsilon", 1e-5), call.value(0)
    parts = [call.value(n) for n in range(1, 5)]
    if all(isinstance(p, np.ndarray) for p in parts):
        scale, shift, mean, variance = (np.asarray(p, np.float64) for p in parts)
        factor = scale / np.sqrt(variance + epsilon)
        return scaled(call, x, factor, shift - mean * factor, 1)
    axes, wide = [call.as_tensor(p) for p in parts], sum_type(call.dtype())

    def body(*i: Index) -> Expr:
        scale, shift, mean, variance = (f.cast(p[i[1]], wide) for p in axes)
        y = (f.cast(call.read(x, i), wide) - mean) * (scale / f.sqrt(variance + epsilon))
        return f.cast(y + shift, call.dtype())

    return call.define(call.shape(), body)


@in_float32
def _in_training(call: Call) -> list[Value]:
    """A batch norm by the statistics of its batch, and the running ones after it."""
    x, shape, epsilon = call.tensor(0), call.shape(), call.get("epsilon", 1e-5)
    momentum = call.get("momentum", 0.9)
    axes = [d for d in range(len(shape)) if d != 1]
    mean, variance = moments(x, axes)

    def body(*i: Index) -> Any:
        at = tuple(i[1] if d == 1 else 0 for d in range(len(shape)))
        by = call.read(call.value(1), (i[1],)) / f.sqrt(variance[at] + epsilon)
        return (x[i] - mean[at]) * by + call.read(call.value(2), (i[1],))

    def running(old: Value, new: Tensor) -> Tensor:
        def mixed(c: Index) -> Any:
            at = tuple(c if d == 1 else 0 for d in range(len(shape)))
            return call.read(old, (c,)) * momentum + new[at] * (1 - momentum)

        return define("running", (shape[1],), mixed)

    results: list[Value] = [define("batchnormalization", shape, body)]
    results += [running(call.value(3), mean), running(call.value(4), variance)]
    return results[: len(call.outputs)]


def scaled(call: Call, x: Value, factor: Array, summand: Array, axis: int) -> Value:
    """`x * factor + summand`, an element of each for every index of an axis: in the weights of
    what computes x, where these are known and nothing else reads it."""
    if isinstance(x, Tensor) and x in call.scaled and call.uses.get(call.names[0], 2) == 1:
        rank = len(x.shape or ())
        if axis == (1 if rank > 2 else rank - 1):
            return call.scaled[x](factor, summand)
    dtype = str(x.dtype)
    wide = sum_type(dtype)
    by, more = (call.as_tensor(a.astype(wide)) for a in (factor, summand))

    def body(*i: Index) -> Expr:
        return f.cast(f.cast(call.read(x, i), wide) * by[i[axis]] + more[i[axis]], dtype)

    return call.define(shape_of(x), body)


def moments(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The mean and the variance along axes, which keep extent 1."""
    shape = shape_of(x)
    share = 1 / math.prod(shape[a] for a in axes)
    total = along(x, axes, "sum", name="total")
    mean = define("mean", shape_of(total), lambda *i: total[i] * share)
    squares = define(
        "squares", shape, lambda *i: (x[i] - mean[_at(i, axes)]) * (x[i] - mean[_at(i, axes)])
    )
    sums = along(squares, axes, "sum", name="sums")
    return mean, define("variance", shape_of(sums), lambda *i: sums[i] * share)


def _at(i: Sequence[Index], axes: Sequence[int]) -> tuple[Any, ...]:
    return tuple(0 if d in axes else k for d, k in enumerate(i))


def normalized(
    x: Tensor,
    axes: Sequence[int],
    epsilon: float,
    after: Callable[[Expr, tuple[Index, ...]], Expr],
    name: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """`after((x - mean) / sqrt(variance + epsilon))` along axes, the mean, and the factor.

    Halves are in float32 until the result: what is added may be nearly all of it.
    """
    dtype = x.dtype
    wide = (
        x
        if dtype not in ("float16", "bfloat16")
        else define("wide", shape_of(x), lambda *i: f.cast(x[i], "float32"))
    )
    mean, variance = moments(wide, axes)
    by = define("by", shape_of(variance), lambda *i: f.rsqrt(variance[i] + epsilon))

    def body(*i: Index) -> Expr:
        at = _at(i, axes)
        return f.cast(after((wide[i] - mean[at]) * by[at], i), dtype)

    return define(name, shape_of(x), body), mean, by


@operator("LayerNormalization", "com.microsoft:LayerNormalization")
def _layer_norm(call: Call) -> Sequence[Value]:
    x, axis = call.tensor(0), call.axis(-1)
    return _layer(call, x, axis, call.value(1), call.optional(2))


def _layer(call: Call, x: Tensor, axis: int, scale: Value, shift: Value | None) -> Sequence[Value]:
    shape, epsilon = shape_of(x), float(call.get("epsilon", 1e-5))
    axes = list(range(axis, len(shape)))

    def after(y: Expr, i: tuple[Index, ...]) -> Expr:
        y = y * f.cast(call.read(scale, i), y.dtype)
        return y if shift is None else y + f.cast(call.read(shift, i), y.dtype)

    made, mean, by = normalized(x, axes, epsilon, after, "layernormalization")
    return [made, mean, by][: len(call.outputs)]


@operator("com.microsoft:SkipLayerNormalization")
@in_float32
def _skip_layer_norm(call: Call) -> Sequence[Value]:
    values = [call.value(n) for n in (0, 1, 4) if call.has(n)]
    x = call.broadcast(values, lambda *v: sum(v[1:], v[0]))
    axis = len(shape_of(x)) - 1
    made = _layer(call, x, axis, call.value(2), call.optional(3))[:1]
    return [*made, *made, *made, x][: len(call.outputs)]


@operator(
    "RMSNormalization",
    "com.microsoft:SimplifiedLayerNormalization",
    "SimplifiedLayerNormalization",
)
def _rms_norm(call: Call) -> Value:
    x, axis = call.tensor(0), call.axis(-1)
    shape, epsilon = shape_of(x), float(call.get("epsilon", 1e-5))
    axes = list(range(axis, len(shape)))
    share = 1 / math.prod(shape[axis:])
    dtype = x.dtype
    sums = along(x, axes, "sum", of=lambda e: f.cast(e, "float32") * f.cast(e, "float32"))

    def body(*i: Index) -> Expr:
        by = f.rsqrt(sums[_at(i, axes)] * share + epsilon)
        return f.cast(f.cast(x[i], "float32") * by, dtype) * call.read(call.value(1), i)

    return define("rmsnormalization", shape, body)


@operator("InstanceNormalization")
def _instance_norm(call: Call) -> Value:
    x = call.tensor(0)
    axes = list(range(2, len(shape_of(x))))
    epsilon = call.get("epsilon", 1e-5)

    def after(y: Expr, i: tuple[Index, ...]) -> Expr:
        scale, shift = (f.cast(call.read(call.value(n), (i[1],)), y.dtype) for n in (1, 2))
        return y * scale + shift

    return normalized(x, axes, epsilon, after, "instancenormalization")[0]


@operator("GroupNormalization")
def _group_norm(call: Call) -> Value:
    x, shape, groups = call.tensor(0), call.shape(), int(call.get("num_groups"))
    each = shape[1] // groups
    parted = (shape[0], groups, each, *shape[2:])
    own = call.as_tensor(reshaped(call, x, parted))
    axes = list(range(2, len(parted)))
    by_group = call.version < 21

    def after(y: Expr, i: tuple[Index, ...]) -> Any:
        at = (
            (i[1],) if by_group and shape_of(call.value(1)) == (groups,) else (i[1] * each + i[2],)
        )
        scale, shift = (f.cast(call.as_tensor(call.value(n))[at], y.dtype) for n in (1, 2))
        return y * scale + shift

    made = normalized(own, axes, call.get("epsilon", 1e-5), after, "groupnormalization")[0]
    return reshaped(call, made, shape)


@operator("LRN")
@in_float32
def _lrn(call: Call) -> Value:
    x, shape, size = call.tensor(0), call.shape(), int(call.get("size"))
    alpha, beta, bias = call.get("alpha", 1e-4), call.get("beta", 0.75), call.get("bias", 1.0)
    before, after = (size - 1) // 2, size // 2
    widths = [(before, after) if d == 1 else (0, 0) for d in range(len(shape))]
    wide = pad(x, widths)
    k = Index("k", size)

    def squares(n: Index, c: Index, *y: Index) -> Expr:
        return f.sum(wide[(n, c + k, *y)] * wide[(n, c + k, *y)])

    total = define("squares", shape, squares)

    def body(*i: Index) -> Any:
        base = total[i] * (alpha / size) + bias
        if beta == 0.75:
            return x[i] / (f.sqrt(base) * f.sqrt(f.sqrt(base)))
        return x[i] / f.pow(base, float(beta))

    return define("lrn", shape, body)
