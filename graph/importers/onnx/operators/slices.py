"""Parts of tensors along axes, and what is put around them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Affine, Index, as_affine
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.values import Array, Value, all_of, define, number, shape_of

KNOWN = "shapes, places and widths must be known"


@operator("Split", limit=KNOWN)
def _split(call: Call) -> list[Value]:
    axis, extent, count = call.axis(0), call.shape()[call.axis(0)], len(call.outputs)
    sizes = call.ints(1, "split")
    if sizes is None:
        step = -(-extent // count)
        sizes = [step] * (count - 1) + [extent - step * (count - 1)]
    if len(sizes) != count or sum(sizes) != extent or min(sizes) < 0:
        raise call.unsupported(
            f"its parts are {sizes}, of an axis of {extent}; they are {count}, and fill it"
        )
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [
        take(call, call.value(0), axis, np.arange(start, start + n), "split")
        for start, n in zip(starts, sizes)
    ]


@operator("Slice", limit=KNOWN)
def _slice(call: Call) -> Value:
    value, shape = call.value(0), call.shape()
    ends, axes = call.ints(2, "ends") or [], call.ints(3, "axes")
    axes = list(range(len(ends))) if axes is None else axes
    steps = call.ints(4) or [1] * len(ends)
    starts = call.ints(1, "starts") or []
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise call.unsupported(
            f"its starts are {starts}, its ends {ends}, its axes {axes}, its steps {steps}; "
            "there are as many of each"
        )
    if 0 in steps:
        raise call.unsupported(f"its steps are {steps}; none may be 0")
    axes = call.checked_axes(axes, len(shape))
    vary = np.broadcast_to(call.may_vary(1) | call.may_vary(2), len(ends))
    for start, end, at, step, varies in zip(starts, ends, axes, steps, vary.tolist()):
        value = take(
            call,
            value,
            at,
            np.arange(shape[at])[slice(*_bounds(start, end, step, shape[at]))],
            "slice",
            varies,
        )
    return value


def _bounds(start: int, end: int, step: int, extent: int) -> tuple[int, int | None, int]:
    if step > 0:
        return start, end, step
    start = max(start + extent, -1) if start < 0 else min(start, extent - 1)
    if start < 0:
        return 0, 0, 1
    end = max(end + extent, -1) if end < 0 else end
    return start, None if end < 0 else end, step


def take(
    call: Call,
    value: Value,
    axis: int,
    places: np.ndarray,
    name: str = "take",
    varies: bool = False,
) -> Value:
    """The parts along an axis at known places, in their order. All of them are the value itself,
    unless the places vary with open sizes, at others of which they are not all."""
    shape = shape_of(value)
    new = tuple(len(places) if d == axis else n for d, n in enumerate(shape))
    whole = len(places) == shape[axis] and bool((places == np.arange(shape[axis])).all())
    if whole and not varies:
        return value
    if isinstance(value, np.ndarray):
        return value.take(places, axis)
    if 0 in new:
        return np.zeros(new, value.dtype)

    copies = varies and math.prod(shape[:axis]) > 1

    def read(i: Sequence[Index], at: Any) -> Expr:
        element = value[(*i[:axis], at, *i[axis + 1 :])]
        if not copies:
            return element
        # Where all parts are taken, a plain read would be a view, and fused with nothing.
        return f.where(i[axis] < len(places), element, number(0, str(value.dtype)))

    form = _form(places)
    if form is None:
        table = call.as_tensor(places.astype(np.int32))
        return define(name, new, lambda *i: read(i, table[i[axis]]))
    runs = form

    def body(*i: Index) -> Expr:
        result = read(i, runs[-1][1](i[axis]))
        for end, place in reversed(runs[:-1]):
            result = f.where(i[axis] < end, read(i, place(i[axis])), result)
        return result

    return define(name, new, body)


_RUNS = 4  # pieces of an index, each a condition, beyond which a table is read


def _form(places: Array) -> list[tuple[int, _Place]] | None:
    """Places as a few pieces, each affine in the index, up to where it ends; None for more."""
    count = len(places)
    for factor in range(2, 9):
        if places[0] == 0 and (places == np.arange(count) // factor).all():
            return [(count, _Place(1, 0, factor))]
    runs: list[tuple[int, _Place]] = []
    start = 0
    while start < count:
        step = int(places[start + 1] - places[start]) if start + 1 < count else 0
        end = start + 1
        while end < count and places[end] - places[end - 1] == step:
            end += 1
        if end - start == 2 and not runs and count > 2 and step != 1:
            end, step = start + 1, 0  # a lone element before a run
        runs.append((end, _Place(step, int(places[start]) - step * start)))
        start = end
        if len(runs) > _RUNS:
            return None
    return runs


@dataclass(frozen=True)
class _Place:
    """The place `(index * step + base) // divisor`."""

    step: int
    base: int
    divisor: int = 1

    def __call__(self, index: Index) -> Affine:
        place = as_affine(index) * self.step + self.base
        return place // self.divisor if self.divisor > 1 else place


@operator("Pad", limit=KNOWN)
def _pad(call: Call) -> Value:
    value, rank = call.value(0), len(call.shape())
    given = call.ints(1, "pads") or call.ints(1, "paddings") or []
    axes = call.ints(3) or list(range(rank))
    axes = call.checked_axes(axes, rank)
    if len(given) != 2 * len(axes):
        raise call.unsupported(f"its pads are {given}; each of {len(axes)} axes has two")
    fill = call.optional(2)
    if fill is None:
        fill = np.asarray(call.get("value", 0.0), call.dtype())
    mode, marks = call.get("mode", "constant"), call.may_vary(1)
    if mode == "constant":  # an axis without a test may be a loop around steps, at some sizes
        marks = np.full(len(given), marks.any())
    widths = [*map(_Side, given, np.broadcast_to(marks, len(given)).tolist())]
    pads = {a: (widths[n], widths[n + len(axes)]) for n, a in enumerate(axes)}
    if mode == "constant":
        return _surrounded(call, value, pads, fill)
    for axis, sides in pads.items():
        if any(side.width or side.varies for side in sides):
            value = _continued(call, value, axis, sides, mode)
    return value


@dataclass(frozen=True)
class _Side:
    """Elements more at an end of an axis, fewer if negative. Where that `varies` with open
    sizes, there is one form for all, also where they are none."""

    width: int
    varies: bool

    @property
    def less(self) -> int:
        return max(-self.width, 0)

    @property
    def more(self) -> int:
        return max(self.width, 0)

    @property
    def tested(self) -> bool:
        return self.varies or self.width > 0


def _continued(
    call: Call, value: Value, axis: int, sides: tuple[_Side, _Side], mode: str
) -> Value:
    """An axis with elements of its own around it."""
    (before, after), extent = sides, shape_of(value)[axis]
    width, kept = before.width, extent - before.less - after.less
    if mode == "reflect" and max(width, after.width) >= kept:
        raise call.unsupported(
            f"its pads are {(width, after.width)} of an axis of {extent}; reflect allows less "
            "than that"
        )
    if isinstance(value, np.ndarray) or not (before.varies or after.varies):
        own = np.arange(before.less, extent - after.less)
        places: Array = np.pad(own, (before.more, after.more), mode=mode)  # type: ignore[call-overload]
        return take(call, value, axis, places, "pad")

    def body(*i: Index) -> Expr:
        # A place that is computed has one form where a width is 0, and where it is not.
        place = as_expr(i[axis] - width)
        if mode == "wrap" and before.tested:
            place = f.where(place < 0, place + extent - after.less, place)
        if mode == "wrap" and after.tested:
            place = f.where(place < extent, place, place - extent + before.less)
        if mode == "edge":
            place = f.max(place, 0) if before.tested else place
            place = f.min(place, extent - 1) if after.tested else place
        if mode == "reflect":
            place = f.abs(place) if before.tested else place
            place = extent - 1 - f.abs(extent - 1 - place) if after.tested else place
        return value[(*i[:axis], place, *i[axis + 1 :])]

    return define("pad", _wider(value, {axis: sides}), body)


def _surrounded(
    call: Call, value: Value, pads: Mapping[int, tuple[_Side, _Side]], fill: Value
) -> Value:
    """A value with elements more, or less, at the ends of axes."""
    own: dict[int, tuple[_Side, _Side]] = {}
    for axis, (before, after) in pads.items():
        if not (before.varies or after.varies):  # less, first
            kept = np.arange(shape_of(value)[axis])[before.less :]
            value = take(call, value, axis, kept[: len(kept) - after.less])
            before, after = _Side(before.more, False), _Side(after.more, False)
        if before.tested or after.tested:
            own[axis] = before, after
    if not own:
        return value
    old, new = shape_of(value), _wider(value, own)
    if 0 in old or 0 in new:
        return call.define(new, lambda *_: call.single(fill))

    def body(*i: Index) -> Expr:
        tests = []
        for axis, (before, after) in own.items():
            tests += [i[axis] >= before.width] if before.tested else []
            tests += [i[axis] < before.width + old[axis]] if after.tested else []
        at = tuple(k - own[d][0].width if d in own else k for d, k in enumerate(i))
        return f.where(all_of(tests), call.as_tensor(value)[at], call.single(fill))

    return define(f"{call.op.lower()}_pad", new, body)


def _wider(value: Value, pads: Mapping[int, tuple[_Side, _Side]]) -> list[int]:
    """The shape of a value with so much more at the ends of axes."""
    more = {axis: before.width + after.width for axis, (before, after) in pads.items()}
    return [n + more.get(axis, 0) for axis, n in enumerate(shape_of(value))]
