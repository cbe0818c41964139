"""Places of the values of loops: a row in its array, a state in two places by turns.

An iteration reads the one place of a state and writes the other, so that nothing is copied between
iterations but what lies elsewhere: a state that is an output, too.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.codegen.library.plan import aligned
from loopwright.dsl.dtypes import item_bytes
from loopwright.graph.loops import Loop, Row
from loopwright.graph.network import Value
from loopwright.schedule.tree.formula import Formula

Number = Formula | int
Copy = tuple[Value, Value]
"""A copy from one value to another."""


@dataclass(frozen=True, eq=False)
class Part:
    """Part of an array: where it begins, in bytes, and how that moves in a loop, as of a
    `codegen.library.plan.Place`."""

    root: Value
    offset: Number = 0
    stride: Number = 0
    several: int = 0


class Parts:
    """The values that lie in others, with the copies before each loop (`starts`) and at the end of
    each iteration. `count` says how many iterations a loop has."""

    def __init__(
        self,
        nbytes: Callable[[Value], Number] = operator.attrgetter("nbytes"),
        count: Callable[[Loop[Value]], Number] = operator.attrgetter("count"),
    ) -> None:
        self._nbytes, self.count = nbytes, count
        self._known: dict[Value, Part] = {}
        self._made = itertools.count(1)
        self._both: dict[Value, Number] = {}
        self.starts: dict[Loop[Value], list[Copy]] = {}
        self.copies: dict[Loop[Value], list[Copy]] = {}

    def nbytes(self, value: Value) -> Number:
        """Bytes of a value, or of both places of a state."""
        return self._both[value] if value in self._both else self._nbytes(value)

    def add(
        self, value: Value, source: Value, offset: Number, stride: Number = 0, several: int = 0
    ) -> None:
        """Say where a value lies in another."""
        self._known[value] = Part(source, offset, stride, several)

    def of(self, value: Value) -> Part:
        """The array in whose storage a value lies, and where."""
        offset: Number = 0
        stride: Number = 0
        several = 0
        while (part := self._known.get(value)) is not None:
            value, offset = part.root, part.offset + offset
            if part.stride != 0:
                stride, several = part.stride, part.several
        return Part(value, offset, stride, several)

    def data(self, value: Value) -> np.ndarray[Any, Any]:
        """The value of a constant."""
        part = self.of(value)
        assert part.root.data is not None, value.name
        assert isinstance(part.offset, int), "constants have one size"
        first = part.offset // item_bytes(value.dtype)
        flat = part.root.data.reshape(-1)
        return flat[first : first + math.prod(value.shape)].reshape(value.shape)

    def add_loop(self, loop: Loop[Value], made: Container[Value]) -> None:
        """Say where all that a loop names lies. `made` are the results of its steps, of which
        some are written where they belong; the others are copied."""
        copies: list[Copy] = []
        count = self.count(loop)

        def slot(value: Value) -> Value:
            """The value that is placed for another one: itself, or what it is copied to."""
            if value in made and self.of(value).root is value:
                return value
            copies.append((value, self._new(value.shape, value.dtype)))
            return copies[-1][1]

        def row(r: Row[Value]) -> tuple[Number, Number]:
            size = self._nbytes(r.part)
            return ((count - 1) * size, -size) if r.backward else (0, size)

        for r in loop.reads:
            self.add(r.part, r.whole, *row(r))
        for s in loop.states:
            size = aligned(self._nbytes(s.start))
            elements = 2 * aligned(s.start.nbytes) // item_bytes(s.start.dtype)
            both = self._new((int(elements),), s.start.dtype)
            self._both[both] = size * 2
            self.add(s.before, both, 0, size, 2)
            self.add(slot(s.after), both, size, -size, 2)
            self.add(s.last, both, (count - count // 2 * 2) * size)
        for r in loop.writes:
            self.add(slot(r.part), r.whole, *row(r))
        self.starts[loop] = [(s.start, s.before) for s in loop.states]
        self.copies[loop] = copies

    def _new(self, shape: tuple[int, ...], dtype: str) -> Value:
        return Value(-next(self._made), "state", shape, dtype)


def needed(
    uses: Mapping[Value, list[int]], spans: Iterable[tuple[int, int, Container[Value]]]
) -> dict[Value, tuple[int, int]]:
    """The first and the last entry of a plan for which each array must be there.

    `uses` are the entries that touch it. A span has the first and the last entry of a loop, and
    the values that its steps make: those that nothing else touches live for one iteration, all
    others that it touches as long as the loop.
    """
    ends = {value: (min(numbers), max(numbers)) for value, numbers in uses.items()}
    for first, last, made in spans:
        for value, numbers in uses.items():
            if not any(first <= n <= last for n in numbers):
                continue
            begin, end = ends[value]
            if value not in made or begin < first or end > last:
                ends[value] = min(begin, first), max(end, last)
    return ends
