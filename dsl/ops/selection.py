"""Places of the greatest and the least elements."""

from __future__ import annotations

from collections.abc import Callable

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import INTEGERS, check_dtype, is_float
from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops.check import any_shape, axis_of, flags
from loopwright.dsl.tensor import Tensor


def argmax(
    x: Tensor,
    axis: int = -1,
    keepdims: bool = False,
    select_last: bool = False,
    dtype: str = "int64",
) -> Tensor:
    """`out[i] = the first k where x[i, k] is the greatest`; the first NaN, if there is one.

    Parameters
    ----------
    x: of any shape with one axis or more.
    axis: the axis of k.
    keepdims: whether the axis stays, of extent 1.
    select_last: the last such k in place of the first.
    dtype: integer type of the result.
    """
    return _place("argmax", f.max, x, axis, keepdims, select_last, dtype)


def argmin(
    x: Tensor,
    axis: int = -1,
    keepdims: bool = False,
    select_last: bool = False,
    dtype: str = "int64",
) -> Tensor:
    """`out[i] = the first k where x[i, k] is the least`; else as `argmax`."""
    return _place("argmin", f.min, x, axis, keepdims, select_last, dtype)


def _place(
    op: str,
    extreme: Callable[[object], Expr],
    x: Tensor,
    axis: int,
    keepdims: bool,
    select_last: bool,
    dtype: str,
) -> Tensor:
    shape = any_shape(op, "x", x, 1)
    flags(op, keepdims=keepdims, select_last=select_last)
    if check_dtype(dtype) not in INTEGERS:
        raise NotationError(f"{op}: dtype is {dtype}; use one of {', '.join(INTEGERS)}")
    at = axis_of(op, axis, len(shape))
    axes = tuple(Index(f"i{d}", n) for d, n in enumerate(shape))
    k, n = axes[at], shape[at]
    rows = tuple(a for a in axes if a is not k)
    value = f.cast(x[axes], "uint8") if x.dtype == "bool" else x[axes]
    peak, place = Tensor(f"{op}_peak"), Tensor(f"{op}_place")
    peak[rows] = extreme(value)
    # Places of NaN are moved by n beyond all others, whatever a maximum makes of NaN.
    none, moved = (-1, n) if select_last else (n, -n)
    found = f.where(f.equal(value, peak[rows]), k, none)
    if is_float(x.dtype):
        found = f.where(f.isnan(value), as_expr(k) + moved, found)
    place[rows] = f.max(found) if select_last else f.min(found)
    out = Tensor(op)
    kept = tuple(Index(a.name, 1) if a is k else a for a in axes) if keepdims else rows
    first = place[rows]
    if is_float(x.dtype):
        beyond = first >= n if select_last else first < 0
        first = f.where(beyond, first - moved, first)
    out[kept] = f.cast(first, dtype)
    return out
