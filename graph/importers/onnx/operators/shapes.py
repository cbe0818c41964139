"""Operators that move elements, or say shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Affine, Index, as_affine
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import SCANS, Call, NotKnown, operator
from loopwright.graph.importers.onnx.values import (
    Array,
    Value,
    Weights,
    define,
    dtype_of,
    number,
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


_MOST_NUMBERS = 8


def few(array: np.ndarray[Any, Any]) -> bool:
    """Return whether known numbers may be a shape, each of them a formula of open sizes."""
    return array.size == 1 or (array.ndim == 1 and 0 < array.size <= _MOST_NUMBERS)


def of_numbers(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of `few` known numbers."""
    numbers = [number(x, str(array.dtype)) for x in array.reshape(-1)]

    def body(*axes: Index) -> Expr:
        found: Expr = numbers[-1]
        for n in range(len(numbers) - 1)[::-1]:
            found = f.where(f.equal(as_expr(axes[0]), n), numbers[n], found)
        return found

    return define(name, array.shape, body)


def made_of(weights: Weights, name: str, array: Array, given: Iterable[Array | None]) -> None:
    """Note that an operator has moved `given` numbers into a known value that varies: those that
    are no sizes may vary, too. A few are computed where they are read."""
    for x in given:
        if x is not None and x.dtype.kind == "f":
            weights.say(x)
    if few(array):
        weights.compute(array, of_numbers(name, array))


def repeated(name: str, array: np.ndarray[Any, Any]) -> Value:
    """A known value as a tensor where all elements are one number, whatever its extents are."""
    flat = array.reshape(-1)
    same = np.repeat(flat[:1], flat.size)
    if not flat.size or not np.array_equal(flat, same, equal_nan=flat.dtype.kind == "f"):
        return array
    return define(name, array.shape, lambda *_: number(array.flat[0], str(array.dtype)))


@operator("ConstantOfShape")
def _constant_of_shape(call: Call) -> Value:
    """Known elements, but for a result of open shape, which a call computes."""
    value = call.get("value", np.zeros(1, np.float32)).reshape(-1)[0]
    shape = call.value(0)
    if isinstance(shape, np.ndarray):
        return call.define(shape.tolist(), lambda *_: number(value, str(value.dtype)))
    return np.full(call.stated(call.not_known(0)), value)


@operator("Range")
def _range(call: Call) -> Value:
    """Numbers that a call computes: others at each size, where the start is."""
    start, limit, delta = (call.required(n).reshape(-1)[0] for n in range(3))
    count, dtype = max(math.ceil((limit - start) / delta), 0), call.dtype()
    return call.define(
        (count,), lambda i: f.cast(as_expr(i), dtype) * number(delta, dtype) + number(start, dtype)
    )


@operator("EyeLike")
def _eye_like(call: Call) -> Value:
    dtype = call.dtype()
    if call.get("dtype"):
        dtype = dtype_of(call.get("dtype"))
    rows, columns = call.shape()
    above = int(call.get("k", 0))
    if call.sized is None:
        return np.eye(rows, columns, above, dtype)
    one, zero = number(1, dtype), number(0, dtype)
    return call.define(
        (rows, columns), lambda i, j: f.where(f.equal(as_expr(j), as_expr(i + above)), one, zero)
    )


# ---- the same elements in their order ----


def reshaped(call: Call, value: Value, shape: Sequence[int], name: str = "reshape") -> Value:
    """The elements of a value in their order, in another shape."""
    old = shape_of(value)
    if math.prod(old) != math.prod(shape):
        raise call.unsupported(
            f"{old} has not the elements of {tuple(shape)}: where its export fixed a size, give "
            "inputs of this size, or export the model again with the axis open"
        )
    if old == tuple(shape):
        return value
    if isinstance(value, np.ndarray):
        return value.reshape(shape)
    if 0 in old:
        return np.zeros(shape, value.dtype)
    return define(name, shape, lambda *i: value[_places(old, shape, i)])


