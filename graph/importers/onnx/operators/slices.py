"""Parts of tensors along axes, and what is put around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Affine, Index, as_affine
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import (
    Array,
    Call,
    Value,
    all_of,
    define,
    gathered,
    number,
    operator,
    shape_of,
)

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
    for start, end, at, step in zip(starts, ends, axes, steps):
        value = take(
            call,
            value,
            at,
            np.arange(shape[at])[slice(*_bounds(start, end, step, shape[at]))],
            "slice",
            call.may_vary(1) or call.may_vary(2),
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
        element = gathered(value, *i[:axis], at, *i[axis + 1 :])
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
    pads = {a: (given[n], given[n + len(axes)]) for n, a in enumerate(axes)}
    fill = call.optional(2)
    if fill is None:
        fill = np.asarray(call.get("value", 0.0), call.dtype())
    return padded(call, value, pads, call.get("mode", "constant"), fill)


def _continued(value: Tensor, axis: int, widths: tuple[int, int], mode: str) -> Tensor:
    """An axis with elements of its own around it: one form at all open sizes, also where a width
    is 0."""
    before, extent = widths[0], shape_of(value)[axis]
    new = tuple(n + sum(widths) if d == axis else n for d, n in enumerate(shape_of(value)))

    def body(*i: Index) -> Expr:
        k = i[axis]
        places: dict[str, tuple[Affine, Affine]] = {
            "reflect": (before - k, 2 * (extent - 1) + before - k),
            "edge": (as_affine(0), as_affine(extent - 1)),
            "wrap": (k + (extent - before), k - (extent + before)),
        }
        first, own, last = (
            gathered(value, *i[:axis], place, *i[axis + 1 :])
            for place in (places[mode][0], k - before, places[mode][1])
        )
        return f.where(k < before, first, f.where(k < before + extent, own, last))

    return define("pad", new, body)


def padded(
    call: Call, value: Value, pads: dict[int, tuple[int, int]], mode: str, fill: Value
) -> Value:
    """A value with elements more, or less, at the ends of axes."""
    varies = call.may_vary(1)  # widths that are 0 here may be more at other sizes
    if not varies or mode != "constant":
        for axis, (before, after) in pads.items():  # less, first
            extent = shape_of(value)[axis]
            kept = np.arange(extent)[max(-before, 0) : extent - max(-after, 0)]
            value = take(call, value, axis, kept)
        pads = {a: (max(b, 0), max(e, 0)) for a, (b, e) in pads.items() if varies or max(b, e) > 0}
    if mode != "constant":
        for axis, widths in pads.items():
            extent = shape_of(value)[axis]
            if mode == "reflect" and max(widths) >= extent:
                raise call.unsupported(
                    f"its pads are {widths} of an axis of {extent}; reflect allows less than that"
                )
            if varies and isinstance(value, Tensor):
                value = _continued(value, axis, widths, mode)
                continue
            places: Array = np.pad(np.arange(extent), widths, mode=mode)  # type: ignore[call-overload]
            value = take(call, value, axis, places, "pad")
        return value
    if not pads:
        return value
    old = shape_of(value)
    new = tuple(n + sum(pads.get(d, (0, 0))) for d, n in enumerate(old))
    if 0 in old or 0 in new:
        return call.define(new, lambda *_: call.single(fill))

    def body(*i: Index) -> Expr:
        tests = []
        for axis, (before, after) in pads.items():
            tests += [i[axis] >= before] if before or varies else []
            tests += [i[axis] < before + old[axis]] if after or varies else []
        at = tuple(k - pads[d][0] if d in pads else k for d, k in enumerate(i))
        return f.where(all_of(tests), call.as_tensor(value)[at], call.single(fill))

    return define(f"{call.op.lower()}_pad", new, body)
