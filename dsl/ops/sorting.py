"""The greatest elements in order, and sorting.

Every element is compared with every other one: its rank is the number of those before it. Long
rows are cut into blocks, whose greatest elements are compared again, as in a tournament. All of it
is vector code without branches, but a full sort takes n^2 comparisons: it is for rows of up to a
few thousand elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops.check import any_shape, axis_of
from loopwright.dsl.tensor import Tensor

_BLOCK = 256  # elements that are compared with each other, while there are more than twice as many


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
    return _ordered("topk", x, k, axis, largest)


def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The elements along an axis in order, NaN behind all numbers (before them if descending)."""
    n = any_shape("sort", "x", x, 1)[axis_of("sort", axis, len(x.shape or ()))]
    return _ordered("sort", x, n, axis, descending)[0]


def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The places, in int64, of the elements along an axis in order; equal ones stay in theirs."""
    n = any_shape("argsort", "x", x, 1)[axis_of("argsort", axis, len(x.shape or ()))]
    return _ordered("argsort", x, n, axis, descending)[1]


def _ordered(op: str, x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    shape = any_shape(op, "x", x, 1)
    at = axis_of(op, axis, len(shape))
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= shape[at]:
        raise NotationError(f"{op}: k is {k!r}; it is an integer from 1 to {shape[at]}")
    axes = [Index(f"i{d}", n) for d, n in enumerate(shape)]
    rows = (*axes[:at], *axes[at + 1 :])
    top = _Tournament(op, rows, shape[at], largest)

    def element(place: Any) -> Expr:
        value: Expr = x[(*axes[:at], place, *axes[at + 1 :])]
        return value

    c, r = Index("c", shape[at]), Index("r", k)
    values = Tensor(f"{op}_all")
    values[(*rows, c)] = f.cast(element(c), "uint8") if x.dtype == "bool" else element(c)
    found = top.of(values, None, shape[at], k)
    best, where = Tensor(f"{op}_values"), Tensor(f"{op}_places")
    result = (*axes[:at], r, *axes[at + 1 :])
    best[result] = element(found[(*rows, r)])
    where[result] = f.cast(found[(*rows, r)], "int64")
    return best, where


@dataclass(frozen=True)
class _Tournament:
    """The first elements of rows in an order; places from `extent` on are none."""

    op: str
    rows: tuple[Index, ...]
    extent: int
    largest: bool

    def of(self, values: Tensor, places: Tensor | None, count: int, k: int) -> Tensor:
        """The places of the first k of `count` candidates, `[rows, k]`; those of candidates are
        given, or are their numbers."""
        size = count if count <= 2 * _BLOCK or 2 * k > _BLOCK else _BLOCK
        blocks, kept = -(-count // size), min(k, size)
        b, i, j, r = Index("b", blocks), Index("i", size), Index("j", size), Index("r", kept)
        c = Index("c", blocks * size)
        whole, named = Tensor(f"{self.op}_padded"), Tensor(f"{self.op}_named")
        whole[(*self.rows, c)] = f.where(c < count, values[(*self.rows, c)], 0)
        if places is not None:
            named[(*self.rows, c)] = f.where(c < count, places[(*self.rows, c)], self.extent)
        rank, found = Tensor(f"{self.op}_rank"), Tensor(f"{self.op}_found")
        one, other = ((*self.rows, b * size + place) for place in (j, i))
        before = self._before(whole[one], whole[other], j < i)
        if places is not None or blocks > 1:
            is_one, is_other = (
                place[-1] < count if places is None else named[place] < self.extent
                for place in (one, other)
            )
            before = is_one & (~is_other | before) | ~is_one & ~is_other & (j < i)
        rank[(*self.rows, b, i)] = f.sum(f.where(before, 1, 0))
        mine = f.equal(rank[(*self.rows, b, i)], r)
        found[(*self.rows, b, r)] = f.sum(f.where(mine, b * size + i, 0))
        e = Index("e", blocks * kept)
        at = found[(*self.rows, e // kept, e % kept)]
        next_values, next_places = Tensor(f"{self.op}_best"), Tensor(f"{self.op}_best_at")
        place = f.min(at, self.extent) if places is None else named[(*self.rows, at)]
        next_places[(*self.rows, e)] = place
        if blocks == 1:
            return next_places
        next_values[(*self.rows, e)] = whole[(*self.rows, at)]
        return self.of(next_values, next_places, blocks * kept, k)

    def _before(self, one: Expr, other: Expr, first: Expr) -> Expr:
        """Return whether one candidate comes before another; `first` decides among equals."""
        ahead, behind = one > other, one < other
        if is_float(one.dtype):
            ahead |= f.isnan(one) & ~f.isnan(other)
            behind |= f.isnan(other) & ~f.isnan(one)
        if not self.largest:
            ahead, behind = behind, ahead
        return ahead | ~behind & first
