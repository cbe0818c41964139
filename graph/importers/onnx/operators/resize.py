"""Images of another size: every axis on its own, by tables of places and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import SCANS, Call, operator
from loopwright.graph.importers.onnx.halves import in_float32
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.operators.slices import KNOWN, take
from loopwright.graph.importers.onnx.values import Array, Value, define, shape_of

_IMAGE = 4  # axes of an image
_MOST_OVER = 64
_NEAR = 1e-6
"""A scale is a fraction of at most this divisor if it is so near to it, relatively."""
_CROPPED = "tf_crop_and_resize"
_TIE = 1e-6
"""Distance from the middle of two elements that counts as none, as in onnxruntime."""


_OF_TORCH = "Interpolate"
"""Torch's operator, which has sizes of its own beside scales."""


@operator("Resize", "Upsample", f"{SCANS}:{_OF_TORCH}", limit=KNOWN)
def _resize(call: Call) -> Value | Sequence[Value]:
    # The nearest elements are taken as they are; others are sums, rounded once for all axes.
    is_nearest = call.get("mode", "nearest") == "nearest"
    return (_resized if is_nearest else in_float32(_resized))(call)


def _resized(call: Call) -> Value:
    rank = len(call.shape())
    axes = call.checked_axes(call.get("axes") or range(rank), rank)
    scales, sizes = _wanted(call, axes)
    mode = call.get("mode", "nearest")
    if mode != "nearest" and not is_float(call.dtype()):
        raise call.unsupported(
            f"its input is {call.dtype()}, and its mode is {mode}: cast the input to float32 "
            "before it, or take the nearest elements"
        )
    filtered = bool(call.get("antialias", 0))
    if call.op == _OF_TORCH and (mode == "linear" or filtered):  # an axis of the same size is kept
        kept = [call.shape()[a] == n for a, n in zip(axes, sizes)]
        scales = [1.0 if is_kept else s for s, is_kept in zip(scales, kept)]
    resized = dict(zip(axes, sizes))
    if 0 in (shape := [resized.get(a, n) for a, n in enumerate(call.shape())]):
        return np.zeros(shape, call.dtype())
    value = call.value(0)
    by_scale = _by_scale(call)
    if call.open and _has_formula(call, scales, by_scale):
        if mode == "nearest":
            return _nearest_of_open(call, value, axes, scales, sizes)
        lines = _lines(call, axes, scales, sizes, by_scale)
        if lines is not None:
            for axis, line in zip(axes, lines):
                if line is not None:
                    value = _along(call, call.as_tensor(value), axis, line, mode)
            return value
    if mode != "nearest":
        smooth = filtered and any(s < 1 for s in scales)
        return _weighted(call, value, axes, scales, sizes, mode, smooth)
    for number, axis in enumerate(axes):
        old = shape_of(value)[axis]
        # A place may be a tie, so it is rounded as in torch and onnxruntime.
        i, scale = np.arange(sizes[number], dtype=np.float32), float(np.float32(scales[number]))
        at = _coordinates(call, number, i, old, sizes[number], scale)
        places = np.clip(_nearest(call, at, scale < 1), 0, old - 1).astype(np.int64)
        outside = (at < 0) | (at > old - 1)
        value = take(call, value, axis, places, "resize")
        value = _extrapolated(call, value, axis, outside)
    return value


@dataclass(frozen=True)
class _Line:
    """The places `(slope * i + start) / over` along an axis of an image of open size."""

    slope: int
    start: int
    over: int
    new: int

    def numerator(self, i: Index) -> Expr:
        """Its numerator at an index: a whole number, exact in a float32 below 2^24."""
        return f.cast(as_expr(i), "float32") * float(self.slope) + float(self.start)


def _is_old(call: Call) -> bool:
    """Return whether the operator has no modes of places."""
    return call.op == "Upsample" or (call.op == "Resize" and call.version < 11)


