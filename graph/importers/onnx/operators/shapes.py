"""Operators that move elements, or say shapes."""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Sequence
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
    NotKnown,
    Value,
    define,
    gathered,
    number,
    operator,
    shape_of,
)

# ---- shapes that are said ----


@operator("Shape")
def _shape(call: Call) -> Value:
    shape = np.array(call.shape(), np.int64)
    return shape[call.get("start", 0) : call.get("end", len(shape))]


@operator("Size")
def _size(call: Call) -> Value:
    return np.array(math.prod(call.shape()), np.int64)


@operator("ConstantOfShape")
def _constant_of_shape(call: Call) -> Value:
    value = call.get("value", np.zeros(1, np.float32))
    shape = call.shapes[0]
    if shape is None:
        raise NotKnown(0, call)
    return np.full(shape, value.reshape(-1)[0])


@operator("EyeLike")
def _eye_like(call: Call) -> Value:
    dtype = call.dtype()
    if call.get("dtype"):
        import onnx

        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(call.get("dtype")))
    rows, columns = call.shape()
    return np.eye(rows, columns, int(call.get("k", 0)), dtype)


# ---- the same elements in their order ----


def reshaped(call: Call, value: Value, shape: Sequence[int], name: str = "reshape") -> Value:
    """The elements of a value in their order, in another shape."""
    old = shape_of(value)
    if math.prod(old) != math.prod(shape):
        raise call.unsupported(f"{old} has not the elements of {tuple(shape)}")
    if old == tuple(shape):
        return value
    if isinstance(value, np.ndarray):
        return value.reshape(shape)
    if 0 in old:
        return np.zeros(shape, value.dtype)

    def body(*i: Index) -> Expr:
        element: Expr = value[_places(old, shape, i)]
        return element

    return define(name, shape, body)


def _places(old: Sequence[int], new: Sequence[int], at: Sequence[Index]) -> tuple[Affine, ...]:
    """Where an element of the shape `new` lies in `old`: axes are matched as far as their extents
    agree, so that most stay plain indices."""
    places: list[Affine] = []
    a = b = 0
    while a < len(old):
        c, d, m, n = a + 1, b, old[a], 1
        while m != n or (d < len(new) and c == len(old)):
            if n < m or (m == n and d < len(new)):
                n *= new[d]
                d += 1
            else:
                m *= old[c]
                c += 1
        flat = as_affine(0)
        for k in range(b, d):
            flat = flat * new[k] + (at[k] if new[k] != 1 else 0)
        left = m
        for k in range(a, c):
            left //= old[k]
            if old[k] == 1:
                places.append(as_affine(0))
            else:
                part = flat // left if left != 1 else flat
                places.append(part if left * old[k] == m else part % old[k])
        a, b = c, d
    return tuple(places)


@operator("Reshape")
def _reshape(call: Call) -> Value:
    old = call.shape()
    try:
        wanted = call.ints(1, "shape")
    except NotKnown:
        if call.shapes[0] is None:
            raise
        wanted = list(call.shapes[0])
    if wanted is None:
        raise call.unsupported("it has no shape")
    zero = bool(call.get("allowzero", 0))
    shape = [old[d] if n == 0 and not zero else n for d, n in enumerate(wanted)]
    if -1 in shape:
        rest = -math.prod(shape)
        shape[shape.index(-1)] = math.prod(old) // rest if rest else 0
    return reshaped(call, call.value(0), shape)


@operator("Flatten")
def _flatten(call: Call) -> Value:
    shape = call.shape()
    axis = int(call.get("axis", 1))
    axis += len(shape) if axis < 0 else 0
    flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    return reshaped(call, call.value(0), flat)


