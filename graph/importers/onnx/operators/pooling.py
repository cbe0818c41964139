"""Pools: the greatest element, the mean or a norm of each window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.tensor import Tensor, pad
from loopwright.graph.importers.onnx.call import Array, Call, Value, define, operator, shape_of
from loopwright.graph.importers.onnx.operators.convolution import Pads, Window
from loopwright.graph.importers.onnx.operators.reduction import along


@dataclass(frozen=True)
class _Pool:
    """A window over a padded image."""

    window: Window
    out: tuple[int, ...]
    taps: tuple[Index, ...]

    def at(self, y: Sequence[Index]) -> list[Any]:
        """Where the window stands, in the coordinates of the image that is not padded."""
        w = self.window
        return [
            i * s + r * d - before
            for i, s, r, d, (before, _) in zip(y, w.stride, self.taps, w.dilation, w.pads)
        ]


def _pool(call: Call) -> _Pool:
    spatial = call.shape()[2:]
    window = Window.of(call, spatial, [int(k) for k in call.get("kernel_shape")])
    up = bool(call.get("ceil_mode", 0))
    out, pads = [], []
    for n, r, s, (before, after) in zip(spatial, window.reach, window.stride, window.pads):
        room = n + before + after - r
        count = (-(-room // s) if up else room // s) + 1
        if up and (count - 1) * s >= n + before:
            count -= 1  # no window begins behind the image
        out.append(count)
        pads.append((before, max((count - 1) * s + r - n - before, 0)))
    taps = tuple(Index(f"r{d}", k) for d, k in enumerate(window.extent))
    return _Pool(replace(window, pads=tuple(pads)), tuple(out), taps)


def _padded(x: Tensor, pads: Pads, fill: float) -> Tensor:
    return pad(x, ((0, 0), (0, 0), *pads), fill)


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
    wide = _padded(x, pool.window.pads, fill)
    w = pool.window

    def body(n: Index, c: Index, *y: Index) -> Expr:
        at = [i * s + r * d for i, s, r, d in zip(y, w.stride, pool.taps, w.dilation)]
        return (f.max if op == "max" else f.sum)(wide[(n, c, *at)])

    return define(call.op.lower(), (*call.shape()[:2], *pool.out), body)


def _max_places(call: Call, x: Tensor, pool: _Pool, highest: Tensor) -> Tensor:
    """Where in the whole tensor the first greatest element of each window lies."""
    shape = call.shape()
    spatial = shape[2:]
    order = range(len(spatial))
    if call.get("storage_order", 0):
        order = order[::-1]
    far = 2**31 - 1

    def body(n: Index, c: Index, *y: Index) -> Expr:
        at = pool.at(y)
        hit = f.equal(x[(n, c, *at)], highest[(n, c, *y)])
        for p, extent in zip(at, spatial):
            hit = f.where((p >= 0) & (p < extent), hit, False)
        place = as_affine(0)
        for d in order:
            place = place * spatial[d] + at[d]
        return f.min(f.where(hit, place, far))

    first = define("place", (*shape[:2], *pool.out), body)
    plane = math.prod(spatial)

    def whole(n: Index, c: Index, *y: Index) -> Expr:
        own = f.cast(n * shape[1] + c, "int64") * plane
        return own + f.cast(first[(n, c, *y)], "int64")

    return define("places", (*shape[:2], *pool.out), whole)


@operator("AveragePool")
def _average_pool(call: Call) -> Value:
    x, pool = call.tensor(0), _pool(call)
    total = _windows(call, x, pool, 0, "sum")
    counts = _counts(call, pool)
    if (counts == counts.flat[0]).all():
        share = 1 / float(counts.flat[0])
        return define("averagepool", shape_of(total), lambda *i: total[i] * share)
    table = call.as_tensor((1 / counts).astype(x.dtype))
    return define("averagepool", shape_of(total), lambda n, c, *y: total[(n, c, *y)] * table[y])


def _counts(call: Call, pool: _Pool) -> Array:
    """How many elements each window counts."""
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
