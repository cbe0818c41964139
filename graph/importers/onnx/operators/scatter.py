"""Operators that write at places that elements name.

A table of places that are known tells each element which update is its own. The notation says what
each element is, and not where an update goes: where places are known at a call only, TVM's
functions write.
"""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import identity
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index
from loopwright.dsl.padding import pad
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, Rule, operator
from loopwright.graph.importers.onnx.foreign import of_operator
from loopwright.graph.importers.onnx.halves import in_float32
from loopwright.graph.importers.onnx.operators.gather import known_places
from loopwright.graph.importers.onnx.operators.shapes import reshaped
from loopwright.graph.importers.onnx.values import Array, Value, all_of, define, number, shape_of

LIMIT = (
    "at places that are known at a call only, TVM's function writes, in one thread; with open "
    "axes each element looks through all updates"
)
_MOST_ROUNDS = 4
"""Updates of one place beyond which a table for each round of them is too many."""
_JOIN: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda _, new: new,
    "add": operators.add,
    "mul": operators.mul,
    "max": f.max,
    "min": f.min,
}
_REDUCE: dict[str, Callable[[Expr], Expr]] = {
    "sum": f.sum,
    "prod": f.prod,
    "max": f.max,
    "min": f.min,
}
_MOST_TESTS = 1 << 26
"""Tests of elements and updates beyond which a function of TVM's writes."""
Axes = tuple[Index, ...]


def _sums_in_float32(rule: Rule) -> Rule:
    """The rule in float32 where it adds halves to each other, or multiplies them."""
    return lambda call: (in_float32(rule) if _how(call) in ("add", "mul") else rule)(call)


@operator("ScatterElements", "Scatter", limit=LIMIT)
@_sums_in_float32
def _scatter_elements(call: Call) -> Value:
    indices, axis, shape = call.value(1), call.axis(0), call.shape()
    own = shape_of(indices)
    if not math.prod(own):
        return call.value(0)
    if isinstance(indices, np.ndarray):
        grid: list[Array] = list(np.indices(own))
        grid[axis] = known_places(call, indices, shape[axis])
        made = _at_known_places(call, np.ravel_multi_index(tuple(grid), shape))
        if made is not None:
            return made
    elif _searches(call, own[axis]) and all(
        n == m for d, (n, m) in enumerate(zip(own, shape)) if d != axis
    ):
        updates = call.tensor(2)

        def hit(i: Axes, k: Index) -> Expr:
            return _names(indices[(*i[:axis], k, *i[axis + 1 :])], i[axis], shape[axis])

        return _searched(
            call, own[axis], hit, lambda i, k: updates[(*i[:axis], k, *i[axis + 1 :])]
        )
    return _along(call, call.value(0), indices, call.value(2), axis, _how(call))


@operator("ScatterND", limit=LIMIT)
@_sums_in_float32
def _scatter_nd(call: Call) -> Value:
    indices, shape = call.value(1), call.shape()
    (*outer, depth) = shape_of(indices)
    if depth > len(shape):
        raise call.unsupported(f"its indices name {depth} axes, of a tensor with {len(shape)}")
    call.check_shape(2, *outer, *shape[depth:])
    places, inner = shape[:depth], math.prod(shape[depth:])
    if not math.prod(outer) or not math.prod(shape):
        return call.value(0)
    if isinstance(indices, np.ndarray):
        parts = [known_places(call, indices[..., d], n) for d, n in enumerate(places)]
        rows = np.ravel_multi_index(tuple(parts), places) if depth else np.zeros(outer, np.int64)
        made = _at_known_places(call, rows.reshape(-1, 1) * inner + np.arange(inner))
        if made is not None:
            return made
    elif len(outer) == 1 and _searches(call, outer[0]):
        updates = call.tensor(2)

        def hit(i: Axes, k: Index) -> Expr:
            return all_of([_names(indices[k, d], i[d], n) for d, n in enumerate(places)])

        return _searched(call, outer[0], hit, lambda i, k: updates[(k, *i[depth:])])
    inputs = [call.value(n) for n in range(3)]
    part = of_operator(call, "ScatterND", inputs, _VERSION, reduction=_how(call))
    (made,) = call.step(part)
    return made


@operator("TensorScatter", limit=LIMIT)
def _tensor_scatter(call: Call) -> Value:
    past, update, axis = call.value(0), call.value(1), call.axis(-2)
    extent, shape = shape_of(past)[axis], shape_of(update)
    starts: Value = call.value(2) if call.has(2) else np.zeros(shape[:1], np.int64)
    circular = call.get("mode", "linear") == "circular"

    def place(*i: Index) -> Expr:
        at = f.cast(call.read(starts, (i[0],)), "int64") + f.cast(as_expr(i[axis]), "int64")
        return at % extent if circular else at

    return _along(call, past, define("places", shape, place), update, axis)


