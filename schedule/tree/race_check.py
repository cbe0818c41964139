"""Races: accesses of a block's threads to shared buffers with no barrier between them.

A buffer may have several *slots*, copies that alternate: its first subscript is then a remainder.
Two accesses to slots whose numbers differ by a constant that the count of slots does not divide
meet never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.schedule.tree.grammar import Buffer, Linear, Remainder

Access = tuple[Buffer, tuple[Linear, ...]]


@dataclass
class _Pending:
    """An access since the last barrier: its slot, and the configs in which it is so; whether it
    is a copy that no wait has ended yet, which a barrier does not."""

    slot: Linear | None
    where: Any
    copied: bool = False


@dataclass
class RaceCheck:
    """Reads and writes since the last barrier, statement by statement."""

    writes: dict[str, list[_Pending]] = field(default_factory=dict)
    reads: dict[str, list[_Pending]] = field(default_factory=dict)

    def touch(
        self, reads: list[Access], write: Access | None, runs: Any, copied: bool = False
    ) -> Iterator[tuple[Any, str, str]]:
        """Reads and one write of a statement that is reached where `runs` holds, or of an
        asynchronous copy; in which configs they meet something earlier, by the name of the buffer
        and what happens to it."""
        shared = [(b, _slot(i)) for b, i in reads if b.scope == "shared"]
        written = [(b, _slot(i)) for b, i in [write] if b.scope == "shared"] if write else []
        for buffer, slot in shared:
            yield from _conflicts(self.writes, buffer, slot, "read after a write")
        for buffer, slot in written:
            yield from _conflicts(self.reads, buffer, slot, "written after a read")
        for accesses, pending in ((shared, self.reads), (written, self.writes)):
            for buffer, slot in accesses:
                pending.setdefault(buffer.name, []).append(_Pending(slot, runs, copied))

    def wait(self) -> None:
        """Asynchronous copies are done as far as a barrier can tell. Which groups a wait is for is
        not looked at."""
        for entry in self._entries():
            entry.copied = False

    def barrier(self, runs: Any) -> None:
        """Drop what is pending where `runs` holds, but for copies without a wait."""
        for entry in self._entries():
            if not entry.copied:
                entry.where = entry.where & ~np.asarray(runs)

    def next_iteration(self) -> None:
        """Carry what is pending over from the iteration before: its slot may be any."""
        for entry in self._entries():
            entry.slot = None

    def _entries(self) -> Iterator[_Pending]:
        for pending in (self.writes, self.reads):
            for entries in pending.values():
                yield from entries


def _conflicts(
    before: dict[str, list[_Pending]], buffer: Buffer, slot: Linear | None, what: str
) -> Iterator[tuple[Any, str, str]]:
    for entry in before.get(buffer.name, ()):
        yield entry.where & ~np.asarray(_differ(slot, entry.slot)), buffer.name, what


def _slot(index: tuple[Linear, ...]) -> Linear | None:
    """The copy of a shared buffer that is reached, if it has several that alternate."""
    first = index[0] if index else Linear()
    one = len(first.terms) == 1 and isinstance(first.terms[0][0], Remainder)
    return first if one else None


def _differ(a: Linear | None, b: Linear | None) -> Any:
    """In which configs two slots, remainders of what differs by a constant, are never equal."""
    if a is None or b is None:
        return False
    first, second = a.terms[0][0], b.terms[0][0]
    assert isinstance(first, Remainder)
    assert isinstance(second, Remainder)
    apart = first.value + second.value * -1
    constant = all(np.all(np.equal(c, 0)) for _, c in apart.terms)
    return (
        constant
        & np.equal(first.divisor, second.divisor)
        & np.not_equal(apart.const % first.divisor, 0)
    )
