"""Scans: sums, products and maxima of all elements up to each one.

A reduction over all elements, with a test of their places. Schedules for processors make one loop
of it where rows are long. Long rows of fixed length are scanned in blocks: every element from
those of its own block, by a masked reduction, and from the results of the blocks before it, which
are scanned likewise. That is 32 operations an element in place of the n of a plain sum, all of
them reductions that every schedule knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import limits
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.expr import Const, Expr, as_expr
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.ops.check import any_shape, axis_of
from loopwright.dsl.size import Size
from loopwright.dsl.tensor import Tensor

_BLOCK = 32
_Combine = Callable[[Any, Any], Expr]


@dataclass(frozen=True)
class _Way:
    """How a row is scanned."""

    exclusive: bool
    reverse: bool
    in_blocks: bool = True


def cumsum(
    x: Tensor,
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
    in_blocks: bool = True,
) -> Tensor:
    """`out[i] = sum over k <= i of x[k]` along an axis.

    Parameters
    ----------
    x: of any shape with one axis or more, of numbers. The sums have its type; those of float16 and
        bfloat16 are added up in float32.
    exclusive: k < i.
    reverse: k >= i, or k > i.
    in_blocks: whether long rows are summed in blocks, at once. Else one loop goes over each row on
        processors, and GPUs take n terms for each element. Rows of open size are never in blocks.
    """
    way = _Way(exclusive, reverse, in_blocks)
    return _scan("cumsum", f.sum, lambda a, b: a + b, 0, x, axis, way)


def cumprod(
    x: Tensor,
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
    in_blocks: bool = True,
) -> Tensor:
    """`out[i] = product over k <= i of x[k]` along an axis; else as `cumsum`."""
    way = _Way(exclusive, reverse, in_blocks)
    return _scan("cumprod", f.prod, lambda a, b: a * b, 1, x, axis, way)


def cummax(x: Tensor, axis: int = -1, reverse: bool = False) -> Tensor:
    """`out[i] = max over k <= i of x[k]` along an axis; k >= i with `reverse`."""
    return _scan("cummax", f.max, f.max, limits(x.dtype)[0], x, axis, _Way(False, reverse))


def cummin(x: Tensor, axis: int = -1, reverse: bool = False) -> Tensor:
    """`out[i] = min over k <= i of x[k]` along an axis; k >= i with `reverse`."""
    return _scan("cummin", f.min, f.min, limits(x.dtype)[1], x, axis, _Way(False, reverse))


def _scan(
    op: str,
    reduce: Callable[[object], Expr],
    combine: _Combine,
    identity: float | int,
    x: Tensor,
    axis: int,
    way: _Way,
) -> Tensor:
    shape = any_shape(op, "x", x, 1)
    if x.dtype == "bool":
        raise ShapeError(f"{op}: x is of truth values; lw.cast it to integers first")
    at = axis_of(op, axis, len(shape))
    wide = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    start = as_expr(identity, like=Const(0, wide))
    axes = [Index(f"i{d}", n) for d, n in enumerate(shape)]
    n, i, out = shape[at], axes[at], Tensor(op)

    def element(tensor: Tensor, *place: Affine | Index) -> Expr:
        """An element of the row, its place along the axis given."""
        value: Expr = tensor[(*axes[:at], *place, *axes[at + 1 :])]
        return value

    def given(place: Affine | Index) -> Expr:
        """Element of x at a place counted from where the scan begins."""
        return f.cast(element(x, n - 1 - place if turned else place), wide)

    whole_rows = isinstance(n, Size) or not way.in_blocks
    turned = way.reverse and not whole_rows
    place = n - 1 - i if turned else i.affine()
    if whole_rows or n <= 2 * _BLOCK:
        k = Index("k", n)
        whole = Tensor(f"{op}_whole")
        first, last = (place, k) if way.reverse and whole_rows else (k, place)
        before = first < last if way.exclusive else first <= last
        whole[tuple(axes)] = reduce(f.where(before, given(k.affine()), start))
        out[tuple(axes)] = f.cast(whole[tuple(axes)], x.dtype)
        return out
    count = -(-n // _BLOCK)
    b, j, k = Index("b", count), Index("j", _BLOCK), Index("k", _BLOCK)
    at_k = b * _BLOCK + k
    inside = at_k < n
    within, total = Tensor(f"{op}_within"), Tensor(f"{op}_total")
    value = given(at_k)
    before = k < j if way.exclusive else k <= j
    within[(*axes[:at], b, j, *axes[at + 1 :])] = reduce(f.where(before & inside, value, start))
    total[(*axes[:at], b, *axes[at + 1 :])] = reduce(f.where(inside, value, start))
    ahead = _scan(op, reduce, combine, identity, total, at, _Way(True, False))
    own = element(within, place // _BLOCK, place % _BLOCK)
    out[tuple(axes)] = f.cast(combine(own, element(ahead, place // _BLOCK)), x.dtype)
    return out
