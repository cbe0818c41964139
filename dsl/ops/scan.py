"""Scans: sums, products and maxima of all elements up to each one.

A reduction over all elements, with a test of their places. Schedules for processors make one loop
of it (`scans`), and others blocks (`scan_blocks`).
"""

from __future__ import annotations

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import identity
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.expr import Const, Reduce
from loopwright.dsl.index import Index
from loopwright.dsl.ops.check import any_shape, axis_of, flags
from loopwright.dsl.tensor import Tensor


def cumsum(x: Tensor, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """`out[i] = sum over k <= i of x[k]` along an axis.

    Parameters
    ----------
    x: of any shape with one axis or more, of numbers. The sums have its type; those of float16 and
        bfloat16 are added up in float32.
    exclusive: k < i.
    reverse: k >= i, or k > i.
    """
    return _scan("cumsum", "sum", x, axis, exclusive, reverse)


def cumprod(x: Tensor, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """`out[i] = product over k <= i of x[k]` along an axis; else as `cumsum`."""
    return _scan("cumprod", "prod", x, axis, exclusive, reverse)


def cummax(x: Tensor, axis: int = -1, reverse: bool = False) -> Tensor:
    """`out[i] = max over k <= i of x[k]` along an axis; k >= i with `reverse`."""
    return _scan("cummax", "max", x, axis, False, reverse)


def cummin(x: Tensor, axis: int = -1, reverse: bool = False) -> Tensor:
    """`out[i] = min over k <= i of x[k]` along an axis; k >= i with `reverse`."""
    return _scan("cummin", "min", x, axis, False, reverse)


def _scan(op: str, reducer: str, x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    shape = any_shape(op, "x", x, 1)
    flags(op, exclusive=exclusive, reverse=reverse)
    if x.dtype == "bool":
        raise ShapeError(f"{op}: x is of truth values; lw.cast it to integers first")
    at = axis_of(op, axis, len(shape))
    wide = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    start = Const(identity(reducer, wide), wide)
    axes = tuple(Index(f"i{d}", n) for d, n in enumerate(shape))
    k = Index("k", shape[at])
    first, last = (axes[at], k) if reverse else (k, axes[at])
    counts = first < last if exclusive else first <= last
    whole, out = Tensor(f"{op}_whole"), Tensor(op)
    value = f.cast(x[(*axes[:at], k, *axes[at + 1 :])], wide)
    whole[axes] = Reduce(reducer, f.where(counts, value, start))
    out[axes] = f.cast(whole[axes], x.dtype)
    return out