@operator("MaxUnpool", limit=LIMIT)
def _max_unpool(call: Call) -> Value:
    x, (batch, channels, *old) = call.tensor(0), call.shape()
    kernel = [int(k) for k in call.get("kernel_shape")]
    rank = len(kernel)
    stride, pads = call.numbers("strides", rank, 1), call.numbers("pads", 2 * rank)
    whole = [
        (n - 1) * s - pads[d] - pads[rank + d] + kernel[d]
        for d, (n, s) in enumerate(zip(old, stride))
    ]
    flat, places = (reshaped(call, call.value(n), (math.prod(call.shape()),)) for n in (0, 1))
    count = batch * channels * math.prod(whole)
    zeros = define("zeros", (count,), lambda *_: number(0, x.dtype))
    spread = reshaped(call, _along(call, zeros, places, flat, 0), (batch, channels, *whole))
    new = (call.ints(2) or [])[2:] if call.has(2) else whole
    widths = [(0, 0), (0, 0), *((0, m - n) for n, m in zip(whole, new))]
    return pad(call.as_tensor(spread), widths)


_VERSION = 18
"""The version of ONNX's operators that has all reductions of scatters."""


def _along(
    call: Call, data: Value, indices: Value, updates: Value, axis: int, how: str = "none"
) -> Value:
    """Updates written along an axis, by TVM's function."""
    inputs = (data, indices, updates)
    part = of_operator(call, "ScatterElements", inputs, _VERSION, axis=axis, reduction=how)
    (made,) = call.step(part)
    return made


def _how(call: Call) -> str:
    return str(call.get("reduction", "none"))


def _searches(call: Call, count: int) -> bool:
    """Return whether each element may look through so many updates, which has one form at all open
    sizes."""
    return call.open and count * math.prod(call.shape()) <= _MOST_TESTS


def _names(place: Expr, index: Index, extent: int) -> Expr:
    """Return whether an element that counts from either end of an axis names a place there."""
    at = f.cast(as_expr(index), place.dtype)
    return f.equal(f.where(place < 0, place + extent, place), at)


def _searched(
    call: Call, count: int, hit: Callable[[Axes, Index], Expr], new: Callable[[Axes, Any], Expr]
) -> Tensor:
    """The data of a call, each element joined with those of `count` updates that hit it, or
    replaced by the last of these."""
    data, how, shape = call.tensor(0), _how(call), call.shape()
    reducer = {"add": "sum", "mul": "prod", "none": "max"}.get(how, how)
    dtype = "int32" if how == "none" else data.dtype

    def joined(*i: Index) -> Expr:
        k = Index("update", count)
        own = as_expr(k) if how == "none" else new(i, k)
        nothing = number(identity(reducer, dtype), dtype)
        return _REDUCE[reducer](f.where(hit(i, k), own, nothing))

    total = define("updates", shape, joined)

    def body(*i: Index) -> Expr:
        if how == "none":
            return f.where(total[i] >= 0, new(i, f.max(total[i], 0)), data[i])
        return _JOIN[how](data[i], total[i])

    return define("scatter", shape, body)


def _at_known_places(call: Call, places: Array) -> Tensor | None:
    """The data of a call with its updates at flat places; None where a place has too many."""
    data, how, shape, flat = call.tensor(0), _how(call), call.shape(), places.reshape(-1)
    rounds = [np.arange(len(flat))] if how == "none" else _rounds(flat)
    if len(rounds) > _MOST_ROUNDS:
        return None
    updates = call.as_tensor(reshaped(call, call.value(2), (len(flat),)))
    for chosen in rounds:
        source = np.full(math.prod(shape), -1, np.int32)
        source[flat[chosen]] = chosen
        table = call.as_tensor(source.reshape(shape))
        before = data

        def body(*i: Index, table: Tensor = table, before: Tensor = before) -> Expr:
            new = updates[f.max(table[i], 0)]
            return f.where(table[i] >= 0, _JOIN[how](before[i], new), before[i])

        data = define("scatter", shape, body)
    return data


def _rounds(places: Array) -> Sequence[Array]:
    """The numbers of updates, in rounds in which no place stands twice."""
    left = np.arange(len(places))
    rounds: list[Array] = []
    while len(left) and len(rounds) <= _MOST_ROUNDS:
        _, first = np.unique(places[left], return_index=True)
        rounds.append(left[first])
        left = np.delete(left, first)
    return rounds
