"""Scans in blocks: for GPUs and schedules by hand, which have no loop with a running result.

Every element is made of those of its own block, by a masked reduction, and of the results of the
blocks before it, which are scanned likewise. That is 32 operations an element in place of the n of
its notation, all of them reductions that every schedule knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import identity
from loopwright.dsl.elements import COMBINE
from loopwright.dsl.expr import Binary, Const, Expr, Reduce
from loopwright.dsl.index import Affine, Index, IndexExpr, as_affine
from loopwright.dsl.ops.comparisons import Redefinition, redefined
from loopwright.dsl.scans import Scan, scan_of
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import map_subscripts
from loopwright.dsl.workload import Workload

_BLOCK = 32


def in_blocks(given: Workload) -> Workload:
    """The same workload of fixed shapes, where scans of long rows are made of blocks."""

    def how(d: Definition) -> Redefinition | None:
        scan = scan_of(d.axes, d.reduce, d.reducer, d.body)
        if scan is None or d.extents[scan.axis] <= 2 * _BLOCK:
            return None
        return lambda out: _scan_in_blocks(out, d, scan)

    return redefined(given, how)


def _scan_in_blocks(out: Tensor, d: Definition, scan: Scan) -> None:
    """Define a scan by blocks."""
    (along,), n = d.reduce, d.extents[scan.axis]
    # Blocks have indices of their own, whose names the rows' are not to have.
    axes = tuple(Index(f"i{number}", d.extents[i]) for number, i in enumerate(d.axes))
    known: dict[Index, IndexExpr] = dict(zip(d.axes, axes, strict=True))

    def value(place: IndexExpr) -> Expr:
        """The number of a place, counted from where the scan begins."""
        own = {**known, along: n - 1 - as_affine(place) if scan.backward else place}
        return map_subscripts(scan.body, lambda p: p.replace(own.__getitem__))

    assert d.reducer is not None
    row = _Row(out.name, d.reducer, axes, d.axes.index(scan.axis), scan.exclusive)
    i = row.axes[row.at]
    row.define(out, value, n - 1 - i if scan.backward else i.affine())


@dataclass(frozen=True)
class _Row:
    """A row that is scanned, along the axis `at` this place."""

    name: str
    reducer: str
    axes: tuple[Index, ...]
    at: int
    exclusive: bool

    def define(self, out: Tensor, value: Callable[[IndexExpr], Expr], place: Affine) -> None:
        """Define the scan of elements of some `value`, of which `place` is the last one."""
        n = self.axes[self.at].extent
        assert n is not None, self.axes[self.at]
        k = Index("k", n)
        if n <= 2 * _BLOCK:
            out[self.axes] = self._reduced(self._counts(k, place), value(k))
            return
        b, j, k = Index("b", -(-n // _BLOCK)), Index("j", _BLOCK), Index("k", _BLOCK)
        here, total, ahead = (Tensor(f"{self.name}_{x}") for x in ("here", "total", "ahead"))
        inside, own = b * _BLOCK + k < n, value(b * _BLOCK + k)
        here[self._place(b, j)] = self._reduced(self._counts(k, j) & inside, own)
        total[self._place(b)] = self._reduced(inside, own)
        blocks = replace(self, axes=self._place(b), exclusive=True)
        blocks.define(ahead, lambda at: total[self._place(at)], b.affine())
        block, rest = place // _BLOCK, place % _BLOCK
        x, y = here[self._place(block, rest)], ahead[self._place(block)]
        out[self.axes] = Binary(COMBINE[self.reducer], x, y)

    def _counts(self, k: Index, last: IndexExpr) -> Expr:
        """Return whether a place counts."""
        return k < last if self.exclusive else k <= last

    def _reduced(self, counts: Expr, value: Expr) -> Expr:
        """The result of the elements that count."""
        start = Const(identity(self.reducer, value.dtype), value.dtype)
        return Reduce(self.reducer, f.where(counts, value, start))

    def _place(self, *at: IndexExpr) -> tuple[Any, ...]:
        """Subscripts of an element whose place along the axis is this."""
        return (*self.axes[: self.at], *at, *self.axes[self.at + 1 :])