@operator("Squeeze")
def _squeeze(call: Call) -> Value:
    shape = call.shape()
    try:
        given = call.ints(1, "axes")
    except NotKnown:
        if call.shapes[0] is None:
            raise
        return reshaped(call, call.value(0), call.shapes[0])
    axes = {call.checked_axis(a, len(shape)) for a in given} if given else None
    left = [n for d, n in enumerate(shape) if (d not in axes if axes is not None else n != 1)]
    return reshaped(call, call.value(0), left)


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> Value:
    try:
        given = call.ints(1, "axes") or []
    except NotKnown:
        if call.shapes[0] is None:
            raise
        return reshaped(call, call.value(0), call.shapes[0])
    shape = list(call.shape())
    rank = len(shape) + len(given)
    for axis in sorted(call.checked_axis(a, rank) for a in given):
        shape.insert(axis, 1)
    return reshaped(call, call.value(0), shape)


# ---- others ----


@operator("Transpose")
def _transpose(call: Call) -> Value:
    rank = len(call.shape())
    order = [int(a) for a in call.get("perm") or range(rank)[::-1]]
    return transposed(call, call.value(0), order)


def transposed(call: Call, value: Value, order: Sequence[int]) -> Value:
    """The axes of a value in another order."""
    if list(order) == sorted(order):
        return value
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value.transpose(order))
    old = shape_of(value)

    def body(*i: Index) -> Expr:
        element: Expr = value[tuple(i[order.index(d)] for d in range(len(old)))]
        return element

    return define("transpose", [old[a] for a in order], body)


@operator("Expand")
def _expand(call: Call) -> Value:
    value = call.value(0)
    try:
        wanted = call.ints(1) or []
        shape = np.broadcast_shapes(shape_of(value), tuple(wanted))
    except NotKnown:
        if call.shapes[0] is None:
            raise
        shape = call.shapes[0]
    if shape == shape_of(value):
        return value
    return call.define(shape, lambda *i: call.read(value, i))


