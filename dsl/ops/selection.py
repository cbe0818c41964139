"""Places of the greatest and the least elements, and elements in order.

An order is one definition, whose reducer says which element comes first:

    P[i, r] = greatest(X[i, c])    the place c of the element of rank r

Values are what lies at these places. `by_comparisons` states the same by sums of comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import INTEGERS, check_dtype, is_float
from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import Expr, Reduce, as_expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops.check import any_shape, axis_of, flags
from loopwright.dsl.size import Size, least
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


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k greatest elements along an axis and their places, the greatest first.

    Of equal elements, those with lower places come first. NaN is greater than all numbers.

    Parameters
    ----------
    x: of any shape with one axis or more.
    k: how many, at most the extent of the axis.
    largest: False for the least ones, the least first.

    Returns
    -------
    Values in the type of x, and places in int64; both with extent k along the axis.
    """
    flags("topk", largest=largest)
    return _ordered("topk", x, k, axis, largest)


def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The elements along an axis in order, NaN behind all numbers (before them if descending)."""
    flags("sort", descending=descending)
    n = any_shape("sort", "x", x, 1)[axis_of("sort", axis, len(x.shape or ()))]
    return _ordered("sort", x, n, axis, descending)[0]


def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The places, in int64, of the elements along an axis in order; equal ones stay in theirs."""
    flags("argsort", descending=descending)
    n = any_shape("argsort", "x", x, 1)[axis_of("argsort", axis, len(x.shape or ()))]
    return _ordered("argsort", x, n, axis, descending)[1]


def _ordered(op: str, x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    shape = any_shape(op, "x", x, 1)
    at = axis_of(op, axis, len(shape))
    extent: Any = shape[at]
    if k is not extent:
        most = least(extent)
        if isinstance(k, bool) or not isinstance(k, SupportsIndex) or not 0 <= int(k) <= most:
            of = f", the least {extent}" if isinstance(extent, Size) else ""
            raise NotationError(f"{op}: k is {k!r}; it is an integer from 0 to {most}{of}")
        k = int(k)
    axes = [Index(f"i{d}", n) for d, n in enumerate(shape)]
    row = (*axes[:at], Index("c", shape[at]), *axes[at + 1 :])
    result = (*axes[:at], Index("r", k), *axes[at + 1 :])
    found, best, where = (Tensor(f"{op}_{name}") for name in ("found", "values", "places"))
    element = f.cast(x[row], "uint8") if x.dtype == "bool" else x[row]
    found[result] = Reduce("greatest" if largest else "least", element)
    best[result] = x[(*axes[:at], found[result], *axes[at + 1 :])]
    where[result] = f.cast(found[result], "int64")
    return best, where