def _by_scale(call: Call) -> bool:
    """Return whether scales are given, and not sizes."""
    return _is_old(call) or bool(call.has(2) and call.required(2).size)


def _mode(call: Call) -> str:
    """How a place follows from an index."""
    if _is_old(call):
        return "asymmetric"
    return str(call.get("coordinate_transformation_mode", "half_pixel"))


def _has_formula(call: Call, scales: Sequence[float], by_scale: bool) -> bool:
    """Return whether places are a formula of open sizes, which tables are not. By whole scales the
    nearest ones have one form at all sizes."""
    if call.get("antialias", 0) or _mode(call) in ("half_pixel_symmetric", _CROPPED):
        return False
    if not by_scale and call.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False  # one ratio for all axes
    nearest = call.get("mode", "nearest") == "nearest"
    return not (nearest and by_scale and all(s == int(s) for s in scales))


def _lines(
    call: Call, axes: Sequence[int], scales: Sequence[float], sizes: Sequence[int], by_scale: bool
) -> list[_Line | None] | None:
    """The places along each axis that changes; None where a scale is no fraction."""
    mode = _mode(call)
    lines: list[_Line | None] = []
    for axis, scale, new in zip(axes, scales, sizes):
        old = call.shape()[axis]
        p, q = (new, old)
        if by_scale:
            share = Fraction(scale).limit_denominator(_MOST_OVER)
            if abs(share - Fraction(scale)) > _NEAR * scale:
                return None
            p, q = share.numerator, share.denominator
        if by_scale and scale == 1:
            lines.append(None)
        elif mode == "pytorch_half_pixel" and new == 1:
            lines.append(_Line(0, 0, 1, new))
        elif mode == "asymmetric":
            lines.append(_Line(q, 0, p, new))
        elif mode == "align_corners":
            lines.append(_Line(old - 1, 0, max(new - 1, 1), new))
        elif mode == "tf_half_pixel_for_nn":
            lines.append(_Line(2 * q, q, 2 * p, new))
        else:
            lines.append(_Line(2 * q, q - p, 2 * p, new))
    return lines


def _along(call: Call, value: Tensor, axis: int, line: _Line, mode: str) -> Tensor:
    """An axis of another size, each element of which is made of those around its place."""
    shape, dtype = shape_of(value), str(value.dtype)
    last = shape[axis] - 1.0
    new = tuple(line.new if d == axis else n for d, n in enumerate(shape))
    taps = (0, 1) if mode == "linear" else (-1, 0, 1, 2)

    def body(*i: Index) -> Expr:
        numerator, over = line.numerator(i[axis]), float(line.over)
        spot = f.floor(numerator / over)
        rest = (numerator - spot * over) / over  # exact, where a difference of places is not
        total: Expr | None = None
        for tap in taps:
            place = f.cast(within(spot + float(tap), 0.0, last), "int32")
            element = value[(*i[:axis], place, *i[axis + 1 :])]
            distance = rest - float(tap) if tap <= 0 else float(tap) - rest
            element = element * f.cast(_share(call, distance, mode), dtype)
            total = element if total is None else total + element
        assert total is not None
        return total

    return define("resize", new, body)


def _nearest_of_open(
    call: Call, value: Value, axes: Sequence[int], scales: Sequence[float], sizes: Sequence[int]
) -> Value:
    """The nearest elements along axes of open size, whose places each call computes."""
    by_scale = _by_scale(call)
    for axis, scale, new in zip(axes, scales, sizes):
        if not by_scale or scale != 1:
            value = _picked(call, call.as_tensor(value), axis, scale if by_scale else None, new)
    return value


