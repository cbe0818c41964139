"""Convolutions over any number of axes, channels first, and their transposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl import ops
from loopwright.dsl.dtypes import sum_type
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.ops.elementwise import with_bias
from loopwright.dsl.padding import pad
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.operators.linear import requantized, without_zero
from loopwright.graph.importers.onnx.values import Array, Value, all_of, define, number, shape_of

Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Window:
    """The motion of a window: an entry of each for every spatial axis."""

    extent: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pads

    @staticmethod
    def of(call: Call, spatial: Sequence[int], extent: Sequence[int]) -> Window:
        """The window of a call over axes of `spatial` extents."""
        rank = len(extent)
        _check_kernel(call, extent)
        stride, dilation = (call.numbers(name, rank, 1) for name in ("strides", "dilations"))
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, extent)]
        auto = call.get("auto_pad", "NOTSET")
        if auto.startswith("SAME"):
            pads = []
            for n, s, r in zip(spatial, stride, reach):
                total = max((-(-n // s) - 1) * s + r - n, 0)
                less, more = total // 2, total - total // 2
                pads.append((less, more) if auto == "SAME_UPPER" else (more, less))
        elif auto == "VALID":
            pads = [(0, 0)] * rank
        else:
            given = call.numbers("pads", 2 * rank)
            pads = list(zip(given[:rank], given[rank:]))
        return Window(tuple(extent), tuple(stride), tuple(dilation), tuple(pads))

    @property
    def reach(self) -> tuple[int, ...]:
        """The extent of the window with what it leaves out."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.extent))


def sized_pads(call: Call) -> bool:
    """Return whether widths of padding follow open sizes, so that they may be 0 at some."""
    return call.open and str(call.get("auto_pad", "")).startswith("SAME")


