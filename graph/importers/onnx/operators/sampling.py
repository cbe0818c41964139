"""Images read between their elements, at places that are known at a call only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.dsl import functions as f
from loopwright.dsl import ops
from loopwright.dsl.dtypes import sum_type
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.operators.convolution import Window
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.operators.shapes import reshaped
from loopwright.graph.importers.onnx.values import Value, define

Coordinate = Callable[..., Expr]
"""A place along one axis, in elements, for each element of a result."""

_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
_STEEPNESS = -0.75
"""The coefficient of cubic interpolation, Keys 1981."""


@dataclass(frozen=True)
class Taps:
    """The elements along one axis that a place lies between, and their weights.

    Both tensors have the axes of the places, and one more for the elements.
    """

    places: Tensor
    weights: Tensor
    index: Index


def taps_along(
    call: Call,
    axis: int,
    shape: Sequence[int],
    at: Coordinate,
    mode: str,
    padding: str = "zeros",
    aligned: bool = True,
) -> Taps:
    """The taps along a spatial axis of a call's first input, for places of a shape.

    What lies outside of the axis is zero, or that of its `padding`: "border" or "reflection".
    """
    offsets, extent = _TAPS[mode], call.shape()[2 + axis]
    low, reach = (0.0, extent - 1.0) if aligned else (-0.5, float(extent))
    last = extent - 1.0
    # The places of cubic taps are moved each by itself, as in torch and onnxruntime.
    before = "zeros" if mode == "cubic" else padding
    own = define("place", shape, lambda *i: _inside(at(*i), before, low, reach, last))

    def tap(i: Sequence[Index]) -> tuple[Expr, Expr]:
        place = own[tuple(i[:-1])]
        if mode == "nearest":
            return f.round(place), as_expr(0.0)
        spot = f.floor(place) + f.cast(as_expr(i[-1] + offsets[0]), own.dtype)
        return spot, f.abs(place - spot)

    def weight(*i: Index) -> Expr:
        spot, distance = tap(i)
        share = _share(distance, mode)
        if padding == "zeros":
            share = f.where((spot >= 0) & (spot <= last), share, 0)
        return f.cast(share, call.dtype())

    def place(*i: Index) -> Expr:
        return f.cast(within(_inside(tap(i)[0], padding, low, reach, last), 0, last), "int32")

    wide = (*shape, len(offsets))
    index = Index(f"t{axis}", len(offsets))
    return Taps(define("tap", wide, place), define("weight", wide, weight), index)


def _inside(x: Expr, padding: str, low: float, reach: float, last: float) -> Expr:
    """A place that padding moves onto the axis, which reaches so far from `low` on."""
    if padding == "border":
        return within(x, 0, last)
    if padding != "reflection":
        return x
    if reach == 0:
        return x * 0
    away = f.abs(x - low)
    rest = away - f.floor(away * (0.5 / reach)) * (2 * reach)
    return f.where(
        (x < low) | (away > reach), f.where(rest > reach, 2 * reach - rest, rest) + low, x
    )


def _share(distance: Expr, mode: str) -> Expr:
    """The weight of an element at a distance."""
    if mode == "nearest":
        return distance + 1
    if mode == "linear":
        return 1 - distance
    a, x = _STEEPNESS, distance
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return f.where(x <= 1, near, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)


def product_of(taps: Sequence[Taps], at: Sequence[Sequence[Any]]) -> Expr:
    """The product of the weights of all axes."""
    weight = taps[0].weights[(*at[0], taps[0].index)]
    for one, i in zip(taps[1:], at[1:]):
        weight = weight * one.weights[(*i, one.index)]
    return weight


@operator("GridSample")
def _grid_sample(call: Call) -> Value:
    x, grid = call.tensor(0), call.tensor(1)
    shape, own = call.shape(0), call.shape(1)
    rank, aligned = len(shape) - 2, bool(call.get("align_corners", 0))
    mode = call.get("mode", "linear").removeprefix("bi")
    padding, wide = call.get("padding_mode", "zeros"), sum_type(grid.dtype)

    def place(d: int) -> Coordinate:
        def at(*i: Index) -> Expr:
            g = f.cast(grid[(*i, rank - 1 - d)], wide)  # the last axis comes first
            if aligned:
                return (g + 1) * 0.5 * float(shape[2 + d] - 1)
            return ((g + 1) * float(shape[2 + d]) - 1) * 0.5

        return at

    taps = [taps_along(call, d, own[:-1], place(d), mode, padding, aligned) for d in range(rank)]

    def body(n: Index, c: Index, *o: Index) -> Expr:
        at = [one.places[(n, *o, one.index)] for one in taps]
        return f.sum(x[(n, c, *at)] * product_of(taps, [(n, *o)] * rank))

    return define("gridsample", (*shape[:2], *own[1:-1]), body)


@operator("DeformConv")
def _deform_conv(call: Call) -> Value:
    x, weights, offset = call.tensor(0), call.value(1), call.tensor(2)
    (batch, channels, *spatial), (outer, inner, *kernel) = call.shape(0), call.shape(1)
    out, rank, size = call.shape(2)[2:], len(kernel), math.prod(kernel)
    window = Window.of(call, spatial, kernel)
    groups, parts = int(call.get("group", 1)), int(call.get("offset_group", 1))
    per = channels // parts
    mask, wide = call.tensor(4) if call.has(4) else None, sum_type(offset.dtype)

    def place(d: int) -> Coordinate:
        inside = math.prod(kernel[d + 1 :])

        def at(n: Index, g: Index, k: Index, *o: Index) -> Expr:
            row = (k // inside) % kernel[d] if rank > 1 else k
            start = o[d] * window.stride[d] - window.pads[d][0] + row * window.dilation[d]
            shift = offset[(n, (g * size + k) * rank + d, *o)]
            return f.cast(as_expr(start), wide) + f.cast(shift, wide)

        return at

    taps = [
        taps_along(call, d, (batch, parts, size, *out), place(d), "linear") for d in range(rank)
    ]

    def column(n: Index, c: Index, k: Index, *o: Index) -> Expr:
        at = [one.places[(n, c // per, k, *o, one.index)] for one in taps]
        weight = product_of(taps, [(n, c // per, k, *o)] * rank)
        return f.sum(x[(n, c, *at)] * weight)

    columns = define("sampled", (batch, channels, size, *out), column)
    if mask is not None:
        whole = columns
        columns = define(
            "masked",
            (batch, channels, size, *out),
            lambda n, c, k, *o: whole[(n, c, k, *o)] * mask[(n, (c // per) * size + k, *o)],
        )
    flat = call.as_tensor(reshaped(call, weights, (outer, inner, size)))
    c, k, each = Index("c", inner), Index("k", size), outer // groups

    def body(n: Index, m: Index, *o: Index) -> Expr:
        source = as_affine(c) if groups == 1 else (m // each) * inner + c
        return f.sum(columns[(n, source, k, *o)] * flat[m, c, k])

    made = define("deformconv", (batch, outer, *out), body)
    return ops.bias_add(made, call.tensor(3)) if call.has(3) else made
