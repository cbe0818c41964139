"""Pooling over the two spatial axes, in layouts NCHW and NHWC."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.dsl import functions as fn
from loopwright.dsl.dtypes import limits, sum_type
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index, indices
from loopwright.dsl.ops import check
from loopwright.dsl.padding import pad
from loopwright.dsl.tensor import Tensor

LAYOUTS = ("NCHW", "NHWC")


def max_pool2d(
    x: Tensor,
    window: check.PerAxis,
    stride: check.PerAxis | None = None,
    padding: check.Padding = 0,
    dilation: check.PerAxis = 1,
    layout: str = "NCHW",
) -> Tensor:
    """`out[n, c, y, x] = max over r, s of x[n, c, y*stride + r*dilation, x*stride + s*dilation]`.

    Parameters
    ----------
    x: (N, C, H, W), or (N, H, W, C) in layout NHWC.
    window: the extents R, S of the window: an integer, or one an axis.
    stride: an integer ≥ 1, or one an axis; by default the window.
    padding: an integer, one an axis, or `((top, bottom), (left, right))`; padded elements are the
        lowest value of the dtype, so that they never win.

    Returns
    -------
    (N, C, (H + top + bottom - dilation * (R - 1) - 1) // stride + 1, likewise for W), or
    channels last.
    """
    f = _options("max_pool2d", x, window, stride, padding, dilation, layout)
    out = Tensor("max_pool2d")
    out[f.axes] = fn.max(f.element(x, limits(x.dtype)[0]))
    return out


def avg_pool2d(
    x: Tensor,
    window: check.PerAxis,
    stride: check.PerAxis | None = None,
    padding: check.Padding = 0,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Tensor:
    """`sum[n, c, y, x] += x[n, c, y*stride + r, x*stride + s]`, then `out = sum / count`.

    Parameters
    ----------
    x: (N, C, H, W), or (N, H, W, C) in layout NHWC; of a floating type.
    window, stride, padding, layout: as for `max_pool2d`; padded elements are 0.
    count_include_pad: count is R * S; otherwise the number of elements of x in the window.

    Returns
    -------
    (N, C, (H + top + bottom - R) // stride + 1, likewise for W), or channels last.
    """
    check.floating("avg_pool2d", "x", x)
    check.flags("avg_pool2d", count_include_pad=count_include_pad)
    f = _options("avg_pool2d", x, window, stride, padding, 1, layout)
    total = Tensor("avg_pool2d_sum")
    total[f.axes] += fn.cast(f.element(x, 0), sum_type(x.dtype))
    count: Expr | int = f.window[0] * f.window[1]
    if not count_include_pad and any(map(any, f.pads)):
        count = fn.cast(f.inside(x), total.dtype)
    out = Tensor("avg_pool2d")
    out[f.axes] = fn.cast(total[f.axes] / count, x.dtype)
    return out


def global_avg_pool2d(x: Tensor, keepdims: bool = False, layout: str = "NCHW") -> Tensor:
    """`sum[n, c] += x[n, c, y, x]`, then `out = sum / (H * W)`.

    Parameters
    ----------
    x: (N, C, H, W), or (N, H, W, C) in layout NHWC; of a floating type.
    keepdims: keep the spatial axes, of extent 1.

    Returns
    -------
    (N, C); with keepdims (N, C, 1, 1), or (N, 1, 1, C) in layout NHWC.
    """
    name = "global_avg_pool2d"
    check.floating(name, "x", x)
    check.flags(name, keepdims=keepdims)
    shape = check.shape_of(name, "x", x, check.layout_of(name, layout, LAYOUTS))
    height, width = shape[1:3] if layout == "NHWC" else shape[2:]
    n, c, y, x_ = indices("n c y x")
    total = Tensor(f"{name}_sum")
    element = x[(n, y, x_, c) if layout == "NHWC" else (n, c, y, x_)]
    total[n, c] += fn.cast(element, sum_type(x.dtype))
    out = Tensor(name)
    ones = indices(a=1, b=1)
    kept = (n, *ones, c) if layout == "NHWC" else (n, c, *ones)
    out[kept if keepdims else (n, c)] = fn.cast(total[n, c] / (height * width), x.dtype)
    return out


@dataclass(frozen=True)
class _Pool:
    """The options of a pooling operator, checked, and the indices that it is written in."""

    layout: str
    window: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @property
    def axes(self) -> tuple[Index, ...]:
        """The axes of the result."""
        n, c, y, x = indices("n c y x")
        return (n, y, x, c) if self.layout == "NHWC" else (n, c, y, x)

    def element(self, x: Tensor, fill: float) -> Expr:
        """The element of x, padded with `fill`, at place r, s of the window."""
        n, c, y, x_ = indices("n c y x")
        r, s = indices(r=self.window[0], s=self.window[1])
        row = y * self.stride[0] + r * self.dilation[0]
        column = x_ * self.stride[1] + s * self.dilation[1]
        last = self.layout == "NHWC"
        none = (0, 0)
        padded = pad(x, (none, *self.pads, none) if last else (none, none, *self.pads), fill)
        return padded[(n, row, column, c) if last else (n, c, row, column)]

    def inside(self, x: Tensor) -> Expr:
        """Number of elements of the window that lie inside x, as an int32 element."""
        shape = check.shape_of("avg_pool2d", "x", x, self.layout)
        spatial = shape[1:3] if self.layout == "NHWC" else shape[2:]
        counts = []
        places = zip(indices("y x"), spatial, self.stride, self.pads, self.window, strict=True)
        for index, extent, step, (before, _), taps in places:
            first = index * step - before
            counts.append(fn.min(first + taps, extent) - fn.max(first, 0))
        return counts[0] * counts[1]


def _options(
    op: str,
    x: Tensor,
    window: check.PerAxis,
    stride: check.PerAxis | None,
    padding: check.Padding,
    dilation: check.PerAxis,
    layout: str,
) -> _Pool:
    check.layout_of(op, layout, LAYOUTS)
    shape = check.shape_of(op, "x", x, layout)
    pool = _Pool(
        layout,
        check.per_axis(op, "window", window, 2, 1),
        check.per_axis(op, "stride", window if stride is None else stride, 2, 1),
        check.pads_of(op, padding, 2),
        check.per_axis(op, "dilation", dilation, 2, 1),
    )
    spatial = shape[1:3] if layout == "NHWC" else shape[2:]
    for axis, extent, pads, taps, apart in zip(
        "HW", spatial, pool.pads, pool.window, pool.dilation, strict=True
    ):
        check.fits(op, extent + pads[0] + pads[1], apart * (taps - 1) + 1, f"{axis} of x")
    return pool
