"""Convolutions, in layouts with channels first (NCHW, NCW) and last (NHWC, NWC).

The weights' layout follows that of the data: OIHW and OIW as torch has them for channels first,
HWIO and WIO as TensorFlow has them for channels last.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from loopwright.dsl.errors import NotationError, ShapeError
from loopwright.dsl.functions import cast, equal, where
from loopwright.dsl.index import IndexExpr, as_affine, indices
from loopwright.dsl.ops import check
from loopwright.dsl.ops.elementwise import with_bias
from loopwright.dsl.padding import pad
from loopwright.dsl.tensor import Tensor

T = TypeVar("T")

WEIGHTS = {"NCW": "OIW", "NWC": "WIO", "NCHW": "OIHW", "NHWC": "HWIO"}


def conv1d(  # noqa: PLR0913 - the terms of the operator
    x: Tensor,
    w: Tensor,
    stride: check.PerAxis = 1,
    padding: check.Padding = 0,
    dilation: check.PerAxis = 1,
    groups: int = 1,
    layout: str = "NCW",
    bias: Tensor | None = None,
    accumulate: str | None = None,
) -> Tensor:
    """A convolution over one axis: `out[n, o, x] += x[n, c, x*stride + s*dilation] * w[o, c, s]`.

    Parameters
    ----------
    x: (N, C, W), or (N, W, C) in layout NWC.
    w: (O, C / groups, S), or (S, C / groups, O) in layout NWC.
    stride, padding, dilation, groups, bias, accumulate: as for `conv2d`.

    Returns
    -------
    (N, O, (W + before + after - dilation * (S - 1) - 1) // stride + 1), or channels last.
    """
    check.layout_of("conv1d", layout, ("NCW", "NWC"))
    options = _options("conv1d", layout, stride, padding, dilation, groups)
    return _convolve(options, x, w, bias, accumulate)


def conv2d(  # noqa: PLR0913 - the terms of the operator
    x: Tensor,
    w: Tensor,
    stride: check.PerAxis = 1,
    padding: check.Padding = 0,
    dilation: check.PerAxis = 1,
    groups: int = 1,
    layout: str = "NCHW",
    bias: Tensor | None = None,
    accumulate: str | None = None,
) -> Tensor:
    """A convolution over two axes, summed over the input channels c and the window r, s.

    `out[n, o, y, x] += x[n, c, y*stride + r*dilation, x*stride + s*dilation] * w[o, c, r, s]`

    Parameters
    ----------
    x: (N, C, H, W), or (N, H, W, C) in layout NHWC.
    w: (O, C / groups, R, S), or (R, S, C / groups, O) in layout NHWC.
    stride, dilation: an integer ≥ 1, or one for each of the two axes.
    padding: zeros around x: an integer, one an axis, or `((top, bottom), (left, right))`.
    groups: the channels of x and of the result fall into so many groups, each convolved alone.
    bias: (O,), of the result's dtype, or cast to `accumulate`.
    accumulate: a wider dtype to multiply, sum and return in; by default that of x.

    Returns
    -------
    (N, O, (H + top + bottom - dilation * (R - 1) - 1) // stride + 1, likewise for W), or
    channels last.
    """
    check.layout_of("conv2d", layout, ("NCHW", "NHWC"))
    options = _options("conv2d", layout, stride, padding, dilation, groups)
    return _convolve(options, x, w, bias, accumulate)


def depthwise_conv2d(
    x: Tensor,
    w: Tensor,
    stride: check.PerAxis = 1,
    padding: check.Padding = 0,
    dilation: check.PerAxis = 1,
    layout: str = "NCHW",
    bias: Tensor | None = None,
    accumulate: str | None = None,
) -> Tensor:
    """Every channel convolved alone: `conv2d` with as many groups as x has channels.

    `out[n, o, y, x] += x[n, o // M, y*stride + r*dilation, x*stride + s*dilation] * w[o, 0, r, s]`
    with M results a channel, the multiplier.

    Parameters
    ----------
    x: (N, C, H, W), or (N, H, W, C) in layout NHWC.
    w: (C * M, 1, R, S), or (R, S, 1, C * M) in layout NHWC.
    stride, padding, dilation, bias, accumulate: as for `conv2d`.

    Returns
    -------
    (N, C * M, …, …), or channels last.
    """
    name = "depthwise_conv2d"
    check.layout_of(name, layout, ("NCHW", "NHWC"))
    channels = check.shape_of(name, "x", x, layout)[layout.index("C")]
    options = _options(name, layout, stride, padding, dilation, channels)
    return _convolve(options, x, w, bias, accumulate)


def conv2d_transpose(
    x: Tensor,
    w: Tensor,
    stride: check.PerAxis = 1,
    padding: check.Padding = 0,
    output_padding: check.PerAxis = 0,
    layout: str = "NCHW",
    bias: Tensor | None = None,
    accumulate: str | None = None,
) -> Tensor:
    """The gradient of `conv2d` with respect to its input, as torch's ConvTranspose2d.

    x is spread out, `stride - 1` zeros between its elements, and convolved with the reversed
    window: `out[n, o, y, x] += spread[n, c, y + r, x + s] * w[c, o, R-1-r, S-1-s]`.

    Parameters
    ----------
    x: (N, C, H, W), or (N, H, W, C) in layout NHWC.
    w: (C, O, R, S), or (R, S, C, O) in layout NHWC: the input channels come first, as in torch.
    stride: an integer ≥ 1, or one for each of the two axes.
    padding: what the forward convolution padded, and so how much the result loses at each side.
    output_padding: how much longer the result is at the bottom and at the right; less than stride.
    bias, accumulate: as for `conv2d`.

    Returns
    -------
    (N, O, (H - 1) * stride - top - bottom + R + output_padding, likewise for W), or channels last.
    """
    name = "conv2d_transpose"
    check.layout_of(name, layout, ("NCHW", "NHWC"))
    options = _options(name, layout, stride, padding, 1, 1)
    extra = check.per_axis(name, "output_padding", output_padding, 2, 0)
    if any(more >= step for more, step in zip(extra, options.stride, strict=True)):
        raise NotationError(
            f"{name}: output_padding is {output_padding!r}, stride {stride!r}; it must be less"
        )
    order = ("R", "S", "C", "O") if options.last else ("C", "O", "R", "S")
    weights = dict(zip(order, check.shape_of(name, "w", w, order), strict=True))
    channels = check.shape_of(name, "x", x, layout)[options.channel]
    check.same_extent(name, ("C of x", channels), ("C of w", weights["C"]))
    check.same_dtype(name, accumulate, x=x, w=w, bias=bias)
    wide, dtype = check.sum_types(x, accumulate)
    spread = _spread(options, x, (weights["R"], weights["S"]), extra)
    n, o, c, y, x_, r, s = indices("n o c y x r s", r=weights["R"], s=weights["S"])
    back = (weights["R"] - 1 - r, weights["S"] - 1 - s)
    element = spread[options.order(n, c, (y + r, x_ + s))]
    weight = w[(*back, c, o) if options.last else (c, o, *back)]
    out = Tensor(name)
    out[options.order(n, o, (y, x_))] += cast(element, wide) * cast(weight, wide)
    return with_bias(name, out, bias, options.channel, dtype)


@dataclass(frozen=True)
class _Options:
    """A convolution's options, checked, one entry for each spatial axis."""

    op: str
    layout: str
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def last(self) -> bool:
        """Return whether channels come last."""
        return self.layout.endswith("C")

    @property
    def channel(self) -> int:
        """Position of the channels."""
        return self.layout.index("C")

    def spatial(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The extents of the spatial axes."""
        return shape[1:-1] if self.last else shape[2:]

    def order(self, batch: T, channel: T, spatial: Sequence[T]) -> tuple[T, ...]:
        """Things in the order of the layout."""
        return (batch, *spatial, channel) if self.last else (batch, channel, *spatial)


def _options(
    op: str,
    layout: str,
    stride: check.PerAxis,
    padding: check.Padding,
    dilation: check.PerAxis,
    groups: int,
) -> _Options:
    axes = len(layout) - 2
    return _Options(
        op,
        layout,
        check.per_axis(op, "stride", stride, axes, 1),
        check.pads_of(op, padding, axes),
        check.per_axis(op, "dilation", dilation, axes, 1),
        check.per_axis(op, "groups", groups, 1, 1)[0],
    )


def _convolve(
    f: _Options, x: Tensor, w: Tensor, bias: Tensor | None, accumulate: str | None
) -> Tensor:
    """The convolution of any number of spatial axes, in either layout."""
    per_group, inner, window = _check_weights(f, x, w)
    check.same_dtype(f.op, accumulate, x=x, w=w, bias=bias)
    wide, dtype = check.sum_types(x, accumulate)
    padded = pad(x, f.order((0, 0), (0, 0), f.pads))
    n, o, c = indices("n o c")
    space = indices(" ".join("yx"[-len(window) :]))
    taps = indices(" ".join("rs"[-len(window) :]))
    spots = zip(space, f.stride, taps, f.dilation, strict=True)
    reach = [y * step + r * apart for y, step, r, apart in spots]
    # One channel a group leaves nothing to sum over: a depthwise convolution has no index c.
    own: IndexExpr = as_affine(0) if inner == 1 and f.groups > 1 else c
    source = own if f.groups == 1 else (o // per_group) * inner + own
    element = padded[f.order(n, source, reach)]
    weight = w[(*taps, own, o) if f.last else (o, own, *taps)]
    out = Tensor(f.op)
    out[f.order(n, o, space)] += cast(element, wide) * cast(weight, wide)
    return with_bias(f.op, out, bias, f.channel, dtype)


def _check_weights(f: _Options, x: Tensor, w: Tensor) -> tuple[int, int, tuple[int, ...]]:
    """The results and the input channels of one group, and the window's extents."""
    shape = check.shape_of(f.op, "x", x, f.layout)
    weights = check.shape_of(f.op, "w", w, WEIGHTS[f.layout])
    outer, inner = (weights[-1], weights[-2]) if f.last else weights[:2]
    window = weights[:-2] if f.last else weights[2:]
    if shape[f.channel] != inner * f.groups or outer % f.groups:
        raise ShapeError(
            f"{f.op}: x {shape} has {shape[f.channel]} channels in {f.groups} groups, but w "
            f"{weights} has {inner} input channels a group and {outer} results, as {f.layout} "
            f"takes {WEIGHTS[f.layout]}; x needs {inner} * {f.groups} channels, and the results "
            "divide by the groups"
        )
    extents = zip(f.spatial(shape), f.pads, window, f.dilation, f.layout.strip("NC"), strict=True)
    for extent, pads, taps, apart, axis in extents:
        check.fits(f.op, extent + pads[0] + pads[1], apart * (taps - 1) + 1, f"{axis} of x")
    return outer // f.groups, inner, window


def _spread(f: _Options, x: Tensor, window: tuple[int, ...], extra: tuple[int, ...]) -> Tensor:
    """x with `stride - 1` zeros between its elements, and zeros around them, so that a window
    over it gives the transposed convolution:

    `spread[n, c, u, v] = x[n, c, (u - top) / stride, (v - left) / stride]` where that exists.
    """
    shape = check.shape_of(f.op, "x", x, f.layout)
    n, c, *space = indices("n c u v")
    lengths, sources, tests = [], [], []
    geometry = zip(space, f.spatial(shape), f.stride, f.pads, window, extra, strict=True)
    for u, extent, step, (before, after), taps, more in geometry:
        result = (extent - 1) * step - before - after + taps + more
        if result < 1:
            raise ShapeError(f"{f.op}: padding {f.pads} leaves nothing of x {shape}; pad less")
        lengths.append(result + taps - 1)
        at = u - (taps - 1 - before)
        sources.append(at // step)
        tests += [at >= 0, at < (extent - 1) * step + 1]
        tests += [equal(at % step, 0)] if step > 1 else []
    element = x[f.order(n, c, sources)]
    out = Tensor(f"{x.name}_spread", f.order(shape[0], shape[f.channel], lengths), x.dtype)
    out[f.order(n, c, space)] = where(functools.reduce(operator.and_, tests), element, 0)
    return out
