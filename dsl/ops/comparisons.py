"""Orders by comparisons: for machines without the run-time's, and for short rows.

Every element is compared with every other one: its rank is the number of those before it. Long
rows are cut into blocks, whose greatest elements are compared again, as in a tournament. All of it
is vector code without branches, but a full sort takes n^2 comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import ORDERS, Expr, Read
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.ranges import ranks_of
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import map_leaves
from loopwright.dsl.workload import Workload, defined, workload

_BLOCK = 256  # elements that are compared with each other, while there are more than twice as many


def by_comparisons(given: Workload, chosen: Callable[[Definition], bool]) -> Workload:
    """The same workload of fixed shapes, where `chosen` orders are sums of comparisons."""

    def how(d: Definition) -> Redefinition | None:
        if d.reducer not in ORDERS or not chosen(d):
            return None
        return lambda out: _compare(out, d)

    return redefined(given, how)


def _compare(out: Tensor, d: Definition) -> None:
    """Define the places of an order."""
    ranks, (along,) = ranks_of(d.axes, d.body), d.reduce
    rows = tuple(i for i in d.axes if i not in ranks)
    extent, count = d.extents[along], d.extents[ranks[0]] if ranks else 1
    values = Tensor(f"{out.name}_all")
    values[(*rows, along)] = d.body
    named = tuple(Index(f"i{n}", d.extents[i]) for n, i in enumerate(rows))
    top = _Tournament(out.name, named, extent, d.reducer == "greatest")
    found = top.of(values, None, extent, count)
    out[d.axes] = found[(*rows, ranks[0] if ranks else 0)]


@dataclass(frozen=True)
class _Tournament:
    """The first elements of rows in an order; places from `extent` on are none. The rows' indices
    have names that its own ones have not."""

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


Redefinition = Callable[[Tensor], None]
"""A function that defines a tensor."""


def redefined(given: Workload, how: Callable[[Definition], Redefinition | None]) -> Workload:
    """The same workload of fixed shapes, its inputs and outputs named as they were. `how` says how
    to define a stage anew; None if it stays."""
    if all(how(defined(stage)) is None for stage in given.stages):
        return given
    copies: dict[Tensor, Tensor] = {t: t for t in given.inputs}
    for stage in given.stages:
        d = defined(stage)
        d = Definition(d.axes, d.reduce, d.reducer, _moved(d, copies))
        copy = copies[stage] = Tensor(stage.name, stage.shape, stage.dtype)
        define = how(d)
        if define is None:
            copy.definition = d
        else:
            define(copy)
    return workload(*(copies[t] for t in given.outputs), inputs=given.inputs)


def _moved(d: Definition, copies: Mapping[Tensor, Tensor]) -> Expr:
    """A definition's body, of copies and with the extents that its loops have."""
    known = {i: i for i in (*d.axes, *d.reduce)}

    def position(p: Affine) -> Affine:
        return p.replace(known.__getitem__)

    def read(r: Read) -> Expr:
        return Read(copies[r.tensor], tuple(map(position, r.index)))

    return map_leaves(d.body, read, position)