@operator("Tile")
def _tile(call: Call) -> Value:
    value, old = call.tensor(0), call.shape()
    try:
        repeats = call.ints(1) or []
    except NotKnown:
        if call.shapes[0] is None:
            raise
        repeats = [n // m for n, m in zip(call.shapes[0], old)]
    shape = [n * r for n, r in zip(old, repeats, strict=True)]
    if 0 in shape:
        return np.zeros(shape, value.dtype)

    def body(*i: Index) -> Expr:
        at = (k if r == 1 else 0 if n == 1 else k % n for k, n, r in zip(i, old, repeats))
        element: Expr = value[tuple(at)]
        return element

    return define("tile", shape, body) if shape != list(old) else value


@operator("Concat")
def _concat(call: Call) -> Value:
    return joined(call, [call.value(n) for n in range(len(call.inputs))], call.axis(1))


def joined(call: Call, values: Sequence[Value], axis: int) -> Value:
    """Values one behind the other along an axis."""
    values = [v for v in values if shape_of(v)[axis] != 0] or list(values[:1])
    if len(values) == 1:
        return values[0]
    if all(isinstance(v, np.ndarray) for v in values):
        return np.concatenate([v for v in values if isinstance(v, np.ndarray)], axis)
    shapes = [shape_of(v) for v in values]
    ends = np.cumsum([s[axis] for s in shapes]).tolist()
    shape = tuple(ends[-1] if d == axis else n for d, n in enumerate(shapes[0]))
    for other in shapes:
        if len(other) != len(shape) or any(
            a != b for d, (a, b) in enumerate(zip(other, shape)) if d != axis
        ):
            raise call.unsupported(f"inputs of {shapes[0]} and {other} do not join along {axis}")

    def part(number: int, i: tuple[Index, ...]) -> Expr:
        start = ends[number] - shapes[number][axis]
        own = [
            (k - start if shapes[number][d] != 1 else as_affine(0)) if d == axis else k
            for d, k in enumerate(i)
        ]
        return call.read(values[number], own)

    def body(*i: Index) -> Expr:
        return choice(0, len(values), i)

    def choice(low: int, high: int, i: tuple[Index, ...]) -> Expr:
        if high - low == 1:
            return part(low, i)
        middle = (low + high) // 2
        return f.where(i[axis] < ends[middle - 1], choice(low, middle, i), choice(middle, high, i))

    return define("concat", shape, body)


@operator("Split")
def _split(call: Call) -> list[Value]:
    axis, extent, count = call.axis(0), call.shape()[call.axis(0)], len(call.outputs)
    sizes = call.ints(1, "split")
    if sizes is None:
        step = -(-extent // count)
        sizes = [step] * (count - 1) + [extent - step * (count - 1)]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [
        take(call, call.value(0), axis, np.arange(start, start + n), "split")
        for start, n in zip(starts, sizes)
    ]


@operator("Slice")
def _slice(call: Call) -> Value:
    value, shape = call.value(0), call.shape()
    ends, axes = call.ints(2, "ends") or [], call.ints(3, "axes")
    axes = list(range(len(ends))) if axes is None else axes
    steps = call.ints(4) or [1] * len(ends)
    starts = call.ints(1, "starts") or []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = call.checked_axis(axis, len(shape))
        value = take(
            call,
            value,
            at,
            np.arange(shape[at])[slice(*_bounds(start, end, step, shape[at]))],
            "slice",
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


def take(call: Call, value: Value, axis: int, places: np.ndarray, name: str = "take") -> Value:
    """What stands along an axis at known places, in their order."""
    shape = shape_of(value)
    new = tuple(len(places) if d == axis else n for d, n in enumerate(shape))
    if len(places) == shape[axis] and (places == np.arange(shape[axis])).all():
        return value
    if isinstance(value, np.ndarray):
        return value.take(places, axis)
    if 0 in new:
        return np.zeros(new, value.dtype)
    form = _form(places)
    if form is None:
        table = call.as_tensor(places.astype(np.int32))
        return define(
            name,
            new,
            lambda *i: gathered(
                value, *(table[i[axis]] if d == axis else k for d, k in enumerate(i))
            ),
        )
    runs = form

    def body(*i: Index) -> Expr:
        def read(at: Affine) -> Expr:
            element: Expr = value[tuple(at if d == axis else k for d, k in enumerate(i))]
            return element

        result = read(runs[-1][1](i[axis]))
        for end, place in reversed(runs[:-1]):
            result = f.where(i[axis] < end, read(place(i[axis])), result)
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


@operator("Pad")
def _pad(call: Call) -> Value:
    value, rank = call.value(0), len(call.shape())
    given = call.ints(1, "pads") or call.ints(1, "paddings") or []
    axes = call.ints(3) or list(range(rank))
    axes = [call.checked_axis(a, rank) for a in axes]
    pads = {a: (given[n], given[n + len(axes)]) for n, a in enumerate(axes)}
    fill: Value = np.asarray(call.get("value", 0.0), call.dtype())
    if call.has(2):
        fill = call.value(2)
    return padded(call, value, pads, call.get("mode", "constant"), fill)


def padded(
    call: Call, value: Value, pads: dict[int, tuple[int, int]], mode: str, fill: Value
) -> Value:
    """A value with elements more, or less, at the ends of axes."""
    for axis, (before, after) in pads.items():  # less, first
        extent = shape_of(value)[axis]
        kept = np.arange(extent)[max(-before, 0) : extent - max(-after, 0)]
        value = take(call, value, axis, kept)
    pads = {a: (max(b, 0), max(e, 0)) for a, (b, e) in pads.items() if max(b, e) > 0}
    if mode != "constant":
        kinds = ("edge", "reflect", "wrap")
        if mode not in kinds:
            raise call.unsupported(f"its mode is {mode!r}; it may be constant, {', '.join(kinds)}")
        for axis, widths in pads.items():
            places: Array = np.pad(np.arange(shape_of(value)[axis]), widths, mode=mode)  # type: ignore[call-overload]
            value = take(call, value, axis, places, "pad")
        return value
    if not pads:
        return value
    old = shape_of(value)
    new = tuple(n + sum(pads.get(d, (0, 0))) for d, n in enumerate(old))
    if 0 in old:
        return call.define(new, lambda *_: call.read(fill, ()))

    def body(*i: Index) -> Expr:
        tests = []
        for axis, (before, after) in pads.items():
            tests += [i[axis] >= before] if before else []
            tests += [i[axis] < before + old[axis]] if after else []
        inside = tests[0]
        for test in tests[1:]:
            inside = inside & test
        at = tuple(k - pads[d][0] if d in pads else k for d, k in enumerate(i))
        return f.where(inside, call.as_tensor(value)[at], call.read(fill, ()))

    return define(f"{call.op.lower()}_pad", new, body)


@operator("DepthToSpace")
def _depth_to_space(call: Call) -> Value:
    x, (n, c, h, w), b = call.tensor(0), call.shape(), int(call.get("blocksize"))
    depth = c // (b * b)
    by_column = call.get("mode", "DCR") == "CRD"

    def body(i: Index, k: Index, y: Index, z: Index) -> Expr:
        inner = (y % b) * b + z % b
        element: Expr = x[
            i, k * (b * b) + inner if by_column else inner * depth + k, y // b, z // b
        ]
        return element

    return define("depthtospace", (n, depth, h * b, w * b), body)


@operator("SpaceToDepth")
def _space_to_depth(call: Call) -> Value:
    x, (n, c, h, w), b = call.tensor(0), call.shape(), int(call.get("blocksize"))

    def body(i: Index, k: Index, y: Index, z: Index) -> Expr:
        inner = k // c
        element: Expr = x[i, k % c, y * b + inner // b, z * b + inner % b]
        return element

    return define("spacetodepth", (n, c * b * b, h // b, w // b), body)


@operator("Trilu")
def _trilu(call: Call) -> Value:
    x, shape = call.tensor(0), call.shape()
    shift, upper = call.integer(1, 0), bool(call.get("upper", 1))
    zero = number(0, x.dtype)
    far = sum(shape[-2:]) + 1
    shift = min(max(shift, -far), far)

    def body(*i: Index) -> Expr:
        above = i[-1] - i[-2]
        return f.where(above >= shift if upper else above <= shift, x[i], zero)

    return define("trilu", shape, body)


@operator("OneHot")
def _one_hot(call: Call) -> Value:
    indices, values = call.value(0), call.value(2)
    try:
        depth = call.integer(1)
    except NotKnown:
        if call.shapes[0] is None:
            raise
        depth = max(set(call.shapes[0]) - set(call.shape()), default=call.shapes[0][-1])
    shape = shape_of(indices)
    axis = call.checked_axis(int(call.get("axis", -1)), len(shape) + 1)
    off = (
        (lambda: call.as_tensor(values)[0])
        if isinstance(values, Tensor)
        else (lambda: number(values[0], str(values.dtype)))
    )
    on = (
        (lambda: call.as_tensor(values)[1])
        if isinstance(values, Tensor)
        else (lambda: number(values[1], str(values.dtype)))
    )

    def body(*i: Index) -> Expr:
        element = f.cast(call.read(indices, (*i[:axis], *i[axis + 1 :])), "int64")
        place = f.cast(i[axis], "int64")
        # A negative index counts from the end; one outside of the range has no place.
        hit = f.equal(place, f.where(element < 0, element + depth, element))
        return f.where(hit, on(), off())

    return define("onehot", (*shape[:axis], depth, *shape[axis:]), body)


@operator("ReverseSequence")
def _reverse_sequence(call: Call) -> Value:
    x, lengths = call.tensor(0), call.value(1)
    batch, time = int(call.get("batch_axis", 1)), int(call.get("time_axis", 0))

    def body(*i: Index) -> Expr:
        length = f.cast(call.read(lengths, (i[batch],)), "int32")
        here = f.cast(i[time], "int32")
        at = f.where(here < length, length - 1 - here, here)
        return gathered(x, *(at if d == time else k for d, k in enumerate(i)))

    return define("reversesequence", call.shape(), body)


@operator("Gather")
def _gather(call: Call) -> Value:
    value, indices, axis = call.value(0), call.value(1), call.axis(0)
    shape, own = shape_of(value), shape_of(indices)
    extent = shape[axis]
    if isinstance(indices, np.ndarray):
        flat = indices.reshape(-1).astype(np.int64)
        if flat.size and (flat.min() < -extent or flat.max() >= extent):
            raise call.unsupported(
                f"an index of {flat.min()} to {flat.max()} is outside of {extent}"
            )
        taken = take(call, value, axis, flat % max(extent, 1), "gather")
        return reshaped(call, taken, (*shape[:axis], *own, *shape[axis + 1 :]))
    table = call.tensor(0)

    def body(*i: Index) -> Expr:
        at = call.read(indices, i[axis : axis + len(own)])
        return gathered(table, *i[:axis], at, *i[axis + len(own) :])

    return define("gather", (*shape[:axis], *own, *shape[axis + 1 :]), body)


@operator("GatherElements")
def _gather_elements(call: Call) -> Value:
    table, indices, axis = call.tensor(0), call.value(1), call.axis(0)

    def body(*i: Index) -> Expr:
        at = call.read(indices, i)
        return gathered(table, *(at if d == axis else k for d, k in enumerate(i)))

    return define("gatherelements", shape_of(indices), body)


@operator("GatherND")
def _gather_nd(call: Call) -> Value:
    table, indices, batch = call.tensor(0), call.tensor(1), int(call.get("batch_dims", 0))
    shape, own = call.shape(0), call.shape(1)
    count = own[-1]
    outer = len(own) - 1

    def body(*i: Index) -> Expr:
        at = [indices[(*i[:outer], n)] for n in range(count)]
        return gathered(table, *i[:batch], *at, *i[outer:])

    return define("gathernd", (*own[:-1], *shape[batch + count :]), body)


@operator("ScatterND", "ScatterElements", "Scatter")
def _scatter(call: Call) -> Value:
    indices = call.required(1)
    data, updates, shape = call.tensor(0), call.value(2), call.shape()
    how = call.get("reduction", "none")
    count = math.prod(shape)
    flat = np.arange(count).reshape(shape)
    if call.op == "ScatterND":
        places = flat[tuple(np.moveaxis(indices, -1, 0))].reshape(-1)
    else:
        axis = call.axis(0)
        grid: list[Array] = list(np.indices(indices.shape))
        grid[axis] = indices % shape[axis]
        places = flat[tuple(grid)].reshape(-1)
    rounds = _rounds(places)
    if how == "none":
        rounds = [np.arange(len(places))]
    flat_updates = call.as_tensor(reshaped(call, updates, (len(places),)))
    ops: dict[str, Callable[[Any, Any], Any]] = {
        "none": lambda _, new: new,
        "add": operators.add,
        "mul": operators.mul,
        "max": f.max,
        "min": f.min,
    }
    for chosen in rounds:
        source = np.full(count, -1, np.int32)
        source[places[chosen]] = chosen
        table = call.as_tensor(source.reshape(shape))
        before = data

        def body(*i: Index, table: Tensor = table, before: Tensor = before) -> Expr:
            at = table[i]
            new = gathered(flat_updates, f.max(at, 0))
            return f.where(at >= 0, ops[how](before[i], new), before[i])

        data = define("scatter", shape, body)
    return data


def _rounds(places: np.ndarray) -> list[np.ndarray]:
    """The numbers of updates, in rounds in which no place stands twice."""
    left, rounds = np.arange(len(places)), []
    while len(left):
        _, first = np.unique(places[left], return_index=True)
        rounds.append(left[first])
        left = np.delete(left, first)
    return rounds
