"""Pools: the greatest element, the mean or a norm of each window, or of parts of regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.halves import in_float32
from loopwright.graph.importers.onnx.operators.convolution import (
    Window,
    around,
    behind,
    sized_pads,
)
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.operators.reduction import along
from loopwright.graph.importers.onnx.operators.sampling import Coordinate, product_of, taps_along
from loopwright.graph.importers.onnx.values import Array, Value, define, shape_of


@dataclass(frozen=True)
class _Pool:
    """A window over a padded image."""

    window: Window
    out: tuple[int, ...]
    taps: tuple[Index, ...]

    def at(self, y: Sequence[Index]) -> list[Any]:
        """The place of the window, in the coordinates of the image that is not padded."""
        w = self.window
        return [
            i * s + r * d - before
            for i, s, r, d, (before, _) in zip(y, w.stride, self.taps, w.dilation, w.pads)
        ]


def _pool(call: Call) -> _Pool:
    spatial = call.shape()[2:]
    kernel = [int(k) for k in call.get("kernel_shape")]
    if len(kernel) != len(spatial):
        raise call.unsupported(f"its kernel_shape is {kernel}, of an image {spatial}")
    window = Window.of(call, spatial, kernel)
    up = bool(call.get("ceil_mode", 0))
    most = behind(call, window) if sized_pads(call) else window.pads
    out, pads = [], []
    motion = zip(spatial, window.reach, window.stride, window.pads, most)
    for n, r, s, (before, after), (_, last) in motion:
        room = n + before + after - r
        count = (-(-room // s) if up else room // s) + 1
        if up and (count - 1) * s >= n + before:
            count -= 1  # no window begins behind the image
        out.append(count)
        # Elements that no window reads do no harm, and are as many at every size.
        more = last + s - 1 if up else last
        pads.append((before, more if call.open else max((count - 1) * s + r - n - before, 0)))
    taps = tuple(Index(f"r{d}", k) for d, k in enumerate(window.extent))
    return _Pool(replace(window, pads=tuple(pads)), tuple(out), taps)


@operator("MaxPool")
def _max_pool(call: Call) -> list[Value]:
    x, pool = call.tensor(0), _pool(call)
    whole = x.dtype.startswith(("int", "uint"))
    lowest = int(np.iinfo(x.dtype).min) if whole else -math.inf
    made = _windows(call, x, pool, lowest, "max")
    if len(call.outputs) < 2 or not call.outputs[1]:
        return [made]
    return [made, _max_places(call, x, pool, made)]


def _windows(call: Call, x: Tensor, pool: _Pool, fill: float, op: str) -> Tensor:
    wide = around(call, x, pool.window.pads, fill)
    w = pool.window

    def body(n: Index, c: Index, *y: Index) -> Expr:
        at = [i * s + r * d for i, s, r, d in zip(y, w.stride, pool.taps, w.dilation)]
        return (f.max if op == "max" else f.sum)(wide[(n, c, *at)])

    return define(call.op.lower(), (*call.shape()[:2], *pool.out), body)


def _max_places(call: Call, x: Tensor, pool: _Pool, highest: Tensor) -> Tensor:
    """The place in the whole tensor of the first greatest element of each window, or of the last
    NaN, as in torch."""
    shape = call.shape()
    spatial = shape[2:]
    order = range(len(spatial))
    if call.get("storage_order", 0):
        order = order[::-1]
    far = 2**31 - 1

    def body(n: Index, c: Index, *y: Index) -> Expr:
        at = pool.at(y)
        element = x[(n, c, *at)]
        place = as_affine(0)
        for d in order:
            place = place * spatial[d] + at[d]
        found = f.where(f.equal(element, highest[(n, c, *y)]), place, far)
        if is_float(x.dtype):
            found = f.where(f.isnan(element), -1 - place, found)
        for p, extent in zip(at, spatial):
            found = f.where((p >= 0) & (p < extent), found, far)
        return f.min(found)

    first = define("place", (*shape[:2], *pool.out), body)
    plane = math.prod(spatial)

    def whole(n: Index, c: Index, *y: Index) -> Expr:
        own = f.cast(n * shape[1] + c, "int64") * plane
        place = first[(n, c, *y)]
        return own + f.cast(f.where(place < 0, -1 - place, place), "int64")

    return define("places", (*shape[:2], *pool.out), whole)


@operator("AveragePool")
@in_float32
def _average_pool(call: Call) -> Value:
    x, pool = call.tensor(0), _pool(call)
    total = _windows(call, x, pool, 0, "sum")
    is_padded = sized_pads(call) or any(map(any, pool.window.pads))
    if call.open and is_padded and set(pool.window.dilation) == {1}:
        return _mean_of_open(call, total, pool)
    counts = _counts(call, pool)
    if (counts == counts.flat[0]).all():
        share = 1 / float(counts.flat[0])
        return define("averagepool", shape_of(total), lambda *i: total[i] * share)
    table = call.as_tensor((1 / counts).astype(x.dtype))
    return define("averagepool", shape_of(total), lambda n, c, *y: total[(n, c, *y)] * table[y])


def _mean_of_open(call: Call, total: Tensor, pool: _Pool) -> Value:
    """The mean of each window, whose elements are counted at the call: an image of open size has
    the same formula at every size."""
    spatial, w = call.shape()[2:], pool.window
    included = bool(call.get("count_include_pad", 0))
    stated = Window.of(call, spatial, w.extent).pads

    def body(n: Index, c: Index, *y: Index) -> Expr:
        mean = total[(n, c, *y)]
        for d, place in enumerate(y):
            first, last = stated[d] if included else (0, 0)
            start = place * w.stride[d] - w.pads[d][0]
            low = f.max(as_expr(start), -first)
            high = f.min(as_expr(start + w.extent[d]), as_expr(spatial[d] + last))
            mean = mean / f.cast(f.max(high - low, 1), str(total.dtype))
        return mean

    return define("averagepool", shape_of(total), body)


def _counts(call: Call, pool: _Pool) -> Array:
    """The number of elements that each window counts."""
    spatial, w = call.shape()[2:], pool.window
    included = bool(call.get("count_include_pad", 0))
    stated = Window.of(call, spatial, w.extent).pads
    counts = np.ones((), np.int64)
    for d, n in enumerate(spatial):
        at = np.arange(pool.out[d])[:, None] * w.stride[d] + np.arange(w.extent[d]) * w.dilation[d]
        at = at - w.pads[d][0]
        low, high = (-stated[d][0], n + stated[d][1]) if included else (0, n)
        counts = np.multiply.outer(counts, ((at >= low) & (at < high)).sum(1))
    return np.maximum(counts, 1)


@operator("LpPool")
@in_float32
def _lp_pool(call: Call) -> Value:
    x, pool, p = call.tensor(0), _pool(call), int(call.get("p", 2))
    powers = define("powers", shape_of(x), lambda *i: _power(f.abs(x[i]), p))
    total = _windows(call, powers, pool, 0, "sum")
    return define("lppool", shape_of(total), lambda *i: _root(total[i], p))


def _power(x: Expr, p: int) -> Expr:
    return x if p == 1 else x * x if p == 2 else f.pow(x, float(p))


def _root(x: Expr, p: int) -> Expr:
    return x if p == 1 else f.sqrt(x) if p == 2 else f.pow(x, 1 / p)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
@in_float32
def _global_pool(call: Call) -> Value:
    x, shape = call.tensor(0), call.shape()
    axes, p = range(2, len(shape)), int(call.get("p", 2))
    if call.op == "GlobalMaxPool":
        return along(x, axes, "max")
    if call.op == "GlobalLpPool":
        total = along(x, axes, "sum", of=lambda e: _power(f.abs(e), p))
        return define("globallppool", shape_of(total), lambda *i: _root(total[i], p))
    total = along(x, axes, "sum")
    share = 1 / math.prod(shape[2:])
    return define("globalaveragepool", shape_of(total), lambda *i: total[i] * share)


@dataclass(frozen=True)
class _Regions:
    """Regions of an image, `[region, (x, y, x, y)]`, as `RoiAlign` divides them into `out` parts
    along each axis. `half`: places are those of the centers of elements."""

    table: Tensor
    scale: float
    half: bool
    out: tuple[int, int]

    @staticmethod
    def of(call: Call) -> _Regions:
        """The regions of a call."""
        mode = call.get("coordinate_transformation_mode", "half_pixel")
        out = (int(call.get("output_height", 1)), int(call.get("output_width", 1)))
        half = call.version >= 16 and mode == "half_pixel"
        return _Regions(call.tensor(1), float(call.get("spatial_scale", 1.0)), half, out)

    def start(self, r: Index, d: int) -> Expr:
        """The start of a region along an axis."""
        return self._end(r, 1 - d)

    def length(self, r: Index, d: int) -> Expr:
        """Its length."""
        length = self._end(r, 3 - d) - self._end(r, 1 - d)
        return length if self.half else f.max(length, 1)

    def _end(self, r: Index, number: int) -> Expr:
        return f.cast(self.table[r, number], "float32") * self.scale - (0.5 if self.half else 0.0)


@operator("RoiAlign", limit="the greatest of samples only for a sampling_ratio above 0")
@in_float32
def _roi_align(call: Call) -> Value:
    x, batch, regions = call.tensor(0), call.tensor(2), _Regions.of(call)
    spatial, count, out = call.shape()[2:], call.shape(1)[0], regions.out
    samples, kind = int(call.get("sampling_ratio", 0)), call.get("mode", "avg")
    if samples < 1:
        return _by_size(call, regions)

    def place(d: int) -> Coordinate:
        def at(r: Index, p: Index, s: Index) -> Expr:
            steps = f.cast(as_expr(p * samples + s), "float32") + 0.5
            return regions.start(r, d) + regions.length(r, d) * steps * (1 / (out[d] * samples))

        return at

    def inside(d: int) -> Tensor:
        def test(*i: Index) -> Expr:
            at = place(d)(*i)
            return f.cast((at >= -1) & (at <= spatial[d]), x.dtype)

        return define("inside", (count, out[d], samples), test)

    counted = [inside(d) for d in (0, 1)]
    taps = [
        taps_along(call, d, (count, out[d], samples), place(d), "linear", "border") for d in (0, 1)
    ]
    taken = [Index(f"s{d}", samples) for d in (0, 1)]

    def body(r: Index, c: Index, *p: Index) -> Expr:
        own = [(r, p[d], taken[d]) for d in (0, 1)]
        at = [one.places[(*i, one.index)] for one, i in zip(taps, own)]
        weight = product_of(taps, own) * counted[0][own[0]] * counted[1][own[1]]
        return (f.max if kind == "max" else f.sum)(x[(batch[r], c, *at)] * weight)

    made = define("roialign", (count, call.shape()[1], *out), body)
    if kind == "max":
        return made
    return define("mean", (count, call.shape()[1], *out), lambda *i: made[i] * samples**-2)


def _by_size(call: Call, regions: _Regions) -> Tensor:
    """Means of as many samples as regions are large: one for each element, about. Each element of
    an axis has the weight that all samples give it, since interpolation is linear."""
    if call.get("mode", "avg") == "max":
        raise call.unsupported(
            "it takes the greatest of the more samples the larger a region is; export it with a "
            "sampling_ratio, such as 2"
        )
    x, batch, (_, channels, *spatial) = call.tensor(0), call.tensor(2), call.shape()
    count, out = call.shape(1)[0], regions.out

    def number(d: int) -> Tensor:
        return define(
            "samples", (count,), lambda r: f.max(f.ceil(regions.length(r, d) * (1 / out[d])), 0)
        )

    numbers = [number(d) for d in (0, 1)]

    def weights(d: int) -> Tensor:
        # Samples are at least half of an element apart: no more of a part lie in the image.
        own = Index(f"s{d}", 2 * spatial[d] + 6)

        def weight(r: Index, p: Index, y: Index) -> Expr:
            length, most = regions.length(r, d), numbers[d][r]
            step = length / (f.max(most, 1) * out[d])
            part = f.cast(as_expr(p), "float32") * most
            low = regions.start(r, d) + part * step
            first = f.max(f.floor((-1 - low) / f.max(step, 1e-6)) - 1, 0)
            sample = first + f.cast(as_expr(own), "float32")
            at = regions.start(r, d) + (part + sample + 0.5) * step
            near = 1 - f.abs(within(at, 0, spatial[d] - 1) - f.cast(as_expr(y), "float32"))
            inside = (sample < most) & (at >= -1) & (at <= spatial[d])
            return f.sum(f.cast(f.where(inside, f.max(near, 0), 0), x.dtype))

        return define("weights", (count, out[d], spatial[d]), weight)

    tall, wide = weights(0), weights(1)
    y, z = Index("y", spatial[0]), Index("z", spatial[1])
    rows = define(
        "rows",
        (count, channels, spatial[0], out[1]),
        lambda r, c, y, q: f.sum(x[batch[r], c, y, z] * wide[r, q, z]),
    )
    total = define(
        "roialign",
        (count, channels, *out),
        lambda r, c, p, q: f.sum(rows[r, c, y, q] * tall[r, p, y]),
    )

    def mean(r: Index, *i: Index) -> Expr:
        samples = f.max(numbers[0][r] * numbers[1][r], 1)
        return total[(r, *i)] / f.cast(samples, x.dtype)

    return define("mean", (count, channels, *out), mean)


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
        element = x[f.cast(regions[r, 0], "int32"), c, y, z]
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
