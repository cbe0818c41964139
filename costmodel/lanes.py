"""What the lanes of one warp access together: transactions of global and of shared memory.

The subscripts of an access are computed for the 32 lanes of a block's first warp, all other loops
at their first iteration. Global memory moves *sectors* of 32 bytes: an operation of a warp takes
as many transactions as there are sectors in which its lanes read or write. Shared memory has 32
banks of 4 bytes, and gives one *word* of each at a time: lanes that want different words of one
bank take turns. Lanes that want the same word share it. With wider accesses a word is what one
lane wants, up to 16 bytes, and there are fewer banks of such words.

Numbers may be columns, traced ones too: everything is ufuncs, and `matmul` is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.costmodel.column import Real, least, real
from loopwright.schedule.tree import Buffer, Column, Let, Linear, Loop, Quotient, Var, variables

LANES = 32
SECTOR, BANKS = 32.0, 128.0  # bytes of a sector, and of one word of every bank
LANE = np.arange(LANES)[:, None]
_SHIFTS = (1, 2, 4, 8, 16)


@dataclass
class Warp:
    """The values of variables in the lanes of a block's first warp: arrays of shape (32, n), or
    (32, 1) where all configs agree. Variables that are not known are 0."""

    known: dict[Var, Any] = field(default_factory=dict)

    def enter(self, loop: Loop) -> None:
        """Begin the threads of a block; the innermost thread loop counts the fastest."""
        chain = [loop]
        while len(loop.body) == 1 and isinstance(loop.body[0], Loop):
            loop = loop.body[0]
            if loop.kind != "thread":
                break
            chain.append(loop)
        self.known.clear()
        before: Column = 1
        for inner in reversed(chain):
            extent = np.maximum(inner.extent, 1)
            self.known[inner.var] = np.remainder(np.floor_divide(LANE, before), extent)
            before = before * extent

    def let(self, let: Let) -> None:
        """Bind a variable; one that is the same in all lanes counts as 0, as loops do."""
        if self._moves(let.value):
            self.known[let.var] = np.minimum(self.value(let.value), let.limit)

    def sectors(self, buffer: Buffer, index: Sequence[Linear], item: Real) -> Real:
        """Sectors of a buffer in which the lanes are, whose items have so many bytes."""
        if not any(map(self._moves, index)):
            return 1.0
        return distinct(np.floor_divide(self._place(buffer, index) * item, SECTOR))

    def turns(self, buffer: Buffer, index: Sequence[Linear], item: Real, wide: Real) -> Real:
        """Turns that the lanes take at shared memory, where each wants `wide` bytes, at least 4;
        the conflicts are taken to be the same in all banks."""
        if not any(map(self._moves, index)):
            return 1.0
        word = np.floor_divide(self._place(buffer, index) * item, wide)
        banks = BANKS / wide
        return distinct(word) / least(distinct(np.remainder(word, banks)), banks)

    def _moves(self, value: Linear) -> bool:
        return any(var in self.known for var in variables(value))

    def _place(self, buffer: Buffer, index: Sequence[Linear]) -> Any:
        """The element's number in row-major order."""
        place: Any = 0
        stride: Column = 1
        for extent, position in zip(reversed(buffer.shape), reversed(index), strict=True):
            place = place + self.value(position) * stride
            stride = stride * extent
        return place

    def value(self, value: Linear) -> Any:
        """What an index expression is in every lane."""
        total: Any = value.const
        for term, coefficient in value.terms:
            if isinstance(term, Var):
                total = total + self.known.get(term, 0) * coefficient
            else:
                divide = np.floor_divide if isinstance(term, Quotient) else np.remainder
                total = total + divide(self.value(term.value), term.divisor) * coefficient
        return total


def distinct(numbers: Any) -> Real:
    """How many different numbers the lanes have: an array of shape (n,) from one of (32, n).

    A lane is compared with the first one and those that are a power of two before it: numbers
    that come back in a warp mostly do so after a power of two of lanes.
    """
    same = np.multiply(np.equal(np.matmul(_DIFFERENCES, numbers), 0.0), 1.0)
    fresh = np.multiply(np.equal(np.matmul(_OF_LANE, same), 0.0), 1.0)
    count = np.matmul(np.ones(LANES), fresh) + 1.0
    return count.item() if isinstance(count, np.ndarray) and count.size == 1 else real(count)


def _differences() -> Any:
    """The matrix that takes, for every shift, from each lane's number that of an earlier lane; of
    the first lanes, that of the very first, which so is never fresh."""
    parts = [np.eye(LANES) - np.eye(LANES)[np.maximum(LANE[:, 0] - s, 0)] for s in _SHIFTS]
    return np.concatenate(parts)


_DIFFERENCES = _differences()
_OF_LANE = np.tile(np.eye(LANES), len(_SHIFTS))
