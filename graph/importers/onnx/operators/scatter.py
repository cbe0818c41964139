"""Operators that write at places that elements name.

A scatter says where each update goes; the notation says what each element is. So each element
looks for the updates that are its own: it compares its place with theirs.
"""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float, limits
from loopwright.dsl.expr import Const, Expr, as_expr
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.tensor import Tensor, pad
from loopwright.graph.importers.onnx.call import (
    Array,
    Call,
    Value,
    define,
    gathered,
    number,
    operator,
    shape_of,
)
from loopwright.graph.importers.onnx.operators.shapes import reshaped

MOST_COMPARISONS = 1 << 28
"""Comparisons beyond which a scatter is left to a program that writes: tenths of a second."""
SEARCH = (
    "each element is compared with all updates, or those along its axis; beyond 2^28 comparisons "
    "TVM's function computes it"
)
_MOST_ROUNDS = 4
"""Updates of one place up to which known places need no search."""
_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda _, new: new,
    "add": operators.add,
    "mul": operators.mul,
    "max": f.max,
    "min": f.min,
}
_REDUCE = {"add": f.sum, "mul": f.prod, "max": f.max, "min": f.min}


@dataclass(frozen=True)
class _Search:
    """Updates and the elements that look for theirs.

    Attributes
    ----------
    update: the index of updates that an element compares itself with.
    hit: whether an update is that of an element.
    at: reads the update of a number for an element.
    places: the extents of what looks for the same updates: leading axes of the result.
    """

    update: Index
    hit: Callable[[Sequence[Index]], Expr]
    at: Callable[[Any, Sequence[Index]], Expr]
    places: tuple[int, ...]

    def into(self, call: Call, data: Tensor, how: str) -> Tensor:
        """The data with the updates in it, joined by a reduction."""
        shape = data.shape or ()
        searched = self.places if how == "none" else shape
        if (work := math.prod(searched) * (self.update.extent or 0)) > MOST_COMPARISONS:
            raise call.left_to_tvm(f"it would compare places {work} times")
        if how == "none":
            found = define(
                "found",
                self.places,
                lambda *i: f.max(f.where(self.hit(i), self.update, -1)),
            )

            def last(*i: Index) -> Expr:
                own = found[i[: len(self.places)]]
                return f.where(own >= 0, self.at(f.max(own, 0), i), data[i])

            return define("scatter", shape, last)
        none = _identity(how, data.dtype)
        made = define(
            "updates",
            shape,
            lambda *i: _REDUCE[how](f.where(self.hit(i), self.at(self.update, i), none)),
        )
        return define("scatter", shape, lambda *i: _JOIN[how](data[i], made[i]))


def _identity(how: str, dtype: str) -> Const:
    """What changes nothing."""
    if how in ("add", "mul"):
        return number(int(how == "mul"), dtype)
    if is_float(dtype):
        return number(-math.inf if how == "max" else math.inf, dtype)
    return number(limits(dtype)[how == "min"], dtype)


@operator("ScatterElements", "Scatter", limit=SEARCH)
def _scatter_elements(call: Call) -> Value:
    data, indices, axis, shape = call.tensor(0), call.value(1), call.axis(0), call.shape()
    how, own = _how(call), shape_of(indices)
    if not math.prod(own):
        return call.value(0)
    if isinstance(indices, np.ndarray):
        grid: list[Array] = list(np.indices(own))
        grid[axis] = _checked(call, indices, shape[axis])
        made = _at_known_places(call, data, np.ravel_multi_index(tuple(grid), shape), how)
        if made is not None:
            return made
    table, updates = call.tensor(1), call.tensor(2)
    update = Index("m", own[axis])

    def along(i: Sequence[Index], m: Any) -> list[Any]:
        return [m if d == axis else k for d, k in enumerate(i)]

    def hit(i: Sequence[Index]) -> Expr:
        place = _from_front(table[tuple(along(i, update))], shape[axis])
        found = f.equal(place, f.cast(as_expr(i[axis]), place.dtype))
        for d, n in enumerate(own):
            if d != axis and n < shape[d]:
                found = f.where(i[d] < n, found, False)
        return found

    def read(m: Any, i: Sequence[Index]) -> Expr:
        return gathered(updates, *along(i, m))

    return _Search(update, hit, read, shape).into(call, data, how)