def _picked(call: Call, value: Tensor, axis: int, scale: float | None, new: int) -> Tensor:
    """An axis of another size, by a scale or the size alone, each element the nearest one."""
    shape = shape_of(value)
    old = shape[axis]

    def body(*i: Index) -> Expr:
        along: Any = as_expr(float(new), as_expr(0.0)) / float(old) if scale is None else scale
        at = _coordinates(call, 0, f.cast(as_expr(i[axis]), "float32"), old, new, along)
        spot = within(_nearest(call, at, new < old), 0.0, old - 1.0)
        return value[(*i[:axis], f.cast(spot, "int32"), *i[axis + 1 :])]

    return define("resize", tuple(new if d == axis else n for d, n in enumerate(shape)), body)


def _share(call: Call, distance: Any, mode: str) -> Any:
    """The weight of an element at a distance; of one of each element of an array."""
    known = isinstance(distance, np.ndarray)
    if mode != "cubic":
        return (np.maximum if known else f.max)(1 - distance, 0.0)
    where = np.where if known else f.where
    near, far = _cubic(distance, float(call.get("cubic_coeff_a", -0.75)))
    return where(distance <= 1, near, where(distance < 2, far, 0.0))


def _wanted(call: Call, axes: Sequence[int]) -> tuple[list[float], list[int]]:
    """The scale and the extent of each axis."""
    shape = call.shape()
    old = [shape[a] for a in axes]
    given: Array | None
    if call.op == "Upsample":
        given = call.known(1) if call.has(1) else np.asarray(call.get("scales"))
        sizes = None
    elif _is_old(call):
        given, sizes = call.known(1), None
    else:
        given = call.known(2) if call.has(2) else None
        sizes = call.ints(3)
    if given is not None and given.size:
        scales = [float(s) for s in given.reshape(-1)]
        if sizes:
            return scales, sizes
        # As in onnxruntime, of a region, too; in float32: ten times 0.7 is seven.
        return scales, [int(np.float32(n) * np.float32(s)) for n, s in zip(old, scales)]
    if sizes is None:
        raise call.unsupported("it has neither scales nor sizes")
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        ratios = _ratios(sizes, old)
        one = min(ratios) if policy == "not_larger" else max(ratios)
        return [one] * len(old), [int(np.floor(n * one + 0.5)) for n in old]
    if _mode(call) == _CROPPED:
        ends = call.required(1).reshape(2, -1)
        return [n / (m * (b - a)) for n, m, a, b in zip(sizes, old, *ends)], sizes
    return _ratios(sizes, old), sizes


def _ratios(sizes: Sequence[int], old: Sequence[int]) -> list[float]:
    """The scales of axes; 1 of one without elements."""
    return [n / m if m else 1.0 for n, m in zip(sizes, old)]


def _coordinates(call: Call, number: int, i: Any, old: int, new: int, scale: Any) -> Any:
    """The places in the old axis of elements `i` of the new one, with their fractions, in the type
    of these."""
    mode = _mode(call)
    if call.op == _OF_TORCH and call.get("mode") == "nearest":
        return i * _step(call, i, old, new, scale)
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        # By the whole extent, as in torch and onnxruntime; ONNX's reference takes old * scale.
        return i * (old - 1) / (new - 1) if new > 1 else i * 0.0
    if mode == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if new > 1 else i * 0.0
    if mode == "half_pixel_symmetric":
        whole = old * scale
        adjust = new / whole
        center = old / 2
        return center * (1 - adjust) + (i + 0.5) / scale - 0.5
    if mode == _CROPPED:
        roi = call.required(1)
        start, end = roi.reshape(2, -1)[:, number]
        if new > 1:
            return start * (old - 1) + i * (end - start) * (old - 1) / (new - 1)
        return i * 0 + 0.5 * (start + end) * (old - 1)
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    return (i + 0.5) / scale - 0.5


def _step(call: Call, i: Any, old: int, new: int, scale: Any) -> Any:
    """What torch multiplies a number by for the place of the nearest element, in float32."""
    if not _by_scale(call):
        if isinstance(i, np.ndarray):
            return np.float32(old) / np.float32(new)
        return as_expr(float(old), as_expr(0.0)) / float(new)
    if new in (old, 2 * old) and len(call.shape()) == _IMAGE:  # torch takes a shorter way there
        return old / new
    return float(np.float32(1 / scale))