def _places(old: Sequence[int], new: Sequence[int], at: Sequence[Index]) -> tuple[Affine, ...]:
    """Places in `old` of an element of the shape `new`: axes are matched as far as their extents
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
    except NotKnown as reason:
        wanted = list(call.stated(reason))
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
    axis = call.checked_axis(int(call.get("axis", 1)), len(shape) + 1)
    axis -= 1 if call.get("axis", 1) < 0 else 0  # from the end it names an axis, no gap
    flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    return reshaped(call, call.value(0), flat)


@operator("Squeeze")
def _squeeze(call: Call) -> Value:
    shape = call.shape()
    try:
        given = call.ints(1, "axes")
    except NotKnown as reason:
        return reshaped(call, call.value(0), call.stated(reason))
    axes = call.checked_axes(given, len(shape)) if given else None
    left = [n for d, n in enumerate(shape) if (d not in axes if axes is not None else n != 1)]
    return reshaped(call, call.value(0), left)


@operator(f"{SCANS}:Squeeze")
def _squeeze_ones(call: Call) -> Value:
    """Torch's: an axis of more elements stays."""
    shape, axes = call.shape(), call.ints(1) or []
    gone = call.checked_axes(axes, len(shape))
    left = [n for d, n in enumerate(shape) if n != 1 or d not in gone]
    return reshaped(call, call.value(0), left)


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> Value:
    try:
        given = call.ints(1, "axes") or []
    except NotKnown as reason:
        return reshaped(call, call.value(0), call.stated(reason))
    shape = list(call.shape())
    rank = len(shape) + len(given)
    for axis in sorted(call.checked_axes(given, rank)):
        shape.insert(axis, 1)
    return reshaped(call, call.value(0), shape)


# ---- others ----


@operator("Transpose")
def _transpose(call: Call) -> Value:
    rank = len(call.shape())
    order = call.checked_axes(call.get("perm") or range(rank)[::-1], rank)
    if len(order) != rank:
        raise call.unsupported(f"its perm is {order}, of a tensor with {rank} axes; it names each")
    return transposed(call.value(0), order)


def transposed(value: Value, order: Sequence[int]) -> Value:
    """The axes of a value in another order."""
    if list(order) == sorted(order):
        return value
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value.transpose(order))
    old = shape_of(value)
    places = [order.index(d) for d in range(len(old))]
    return define(
        "transpose", [old[a] for a in order], lambda *i: value[tuple(i[p] for p in places)]
    )


@operator("Expand")
def _expand(call: Call) -> Value:
    value = call.value(0)
    try:
        wanted = call.ints(1) or []
        shape = np.broadcast_shapes(shape_of(value), tuple(wanted))
    except NotKnown as reason:
        shape = call.stated(reason)
    if shape == shape_of(value):
        return value
    return call.define(shape, lambda *i: call.read(value, i))


@operator("Tile")
def _tile(call: Call) -> Value:
    value, old = call.tensor(0), call.shape()
    try:
        repeats = call.ints(1) or []
    except NotKnown as reason:
        repeats = [n // m for n, m in zip(call.stated(reason), old)]
    shape = [n * r for n, r in zip(old, repeats, strict=True)]
    if 0 in shape:
        return np.zeros(shape, value.dtype)

    def body(*i: Index) -> Expr:
        at = (k if r == 1 else 0 if n == 1 else k % n for k, n, r in zip(i, old, repeats))
        return value[tuple(at)]

    return define("tile", shape, body) if shape != list(old) else value


_MOST_JOINED = 64
"""Values that one step joins; a function takes no more than twice as many arrays."""


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
    if len(values) > _MOST_JOINED:
        starts = range(0, len(values), _MOST_JOINED)
        parts = [joined(call, values[n : n + _MOST_JOINED], axis) for n in starts]
        return joined(call, parts, axis)
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

    def choice(low: int, high: int, i: tuple[Index, ...]) -> Expr:
        if high - low == 1:
            return part(low, i)
        middle = (low + high) // 2
        return f.where(i[axis] < ends[middle - 1], choice(low, middle, i), choice(middle, high, i))

    return define("concat", shape, lambda *i: choice(0, len(values), i))


@operator("DepthToSpace")
def _depth_to_space(call: Call) -> Value:
    x, (n, c, h, w), b = call.tensor(0), call.shape(), int(call.get("blocksize"))
    depth = c // (b * b)
    by_column = call.get("mode", "DCR") == "CRD"

    def body(i: Index, k: Index, y: Index, z: Index) -> Expr:
        inner = (y % b) * b + z % b
        source = k * (b * b) + inner if by_column else inner * depth + k
        return x[i, source, y // b, z // b]

    return define("depthtospace", (n, depth, h * b, w * b), body)


@operator("SpaceToDepth")
def _space_to_depth(call: Call) -> Value:
    x, (n, c, h, w), b = call.tensor(0), call.shape(), int(call.get("blocksize"))
    by_column = call.get("mode", "DCR") == "CRD"

    def body(i: Index, k: Index, y: Index, z: Index) -> Expr:
        source, inner = (k // (b * b), k % (b * b)) if by_column else (k % c, k // c)
        return x[i, source, y * b + inner // b, z * b + inner % b]

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