@operator("ScatterND", limit=SEARCH)
def _scatter_nd(call: Call) -> Value:
    data, indices, shape = call.tensor(0), call.value(1), call.shape()
    (*outer, depth), how = shape_of(indices), _how(call)
    count, places, inner = math.prod(outer), shape[:depth], shape[depth:]
    if not count or not math.prod(shape):
        return call.value(0)
    if isinstance(indices, np.ndarray):
        parts = [_checked(call, indices[..., d], n) for d, n in enumerate(places)]
        rows = np.ravel_multi_index(tuple(parts), places) if depth else np.zeros(outer, np.int64)
        flat = rows.reshape(-1, 1) * math.prod(inner) + np.arange(math.prod(inner))
        made = _at_known_places(call, data, flat, how)
        if made is not None:
            return made
    table = call.as_tensor(reshaped(call, indices, (count, depth)))
    updates = call.as_tensor(reshaped(call, call.value(2), (count, *inner)))

    def flat_row(m: Index) -> Expr:
        row, inside = as_expr(0), as_expr(True)
        for d, n in enumerate(places):
            part = f.cast(_from_front(table[m, d], n), "int32")
            inside = inside & (part >= 0) & (part < n)
            row = row * n + part
        return f.where(inside, row, -1)

    rows_of = define("row", (count,), flat_row)
    update = Index("m", count)

    def hit(i: Sequence[Index]) -> Expr:
        here = as_affine(0)
        for k, n in zip(i, places):
            here = here * n + k
        return f.equal(rows_of[update], as_expr(here))

    def read(m: Any, i: Sequence[Index]) -> Expr:
        return gathered(updates, m, *i[depth:])

    return _Search(update, hit, read, tuple(places)).into(call, data, how)


@operator("TensorScatter")
def _tensor_scatter(call: Call) -> Value:
    past, update = call.tensor(0), call.tensor(1)
    axis, shape = call.axis(-2), call.shape()
    extent, count = shape[axis], call.shape(1)[axis]
    starts: Value = call.value(2) if call.has(2) else np.zeros(shape[0], np.int64)
    circular = call.get("mode", "linear") == "circular"

    def body(*i: Index) -> Expr:
        start = f.cast(call.read(starts, (i[0],)), "int32")
        here = as_expr(i[axis]) - start
        here = here % extent if circular else here
        new = gathered(update, *(f.max(here, 0) if d == axis else k for d, k in enumerate(i)))
        return f.where((here >= 0) & (here < count), new, past[i])

    return define("tensorscatter", shape, body)


@operator("MaxUnpool", limit=SEARCH)
def _max_unpool(call: Call) -> Value:
    x, indices, (batch, channels, *old) = call.tensor(0), call.tensor(1), call.shape()
    kernel = [int(k) for k in call.get("kernel_shape")]
    rank = len(kernel)
    stride = [int(s) for s in call.get("strides") or [1] * rank]
    pads = [int(p) for p in call.get("pads") or [0] * 2 * rank]
    whole = [
        (n - 1) * s - pads[d] - pads[rank + d] + kernel[d]
        for d, (n, s) in enumerate(zip(old, stride))
    ]
    count, places = math.prod(call.shape()), batch * channels * math.prod(whole)
    values, table = (call.as_tensor(reshaped(call, v, (count,))) for v in (x, indices))
    update = Index("m", count)

    def hit(i: Sequence[Index]) -> Expr:
        return f.equal(f.cast(table[update], "int32"), as_expr(i[0]))

    search = _Search(update, hit, lambda m, i: gathered(values, m), (places,))
    zeros = define("zeros", (places,), lambda *_: number(0, x.dtype))
    flat = search.into(call, zeros, "none")
    made = call.as_tensor(reshaped(call, flat, (batch, channels, *whole)))
    new = (call.ints(2) or [])[2:] if call.has(2) else whole
    return pad(made, ((0, 0), (0, 0), *((0, m - n) for n, m in zip(whole, new))))


def _how(call: Call) -> str:
    how = str(call.get("reduction", "none"))
    if how not in _JOIN:
        raise call.unsupported(f"its reduction is {how!r}; it may be {', '.join(_JOIN)}")
    return how


def _from_front(element: Expr, extent: int) -> Expr:
    """An index counted from the front."""
    return f.where(element < 0, element + extent, element)


def _checked(call: Call, indices: Array, extent: int) -> Array:
    """Known indices counted from the front."""
    if indices.size and (indices.min() < -extent or indices.max() >= extent):
        raise call.unsupported(
            f"an index of {indices.min()} to {indices.max()} is outside of {extent}"
        )
    return indices % max(extent, 1)


def _at_known_places(call: Call, data: Tensor, places: Array, how: str) -> Tensor | None:
    """The data with updates at flat places in it: a table tells each element which one is its own.
    None where a place has too many."""
    shape, flat = data.shape or (), places.reshape(-1)
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
            new = gathered(updates, f.max(table[i], 0))
            return f.where(table[i] >= 0, _JOIN[how](before[i], new), before[i])

        data = define("scatter", shape, body)
    return data


def _rounds(places: Array) -> list[Array]:
    """The numbers of updates, in rounds in which no place stands twice."""
    left = np.arange(len(places))
    rounds: list[Array] = []
    while len(left) and len(rounds) <= _MOST_ROUNDS:
        _, first = np.unique(places[left], return_index=True)
        rounds.append(left[first])
        left = np.delete(left, first)
    return rounds