def _nearest(call: Call, at: Any, shrinks: bool) -> Any:
    """The whole places nearest to some, as the call says: an array, or an element."""
    floor, ceil, where = (
        (np.floor, np.ceil, np.where) if isinstance(at, np.ndarray) else (f.floor, f.ceil, f.where)
    )
    if _is_old(call):
        return ceil(at) if shrinks else floor(at)  # as in onnxruntime: they say nothing of it
    mode = call.get("nearest_mode", "round_prefer_floor")
    if mode in ("floor", "ceil"):
        return floor(at) if mode == "floor" else ceil(at)
    rest = at - floor(at)  # exact, as a sum with a half is not
    least = 0.5 + _TIE if mode == "round_prefer_floor" else 0.5 - _TIE
    return where(rest > least, ceil(at), floor(at))


def _extrapolated(call: Call, value: Value, axis: int, outside: Array) -> Value:
    if _mode(call) != _CROPPED or not outside.any():
        return value
    fill = float(call.get("extrapolation_value", 0.0))
    table = call.as_tensor(outside)
    return call.define(
        shape_of(value), lambda *i: f.where(table[i[axis]], fill, call.read(value, i)), "resize"
    )


def _weighted(
    call: Call,
    value: Value,
    axes: Sequence[int],
    scales: Sequence[float],
    sizes: Sequence[int],
    mode: str,
    smooth: bool,
) -> Value:
    for number, axis in enumerate(axes):
        old, new, scale = shape_of(value)[axis], sizes[number], scales[number]
        if new == old and scale == 1 and _mode(call) != _CROPPED:
            continue
        i, step = np.arange(new, dtype=np.float64), 1 / scale
        if call.op == _OF_TORCH and call.get("antialias", 0):
            # Corners say how far apart places are alone: the first one is inside of the image.
            if _mode(call) == "align_corners":
                step = (old - 1) / (new - 1) if new > 1 else 0.0
            at = (i + 0.5) * step - 0.5
        else:
            at = _coordinates(call, number, i, old, new, scale)
        stretch = max(step, 1.0) if smooth else 1.0
        places, weights = _taps(call, at, old, mode, stretch)
        value = _mixed(call, value, axis, places, weights.astype(str(value.dtype)))
        value = _extrapolated(call, value, axis, (at < 0) | (at > old - 1))
    return value


def _taps(call: Call, at: Array, old: int, mode: str, stretch: float) -> tuple[Array, Array]:
    """The places that each element is made of, and their weights."""
    start = int(np.floor(-stretch * (2 if mode == "cubic" else 1))) + 1
    places = np.floor(at).astype(np.int64)[:, None] + np.arange(start, 2 - start)
    distance = np.abs(places - at[:, None]) / stretch
    weights = _share(call, distance, mode)
    excluded = bool(call.get("exclude_outside", 0))
    if excluded:
        weights = np.where((places < 0) | (places >= old), 0, weights)
    if excluded or stretch > 1:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, old - 1), weights


def _cubic(x: Any, a: float) -> tuple[Any, Any]:
    """The weights of elements at a distance of at most 1, and of 1 to 2 (Keys 1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near, far


def _mixed(call: Call, value: Value, axis: int, places: Array, weights: Array) -> Value:
    """The weighted sum of what stands at the places of each element."""
    parts = []
    for k in range(places.shape[1]):
        if weights[:, k].any():
            parts.append((take(call, value, axis, places[:, k], "tap"), weights[:, k]))
    shape = shape_of(parts[0][0])
    tables = [call.as_tensor(np.ascontiguousarray(w)) for _, w in parts]

    def body(*i: Index) -> Any:
        terms = [call.read(p, i) * t[i[axis]] for (p, _), t in zip(parts, tables)]
        return sum(terms[1:], terms[0])

    return define("resize", shape, body)
