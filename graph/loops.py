"""Loops of a network: steps that are repeated, and what goes from one iteration to the next.

The number of iterations is known. Each one reads a row of some arrays and writes a row of others;
a state is what the iteration before made of it:

    for t in range(count):
        h[t + 1], out[t] = body(h[t], x[t], …)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")
W = TypeVar("W")


@dataclass(frozen=True, eq=False)
class Row(Generic[V]):
    """A part of an array that an iteration reads or writes: the next row of `whole` along the
    first axis, the last one first if `backward`."""

    part: V
    whole: V
    backward: bool = False


@dataclass(frozen=True, eq=False)
class State(Generic[V]):
    """A value that goes from one iteration to the next: `before` and `after` in an iteration,
    `start` before the first one, and `last` after the last one."""

    before: V
    start: V
    after: V
    last: V


@dataclass(frozen=True, eq=False)
class Loop(Generic[V]):
    """The iterations: their number, the states, and the rows that each reads and writes."""

    count: int
    states: tuple[State[V], ...]
    reads: tuple[Row[V], ...]
    writes: tuple[Row[V], ...]

    def values(self) -> Iterator[V]:
        """All that the loop names."""
        for s in self.states:
            yield from (s.before, s.start, s.after, s.last)
        for r in (*self.reads, *self.writes):
            yield from (r.part, r.whole)

    def given(self) -> list[V]:
        """The outer values that the loop itself reads."""
        return [s.start for s in self.states] + [r.whole for r in self.reads]

    def made(self) -> list[V]:
        """The values that every iteration must compute."""
        return [s.after for s in self.states] + [r.part for r in self.writes]

    def results(self) -> list[V]:
        """The values after the last iteration."""
        return [s.last for s in self.states] + [r.whole for r in self.writes]

    def map(self, function: Callable[[V], W]) -> Loop[W]:
        """The same loop of other values."""

        def row(r: Row[V]) -> Row[W]:
            return Row(function(r.part), function(r.whole), r.backward)

        states = tuple(
            State(function(s.before), function(s.start), function(s.after), function(s.last))
            for s in self.states
        )
        return Loop(self.count, states, tuple(map(row, self.reads)), tuple(map(row, self.writes)))