def behind(call: Call, window: Window) -> Pads:
    """Padding whose widths behind an image are the most of all its sizes. No window reads more
    of it, and sizes with other remainders have one formula."""
    up = call.get("auto_pad") == "SAME_UPPER"
    return tuple((a, (r - 1 + up) // 2) for (a, _), r in zip(window.pads, window.reach))


def around(call: Call, x: Tensor, pads: Pads, fill: float = 0) -> Tensor:
    """An image with padding, which has the same form at all open sizes."""
    widths = ((0, 0), (0, 0), *pads)
    if not sized_pads(call):
        return pad(x, widths, fill)
    shape = shape_of(x)

    def body(*axes: Index) -> Expr:
        tests = []
        # An axis without a test may be a loop around steps, at some sizes.
        for i, n, (before, _) in zip(axes, shape, widths):
            tests += [i >= before, i < before + n]
        at = [i - before for i, (before, _) in zip(axes, widths)]
        return f.where(all_of(tests), x[tuple(at)], number(fill, str(x.dtype)))

    return define(f"{x.name}_pad", [n + a + b for n, (a, b) in zip(shape, widths)], body)


def _check_kernel(call: Call, extent: Sequence[int]) -> None:
    """Raise an error where a call states another window than its weights have."""
    stated, own = call.get("kernel_shape"), list(extent)
    if stated is not None and list(stated) != own:
        raise call.unsupported(f"its kernel_shape is {list(stated)}; it may be {own} here")


@operator("Conv")
def _conv(call: Call) -> Value:
    w = call.value(1)
    call.check_shape(2, shape_of(w)[0])
    return convolved(call, call.tensor(0), w, call.optional(2))


def convolved(call: Call, x: Tensor, w: Value, bias: Value | None) -> Value:
    """The convolution of a call. Where the weights are known, `call.scaled` learns of it."""
    weights = shape_of(w)
    window = Window.of(call, shape_of(x)[2:], weights[2:])
    groups = int(call.get("group", 1))
    if shape_of(x)[1] != weights[1] * groups or weights[0] % groups:
        raise call.unsupported(f"x {shape_of(x)} and weights {weights} do not fit {groups} groups")

    if sized_pads(call):
        x = around(call, x, behind(call, window))
        window = replace(window, pads=((0, 0),) * len(window.pads))

    def made(w: Value, bias: Value | None) -> Tensor:
        return _convolution(call, x, call.as_tensor(w), bias, window, groups)

    ones = (1,) * (len(weights) - 1)
    return _scalable(call, made, w, bias, weights[0], lambda factor: factor.reshape(-1, *ones))


def _scalable(
    call: Call,
    made: Callable[[Value, Value | None], Tensor],
    w: Value,
    bias: Value | None,
    channels: int,
    shaped: Callable[[Array], Array],
) -> Tensor:
    """A convolution. Of known weights, `call.scaled` learns how its channels are scaled; `shaped`
    gives a factor of each channel the axes of the weights."""
    result = made(w, bias)
    if not isinstance(w, np.ndarray) or isinstance(bias, Tensor):
        return result

    def scaled(factor: Array, summand: Array) -> Tensor:
        factor = np.broadcast_to(factor, (channels,))
        shifted = summand if bias is None else bias * factor + summand
        shifted = np.ascontiguousarray(np.broadcast_to(shifted, (channels,))).astype(w.dtype)
        return made(call.weights.scaled(w, shaped(factor)), shifted)

    call.scaled[result] = scaled
    return result


def _convolution(
    call: Call, x: Tensor, w: Tensor, bias: Value | None, window: Window, groups: int
) -> Tensor:
    rank, wide = len(window.extent), sum_type(x.dtype)
    if rank <= 2:
        function = ops.conv1d if rank == 1 else ops.conv2d
        options = (window.stride, window.pads, window.dilation, groups)
        made = function(x, w, *options, accumulate=wide)
    else:
        made = _over_axes(x, w, window, groups)
    return _with_bias(call, made, bias, x.dtype)


def _with_bias(call: Call, x: Tensor, bias: Value | None, dtype: str) -> Tensor:
    """Sums plus a bias, if there is one. Sums of halves are rounded with it, not before."""
    if isinstance(bias, np.ndarray) and not bias.any():
        bias = None
    return with_bias("conv", x, None if bias is None else call.as_tensor(bias), 1, dtype)


def _over_axes(x: Tensor, w: Tensor, window: Window, groups: int) -> Tensor:
    """A convolution over three axes or more, halves in float32."""
    dtype = sum_type(x.dtype)
    (outer, inner), rank = shape_of(w)[:2], len(window.extent)
    wide = pad(x, ((0, 0), (0, 0), *window.pads))
    spatial = [
        (n - r) // s + 1 for n, r, s in zip(shape_of(wide)[2:], window.reach, window.stride)
    ]
    c, taps = Index("c", inner), [Index(f"r{d}", window.extent[d]) for d in range(rank)]
    per = outer // groups

    def body(n: Index, o: Index, *y: Index) -> Expr:
        own = as_affine(0) if inner == 1 and groups > 1 else as_affine(c)
        source = own if groups == 1 else (o // per) * inner + own
        at = [i * s + r * d for i, s, r, d in zip(y, window.stride, taps, window.dilation)]
        return f.sum(f.cast(wide[(n, source, *at)], dtype) * f.cast(w[(o, own, *taps)], dtype))

    return define("conv", (shape_of(x)[0], outer, *spatial), body)


@operator(
    "ConvTranspose",
    limit="of padding SAME, its extents are the input's times the strides, as ONNX says; "
    "onnxruntime's are less where a kernel is smaller than its stride",
)
def _conv_transpose(call: Call) -> Value:
    x, w = call.tensor(0), call.value(1)
    weights, groups = shape_of(w), int(call.get("group", 1))
    rank = len(weights) - 2
    stride, dilation = (call.numbers(name, rank, 1) for name in ("strides", "dilations"))
    extra = call.numbers("output_padding", rank)
    _check_kernel(call, weights[2:])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weights[2:])]
    spatial = shape_of(x)[2:]
    whole = [s * (n - 1) + r + e for s, n, r, e in zip(stride, spatial, reach, extra)]
    pads = _transposed_pads(call, spatial, stride, whole)
    out = tuple(n - a - b for n, (a, b) in zip(whole, pads))

    def made(w: Value, bias: Value | None) -> Tensor:
        weights = call.as_tensor(w)
        if (
            rank == 2
            and groups == 1
            and set(dilation) == {1}
            and _plain(pads, reach, extra, stride)
        ):
            options = (tuple(stride), pads, tuple(extra))
            given = ops.conv2d_transpose(x, weights, *options, accumulate=sum_type(x.dtype))
        else:
            given = _transposed(x, weights, out, pads, stride, dilation, groups)
        return _with_bias(call, given, bias, x.dtype)

    def shaped(factor: Array) -> Array:
        by = np.repeat(factor.reshape(groups, 1, -1), weights[0] // groups, 1)
        return by.reshape(*weights[:2], *(1,) * rank)

    return _scalable(call, made, w, call.optional(2), weights[1] * groups, shaped)


def _transposed_pads(
    call: Call, spatial: Sequence[int], stride: Sequence[int], whole: Sequence[int]
) -> Pads:
    """Elements that the result loses at each end; less than nothing where it is to be larger."""
    rank, auto = len(stride), call.get("auto_pad", "NOTSET")
    wanted = call.get("output_shape")
    if wanted is None and auto.startswith("SAME"):
        wanted = [n * s for n, s in zip(spatial, stride)]
    if wanted is not None:
        pads = []
        for n, w in zip(whole, list(wanted)[-rank:]):
            total = n - int(w)
            less = total // 2
            pads.append((less, total - less) if auto == "SAME_UPPER" else (total - less, less))
        return tuple(pads)
    given = call.numbers("pads", 2 * rank)
    return tuple(zip(given[:rank], given[rank:])) if auto != "VALID" else ((0, 0),) * rank


def _plain(pads: Pads, reach: Sequence[int], extra: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether `ops.conv2d_transpose` has such options."""
    whole = all(0 <= p < r for pair, r in zip(pads, reach) for p in pair)
    return whole and all(e < s for e, s in zip(extra, stride))


def _transposed(
    x: Tensor,
    w: Tensor,
    out: Sequence[int],
    pads: Pads,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """`out[n, o, y] += x[n, c, (y + before - r*d) / s] * w[c, o, r]` where that divides,
    halves in float32."""
    dtype = sum_type(x.dtype)
    (channels, per), window, spatial = shape_of(w)[:2], shape_of(w)[2:], shape_of(x)[2:]
    inner = channels // groups
    c = Index("c", inner)
    taps = [Index(f"r{d}", n) for d, n in enumerate(window)]

    def body(n: Index, o: Index, *y: Index) -> Expr:
        source = as_affine(c) if groups == 1 else (o // per) * inner + c
        own = as_affine(o) if groups == 1 else o % per
        tests, at = [], []
        for i, (before, _), s, d, r, extent in zip(y, pads, stride, dilation, taps, spatial):
            spot = i + before - r * d
            tests += [spot >= 0, spot < extent * s]
            if s > 1:
                tests.append(f.equal(spot % s, 0))
            at.append(spot // s if s > 1 else spot)
        element = f.where(all_of(tests), x[(n, source, *at)], 0)
        return f.sum(f.cast(element, dtype) * f.cast(w[(source, own, *taps)], dtype))

    return define("convtranspose", (shape_of(x)[0], per * groups, *out), body)


@operator("ConvInteger")
def _conv_integer(call: Call) -> Value:
    x = without_zero(call, call.value(0), call.optional(2))
    w = without_zero(call, call.value(1), call.optional(3), 0)
    return convolved(call, x, w, None)


@operator("QLinearConv")
def _qlinear_conv(call: Call) -> Value:
    x = without_zero(call, call.value(0), call.value(2))
    w = without_zero(call, call.value(3), call.value(5), 0)
    sums = convolved(call, x, w, call.optional(8))
    x_scale, w_scale = call.value(1), call.value(4)

    def body(*i: Index) -> Expr:
        by_channel = shape_of(w_scale) not in ((), (1,))
        weight = call.read(w_scale, (i[1],)) if by_channel else call.single(w_scale)
        scale = call.single(x_scale) * weight
        return f.cast(sums[i], "float32") * f.cast(scale, "float32")

    return requantized(call, define("scaled", shape_of(sums), body), 6, 7)


@operator("Col2Im")
def _col2im(call: Call) -> Value:
    image, block = call.ints(1) or [], call.ints(2) or []
    rank = len(image)
    x, (batch, rows, _) = call.tensor(0), call.shape()
    given = call.numbers("pads", 2 * rank)
    stride, dilation = (call.numbers(name, rank, 1) for name in ("strides", "dilations"))
    spots = [
        (n + given[d] + given[rank + d] - dilation[d] * (block[d] - 1) - 1) // stride[d] + 1
        for d, n in enumerate(image)
    ]
    size = math.prod(block)
    taps = [Index(f"r{d}", k) for d, k in enumerate(block)]

    def body(n: Index, c: Index, *y: Index) -> Expr:
        tests, row, column = [], as_affine(c), as_affine(0)
        for d, i in enumerate(y):
            spot = i + given[d] - taps[d] * dilation[d]
            tests += [spot >= 0, spot < spots[d] * stride[d], f.equal(spot % stride[d], 0)]
            row = row * block[d] + taps[d]
            column = column * spots[d] + spot // stride[d]
        return f.sum(f.where(all_of(tests), x[n, row, column], 0))

    return define("col2im", (batch, rows // size, *image), body)
