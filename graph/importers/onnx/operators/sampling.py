"""Operators that read images between their elements, at places that are known at a call only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.dsl import functions as f
from loopwright.dsl import ops
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, Value, define, gathered, operator
from loopwright.graph.importers.onnx.foreign import of_operator
from loopwright.graph.importers.onnx.operators.convolution import Window
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.operators.shapes import reshaped

Coordinate = Callable[..., Expr]
"""A place along one axis, in elements, for each element of a result."""

_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
_STEEPNESS = -0.75
"""The coefficient of cubic interpolation, Keys 1981."""


@dataclass(frozen=True)
class _Taps:
    """The elements along one axis that a place lies between, and their weights.

    Both tensors have the axes of the places, and one more for the elements.
    """

    places: Tensor
    weights: Tensor
    index: Index


def _taps(
    call: Call,
    axis: int,
    shape: Sequence[int],
    at: Coordinate,
    mode: str,
    padding: str = "zeros",
    aligned: bool = True,
) -> _Taps:
    """The taps along a spatial axis of a call's first input, for places of a shape.

    What lies outside of the axis is zero, or that of its `padding`: "border" or "reflection".
    """
    offsets, extent = _TAPS[mode], call.shape()[2 + axis]
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    last = extent - 1.0
    own = define("place", shape, lambda *i: _inside(at(*i), padding, low, high, last))

    def tap(i: Sequence[Index]) -> tuple[Expr, Expr]:
        place: Expr = own[tuple(i[:-1])]
        if mode == "nearest":
            return f.round(place), as_expr(0.0)
        spot = f.floor(place) + f.cast(as_expr(i[-1] + offsets[0]), "float32")
        return spot, f.abs(place - spot)

    def weight(*i: Index) -> Expr:
        spot, distance = tap(i)
        share = _share(distance, mode)
        if padding == "zeros":
            share = f.where((spot >= 0) & (spot <= last), share, 0)
        return f.cast(share, call.dtype())

    def place(*i: Index) -> Expr:
        return f.cast(within(_inside(tap(i)[0], padding, low, high, last), 0, last), "int32")

    wide = (*shape, len(offsets))
    index = Index(f"t{axis}", len(offsets))
    return _Taps(define("tap", wide, place), define("weight", wide, weight), index)


def _inside(x: Expr, padding: str, low: float, high: float, last: float) -> Expr:
    """A place that padding moves onto the axis."""
    if padding == "border":
        return within(x, 0, last)
    if padding != "reflection":
        return x
    reach = high - low
    if reach == 0:
        return x * 0
    away = f.abs(x - low)
    rest = away - f.floor(away * (0.5 / reach)) * (2 * reach)
    return f.where((x < low) | (x > high), f.where(rest > reach, 2 * reach - rest, rest) + low, x)


def _share(distance: Expr, mode: str) -> Expr:
    """The weight of an element at a distance."""
    if mode == "nearest":
        return distance + 1
    if mode == "linear":
        return 1 - distance
    a, x = _STEEPNESS, distance
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return f.where(x <= 1, near, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)


def _product(taps: Sequence[_Taps], at: Sequence[Sequence[Any]]) -> Expr:
    """The product of the weights of all axes."""
    weight: Expr = taps[0].weights[(*at[0], taps[0].index)]
    for one, i in zip(taps[1:], at[1:]):
        weight = weight * one.weights[(*i, one.index)]
    return weight


@operator("GridSample")
def _grid_sample(call: Call) -> Value:
    x, grid = call.tensor(0), call.tensor(1)
    shape, own = call.shape(0), call.shape(1)
    rank, aligned = len(shape) - 2, bool(call.get("align_corners", 0))
    mode = call.get("mode", "linear").removeprefix("bi")
    padding = call.get("padding_mode", "zeros")
    if mode not in _TAPS or padding not in ("zeros", "border", "reflection"):
        raise call.unsupported(f"its mode is {mode!r}, its padding_mode {padding!r}")

    def place(d: int) -> Coordinate:
        def at(*i: Index) -> Expr:
            g = f.cast(grid[(*i, rank - 1 - d)], "float32")  # the last axis comes first
            if aligned:
                return (g + 1) * (0.5 * (shape[2 + d] - 1))
            return ((g + 1) * float(shape[2 + d]) - 1) * 0.5

        return at

    taps = [_taps(call, d, own[:-1], place(d), mode, padding, aligned) for d in range(rank)]

    def body(n: Index, c: Index, *o: Index) -> Expr:
        at = [one.places[(n, *o, one.index)] for one in taps]
        return f.sum(gathered(x, n, c, *at) * _product(taps, [(n, *o)] * rank))

    return define("gridsample", (*shape[:2], *own[1:-1]), body)


@operator("DeformConv")
def _deform_conv(call: Call) -> Value:
    x, weights, offset = call.tensor(0), call.value(1), call.tensor(2)
    (batch, channels, *spatial), (outer, inner, *kernel) = call.shape(0), call.shape(1)
    out, rank, size = call.shape(2)[2:], len(kernel), math.prod(kernel)
    window = Window.of(call, spatial, kernel)
    groups, parts = int(call.get("group", 1)), int(call.get("offset_group", 1))
    per = channels // parts
    mask = call.tensor(4) if call.has(4) else None

    def place(d: int) -> Coordinate:
        inside = math.prod(kernel[d + 1 :])

        def at(n: Index, g: Index, k: Index, *o: Index) -> Expr:
            row = (k // inside) % kernel[d] if rank > 1 else k
            start = o[d] * window.stride[d] - window.pads[d][0] + row * window.dilation[d]
            shift = offset[(n, (g * size + k) * rank + d, *o)]
            return f.cast(as_expr(start), "float32") + f.cast(shift, "float32")

        return at

    taps = [_taps(call, d, (batch, parts, size, *out), place(d), "linear") for d in range(rank)]

    def column(n: Index, c: Index, k: Index, *o: Index) -> Expr:
        at = [gathered(one.places, n, c // per, k, *o, one.index) for one in taps]
        weight = _product(taps, [(n, c // per, k, *o)] * rank)
        return f.sum(gathered(x, n, c, *at) * weight)

    columns = define("sampled", (batch, channels, size, *out), column)
    if mask is not None:
        whole = columns
        columns = define(
            "masked",
            (batch, channels, size, *out),
            lambda n, c, k, *o: (
                whole[(n, c, k, *o)] * gathered(mask, n, (c // per) * size + k, *o)
            ),
        )
    flat = call.as_tensor(reshaped(call, weights, (outer, inner, size)))
    c, k, each = Index("c", inner), Index("k", size), outer // groups

    def body(n: Index, m: Index, *o: Index) -> Expr:
        source = as_affine(c) if groups == 1 else (m // each) * inner + c
        return f.sum(gathered(columns, n, source, k, *o) * flat[m, c, k])

    made = define("deformconv", (batch, outer, *out), body)
    return ops.bias_add(made, call.tensor(3)) if call.has(3) else made


@operator("RoiAlign", limit="where sampling_ratio is 0, TVM's function computes it")
def _roi_align(call: Call) -> Value | Sequence[Value]:
    x, regions, batch = call.tensor(0), call.tensor(1), call.tensor(2)
    spatial, count = call.shape()[2:], call.shape(1)[0]
    out = [int(call.get(f"output_{name}", 1)) for name in ("height", "width")]
    samples = int(call.get("sampling_ratio", 0))
    if samples < 1:
        # It takes the more samples the larger a region is.
        inputs = (x, regions, batch)
        return call.step(of_operator(call, call.op, inputs, call.version, **call.attributes))
    half = call.version >= 16 and (
        call.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    )
    scale, kind = float(call.get("spatial_scale", 1.0)), call.get("mode", "avg")

    def end(r: Index, number: int) -> Expr:
        return f.cast(regions[r, number], "float32") * scale - (0.5 if half else 0.0)

    def place(d: int) -> Coordinate:
        def at(r: Index, p: Index, s: Index) -> Expr:
            start = end(r, 1 - d)  # regions are x, y, x, y
            length = end(r, 3 - d) - start
            length = length if half else f.max(length, 1)
            steps = f.cast(as_expr(p * samples + s), "float32") + 0.5
            return start + length * steps * (1 / (out[d] * samples))

        return at

    def inside(d: int) -> Tensor:
        def test(*i: Index) -> Expr:
            at = place(d)(*i)
            return f.cast((at >= -1) & (at <= spatial[d]), x.dtype)

        return define("inside", (count, out[d], samples), test)

    counted = [inside(d) for d in (0, 1)]
    taps = [_taps(call, d, (count, out[d], samples), place(d), "linear", "border") for d in (0, 1)]
    taken = [Index(f"s{d}", samples) for d in (0, 1)]

    def body(r: Index, c: Index, *p: Index) -> Expr:
        own = [(r, p[d], taken[d]) for d in (0, 1)]
        at = [one.places[(*i, one.index)] for one, i in zip(taps, own)]
        weight = _product(taps, own) * counted[0][own[0]] * counted[1][own[1]]
        return (f.max if kind == "max" else f.sum)(gathered(x, batch[r], c, *at) * weight)

    made = define("roialign", (count, call.shape()[1], *out), body)
    if kind == "max":
        return made
    return define("mean", (count, call.shape()[1], *out), lambda *i: made[i] * samples**-2)


@operator("MaxRoiPool")
def _max_roi_pool(call: Call) -> Value:
    x, regions = call.tensor(0), call.tensor(1)
    channels, *spatial = call.shape()[1:]
    count, out = call.shape(1)[0], [int(n) for n in call.get("pooled_shape")]
    scale = float(call.get("spatial_scale", 1.0))

    def rounded(r: Index, number: int) -> Expr:
        return f.floor(f.cast(regions[r, number], "float32") * scale + 0.5)

    def bound(d: int, upper: bool) -> Tensor:
        def at(r: Index, p: Index) -> Expr:
            start = rounded(r, 2 - d)  # regions are batch, x, y, x, y
            step = f.max(rounded(r, 4 - d) - start + 1, 1) * (1 / out[d])
            here = f.cast(as_expr(p + 1 if upper else p), "float32") * step
            spot = (f.ceil(here) if upper else f.floor(here)) + start
            return f.cast(within(spot, 0, spatial[d]), "int32")

        return define("end" if upper else "start", (count, out[d]), at)

    starts, ends = ([bound(d, upper) for d in (0, 1)] for upper in (False, True))
    y, z = Index("y", spatial[0]), Index("z", spatial[1])

    def row(r: Index, c: Index, y: Index, p: Index) -> Expr:
        hit = (starts[1][r, p] <= z) & (ends[1][r, p] > z)
        element = gathered(x, f.cast(regions[r, 0], "int32"), c, y, z)
        return f.max(f.where(hit, element, -math.inf))

    rows = define("rows", (count, channels, spatial[0], out[1]), row)

    def body(r: Index, c: Index, q: Index, p: Index) -> Expr:
        hit = (starts[0][r, q] <= y) & (ends[0][r, q] > y)
        return f.max(f.where(hit, rows[r, c, y, p], -math.inf))

    made = define("maxroipool", (count, channels, *out), body)

    def filled(r: Index, c: Index, q: Index, p: Index) -> Expr:
        empty = (starts[0][r, q] >= ends[0][r, q]) | (starts[1][r, p] >= ends[1][r, p])
        return f.where(empty, 0, made[r, c, q, p])

    return define("filled", (count, channels, *out), filled)
