"""Softmax, and the normalizations that models use."""

from __future__ import annotations

import math

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import sum_type
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops import check
from loopwright.dsl.ops.elementwise import axes_of
from loopwright.dsl.tensor import Tensor


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """`out[i, k] = exp(x[i, k] - max_k x[i, k]) / sum_k exp(x[i, k] - max_k x[i, k])`.

    Parameters
    ----------
    x: of any shape with one axis or more, of a floating type.
    axis: the axis of k, along which the result sums to 1.
    """
    return softmax_of(x, axis, x.dtype)


def softmax_of(x: Tensor, axis: int, dtype: str) -> Tensor:
    """Softmax with a result of another dtype than x."""
    axes, rows = _rows("softmax", x, axis)
    shifted = _below_peak("softmax", x, axes, rows)
    powers = Tensor("softmax_exp")
    powers[axes] = f.exp(shifted)
    total = Tensor("softmax_sum")
    total[rows] += powers[axes]
    share = Tensor("softmax_share")
    share[rows] = 1.0 / total[rows]  # at most 1: one division a row, and products
    out = Tensor("softmax")
    out[axes] = f.cast(powers[axes] * share[rows], dtype)
    return out


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """`out[i, k] = x[i, k] - peak[i] - log(sum_k exp(x[i, k] - peak[i]))`, peak the maximum.

    Parameters
    ----------
    x: of any shape with one axis or more, of a floating type.
    axis: the axis of k.
    """
    axes, rows = _rows("log_softmax", x, axis)
    shifted = _below_peak("log_softmax", x, axes, rows)
    total = Tensor("log_softmax_sum")
    total[rows] += f.exp(shifted)
    out = Tensor("log_softmax")
    out[axes] = f.cast(shifted - f.log(total[rows]), x.dtype)
    return out


def layer_norm(
    x: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Tensor:
    """`out[i, k] = (x[i, k] - mean[i]) / sqrt(variance[i] + epsilon) * scale[k] + shift[k]`.

    Parameters
    ----------
    x: of any shape with one axis or more, of a floating type.
    scale, shift: of the shape `x.shape[axis:]`, or None for 1 and 0.
    axis: the first of the axes over which mean and variance are taken; all after it count too.
    epsilon: what keeps the root away from zero.
    """
    check.floating("layer_norm", "x", x)
    shape = check.any_shape("layer_norm", "x", x, least=1)
    at = check.axis_of("layer_norm", axis, len(shape))
    for name, given in (("scale", scale), ("shift", shift)):
        if given is not None and check.any_shape("layer_norm", name, given) != shape[at:]:
            raise ShapeError(
                f"layer_norm: {name} has shape {given.shape}; it needs {shape[at:]}, that of x "
                f"from axis {at} on"
            )
        check.same_dtype("layer_norm", None, x=x, **{} if given is None else {name: given})
    axes = axes_of(shape)
    rows, inner = axes[:at], axes[at:]
    count = math.prod(shape[at:])
    element = f.cast(x[axes], sum_type(x.dtype))
    mean = _mean("layer_norm_mean", rows, element, count)
    centred = element - mean[rows]
    variance = _mean("layer_norm_variance", rows, centred * centred, count)
    out = Tensor("layer_norm")
    unit = centred * f.rsqrt(variance[rows] + epsilon)
    out[axes] = f.cast(_affine(unit, scale, shift, inner), x.dtype)
    return out


def batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Inference with statistics known from training:

    `out[n, c, …] = (x[n, c, …] - mean[c]) / sqrt(variance[c] + epsilon) * scale[c] + shift[c]`

    Parameters
    ----------
    x: of any shape, with C channels at `axis`; of a floating type.
    mean, variance: (C,).
    scale, shift: (C,), or None for 1 and 0.
    epsilon: what keeps the root away from zero.
    """
    check.floating("batch_norm", "x", x)
    shape = check.any_shape("batch_norm", "x", x, least=1)
    at = check.axis_of("batch_norm", axis, len(shape))
    channel = {"mean": mean, "variance": variance, "scale": scale, "shift": shift}
    for name, given in channel.items():
        if given is not None:
            (length,) = check.shape_of("batch_norm", name, given, ("C",))
            check.same_extent(
                "batch_norm", (f"axis {at} of x", shape[at]), (f"C of {name}", length)
            )
            check.same_dtype("batch_norm", None, x=x, **{name: given})
    axes = axes_of(shape)
    c = axes[at : at + 1]
    wide = sum_type(x.dtype)
    element, mid, spread = (f.cast(e, wide) for e in (x[axes], mean[c], variance[c]))
    out = Tensor("batch_norm")
    unit = (element - mid) * f.rsqrt(spread + epsilon)
    out[axes] = f.cast(_affine(unit, scale, shift, c), x.dtype)
    return out


def _affine(x: Expr, scale: Tensor | None, shift: Tensor | None, axes: tuple[Index, ...]) -> Expr:
    if scale is not None:
        x = x * f.cast(scale[axes], x.dtype)
    return x if shift is None else x + f.cast(shift[axes], x.dtype)


def _mean(name: str, rows: tuple[Index, ...], x: Expr, count: int) -> Tensor:
    """The mean over the indices of x that are not in `rows`."""
    total = Tensor(f"{name}_sum")
    total[rows] += x
    out = Tensor(name)
    out[rows] = total[rows] / count
    return out


def _rows(op: str, x: Tensor, axis: int) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """Indices for all axes of x, and for those without `axis`."""
    check.floating(op, "x", x)
    shape = check.any_shape(op, "x", x, least=1)
    at = check.axis_of(op, axis, len(shape))
    axes = axes_of(shape)
    return axes, axes[:at] + axes[at + 1 :]


def _below_peak(op: str, x: Tensor, axes: tuple[Index, ...], rows: tuple[Index, ...]) -> Expr:
    """x less the greatest of its row, so that no exponential overflows."""
    peak, wide = Tensor(f"{op}_max"), sum_type(x.dtype)
    peak[rows] = f.max(x[axes])
    return f.cast(x[axes], wide) - f.cast(peak[rows], wide)
