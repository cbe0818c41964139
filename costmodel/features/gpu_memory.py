"""Memory transactions of one warp, in global and in shared memory.

The subscripts of an access are computed for lanes 0, 1, 2, 4, 8 and 16 of a block's first warp,
all other loops at their first iteration. The others are taken to be sums of these: lane 5 is as
far from lane 1 as lane 4 is from lane 0. That is exact where extents of threads are powers of two,
and nearly so elsewhere.

Global memory moves *sectors* of 32 bytes: an operation of a warp takes as many transactions as
there are sectors in which its lanes read or write. Shared memory has 32 banks of 4 bytes, and
gives one *word* of each at a time: lanes that want different words of one bank take turns.
Lanes that want the same word share it. With wider accesses a word is what one lane wants, up to
16 bytes, and there are fewer banks of such words.

Numbers may be columns, traced ones too: everything is ufuncs, and `matmul` is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.costmodel.features.batch_arithmetic import Real, least, most, only, real, where
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.parts import nested, value_of

LANES = 32
SECTOR, BANKS = 32.0, 128.0  # bytes of a sector, and of one word of every bank
CHOSEN = np.array([[0], [1], [2], [4], [8], [16]])
_APART = np.concatenate([-np.ones((5, 1)), np.eye(5)], axis=1)
"""Takes the chosen lanes' numbers to how far those after the first are from it, one row each."""


@dataclass
class Warp:
    """The values of variables in the chosen lanes of a block's first warp: arrays of shape (6, n),
    or (6, 1) where all configs agree. Variables that are not known are 0."""

    known: dict[g.Var, Any] = field(default_factory=dict)

    def enter(self, loop: g.Loop) -> None:
        """Begin the threads of a block; the innermost thread loop counts the fastest."""
        self.known.clear()
        before: g.Column = 1
        for inner in reversed(nested(loop)):
            extent = np.maximum(inner.extent, 1)
            self.known[inner.var] = np.remainder(np.floor_divide(CHOSEN, before), extent)
            before = before * extent

    def let(self, let: g.Let) -> None:
        """Bind a variable; one that is the same in all lanes counts as 0, as loops do."""
        if self._moves(let.value):
            self.known[let.var] = np.minimum(self.value(let.value), let.limit)

    def sectors(self, buffer: g.Buffer, index: Sequence[g.Linear], item: Real, wide: Real) -> Real:
        """Sectors of a buffer in which the lanes are, each at `wide` bytes; an item has `item`."""
        if not any(map(self._moves, index)):
            return 1.0
        runs, length = spread(apart(self._place(buffer, index) * item), wide)
        return runs * most(length / SECTOR, 1.0)

    def bank_operations(
        self, buffer: g.Buffer, index: Sequence[g.Linear], item: Real, wide: Real
    ) -> Real:
        """Turns that the lanes take at shared memory, where each wants `wide` bytes, at least 4;
        the conflicts are taken to be the same in all banks."""
        if not any(map(self._moves, index)):
            return 1.0
        banks = BANKS / wide
        words = [np.floor_divide(step, wide) for step in apart(self._place(buffer, index) * item)]
        runs, length = spread(words, 1.0)
        runs_of_banks, banks_of_run = spread([np.remainder(word, banks) for word in words], 1.0)
        return runs * length / least(runs_of_banks * banks_of_run, banks)

    def _moves(self, value: g.Linear) -> bool:
        return any(var in self.known for var in g.variables(value))

    def _place(self, buffer: g.Buffer, index: Sequence[g.Linear]) -> Any:
        """The element's number in row-major order."""
        place: Any = 0
        stride: g.Column = 1
        for extent, position in zip(reversed(buffer.shape), reversed(index), strict=True):
            place = place + self.value(position) * stride
            stride = stride * extent
        return place

    def value(self, value: g.Linear) -> Any:
        """Value of an index expression in every lane."""
        return value_of(value, lambda var: self.known.get(var, 0))


def apart(numbers: Any) -> list[Real]:
    """Distances of lanes 1, 2, 4, 8 and 16 from lane 0: shape (n,) each, from one of (6, n)."""
    steps = (np.abs(np.matmul(row, numbers)) for row in _APART)
    return [s.item() if isinstance(s, np.ndarray) and s.size == 1 else real(s) for s in steps]


def spread(steps: Sequence[Real], length: Real) -> tuple[Real, Real]:
    """Number of runs that sums of any of the steps form, and the length of each. One number by
    itself is a run of `length`: smaller steps make runs longer, others repeat them."""
    runs: Real = 1.0
    for step in steps:
        near = step <= length
        runs = runs * where(near, 1.0, 2.0)
        length = length + only(near, step)
    return runs, length
