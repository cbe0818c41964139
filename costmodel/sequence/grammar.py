"""The grammar of a space: a config as a sequence of decisions, of which only legal ones exist."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from loopwright.costmodel.sequence.description import (
    Context,
    Described,
    choices,
    context,
    derivations,
    sketches,
)
from loopwright.schedule.space import Space

Prefix = tuple[int, ...]
Points = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Decision:
    """Choices that may follow a prefix: `allowed` numbers, ascending, and their description."""

    allowed: tuple[int, ...]
    described: Described


class Decisions(Protocol):
    """Sequences of decisions about something, of which a model reads the context."""

    @property
    def context(self) -> Context: ...

    def decision(self, prefix: Prefix) -> Decision | None:
        """The choices that may follow a prefix; None where the sequence is whole."""


class Grammar:
    """Sequences of a space's configs: the program, the sketch, then each knob that is open.

    A program is a number in the order of derivations, a sketch its number in the space, and a
    knob's choice its number. Knobs with a single choice are no decision. So every sequence that is
    decided to its end is a config, each config is one sequence, and no sequence is illegal.
    """

    def __init__(self, space: Space, listed: Points | None = None) -> None:
        """`listed` are the only legal points, of shape (n, 1 + knobs): the number of the sketch,
        then the choices. Only prefixes of these are allowed; by default all are legal."""
        self.space = space
        self.programs = list(dict.fromkeys(s.derivation for s in space.sketches))
        self._free = [
            tuple(k for k, knob in enumerate(s.knobs) if len(knob.choices) > 1)
            for s in space.sketches
        ]
        self._of_program: list[list[int]] = [[] for _ in self.programs]
        places = {derivation: place for place, derivation in enumerate(self.programs)}
        self._program = [places[s.derivation] for s in space.sketches]
        for number, program in enumerate(self._program):
            self._of_program[program].append(number)
        self._legal: dict[Prefix, set[int]] | None = None
        if listed is not None:
            self._legal = {}
            for prefix in map(self.sequence, listed.tolist()):
                for end, last in enumerate(prefix):
                    self._legal.setdefault(prefix[:end], set()).add(last)
        self._known: dict[tuple[int, int, tuple[int, ...]], Decision] = {}

    @functools.cached_property
    def context(self) -> Context:
        """The workload and the machine."""
        return context(self.space)

    def decision(self, prefix: Prefix) -> Decision | None:
        """The choices that may follow a prefix; None where the config is decided."""
        if len(prefix) > 1 and len(prefix) == 2 + len(self._free[prefix[1]]):
            return None
        if not prefix:
            every: Sequence[int] = range(len(self.programs))
        elif len(prefix) == 1:
            every = self._of_program[prefix[0]]
        else:
            knob = self._free[prefix[1]][len(prefix) - 2]
            every = range(len(self.space.sketches[prefix[1]].knobs[knob].choices))
        allowed = tuple(every if self._legal is None else sorted(self._legal[prefix]))
        key = (len(prefix), prefix[min(len(prefix), 2) - 1] if prefix else 0, allowed)
        if key not in self._known:
            self._known[key] = Decision(allowed, self._described(prefix, allowed))
        return self._known[key]

    def sequence(self, point: Sequence[int]) -> Prefix:
        """The sequence of a point: the number of its sketch, then its choices."""
        sketch, numbers = point[0], point[1:]
        return (self._program[sketch], sketch, *(numbers[k] for k in self._free[sketch]))

    def point(self, sequence: Prefix) -> tuple[int, ...]:
        """The point of a whole sequence: the number of its sketch, then that of each choice."""
        numbers = [0] * len(self.space.sketches[sequence[1]].knobs)
        for knob, choice in zip(self._free[sequence[1]], sequence[2:], strict=True):
            numbers[knob] = choice
        return (sequence[1], *numbers)

    def _described(self, prefix: Prefix, allowed: Sequence[int]) -> Described:
        target = self.space.target
        if not prefix:
            firsts = [self.space.sketches[self._of_program[i][0]] for i in allowed]
            return derivations(firsts, target)
        if len(prefix) == 1:
            return sketches([self.space.sketches[i] for i in allowed], target)
        sketch = self.space.sketches[prefix[1]]
        return choices(sketch, self._free[prefix[1]][len(prefix) - 2], allowed, target)
