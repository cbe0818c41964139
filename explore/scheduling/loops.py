"""The state of LoopTune's environment: the loops of a nest, a cursor, and seven actions.

    up, down              move the cursor
    swap_up, swap_down    exchange its loop with the neighbour, and go along
    split_4, 8, 16        tile its loop: `for i  ↦  for i.outer: for i.inner`

Grubisic et al. 2023, section 4. A state is a value: an action makes another one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.workload import Workload
from loopwright.schedule.cpu.inner_loops import Place, axis_strides, kind_steps, places
from loopwright.schedule.cpu.lower_hand import hand_sketch
from loopwright.schedule.loops.nothing import refuse_nothing
from loopwright.schedule.program.nest import strides as row_major
from loopwright.schedule.sketch.hand import HandNest, Split, Step, structure
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

ACTIONS = ("up", "down", "swap_up", "swap_down", "split_4", "split_8", "split_16")
ROWS, NUMBERS = 16, 20
"""Loops that a state describes, and numbers of each."""
_BINS = 16

Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class Problem:
    """A workload whose last stage is scheduled; the stages before it run as the notation has them.

    Attributes
    ----------
    start: the loops that an episode begins with.
    accesses: elements that each access moves along every axis; the result's is the last.
    """

    workload: Workload
    target: Target
    start: HandNest
    accesses: tuple[Mapping[str, int | None], ...]
    _before: tuple[HandNest, ...]

    @staticmethod
    def of(workload: Workload, target: Target, order: Sequence[str] | None = None) -> Problem:
        """The loops in the order in which the body names their axes, as in LoopTool, or in
        another one. Raises `ConfigError` for an order that does not name every axis once."""
        refuse_nothing(workload)
        *before, last = hand_sketch(workload, structure(())).hand
        names = [loop.name for loop in last.loops]
        if order is None:
            read = (i.name for r in last.nest.reads() for p in r.index for i in p.indices())
            order = [name for name in dict.fromkeys((*read, *names)) if name in names]
        if sorted(order) != sorted(names):
            raise ConfigError(
                f"the order {', '.join(order)} is to name each of {', '.join(names)} once"
            )
        step = Step(len(before), "order", tuple(map(names.index, order)))
        return Problem(workload, target, last.after(step), axis_strides(last), tuple(before))

    @property
    def flops(self) -> float:
        """Floating-point operations of a call."""
        return float(self.workload.flops)


@dataclass(frozen=True)
class Described:
    """One loop in numbers: iterations, what the last one lacks, where its axis stands."""

    size: int
    tail: int
    place: Place
    reduce: bool


@dataclass(frozen=True, eq=False)
class State:
    """The loops of a nest, outermost first, and the position of the cursor.

    States of one problem with equal `key` are one schedule, whatever steps led there.
    """

    problem: Problem
    hand: HandNest
    cursor: int = 0

    @staticmethod
    def first(problem: Problem) -> State:
        """The state that an episode begins with."""
        return State(problem, problem.start)

    @functools.cached_property
    def key(self) -> tuple[tuple[str, int], ...]:
        """The schedule: names and extents of its loops."""
        return tuple((loop.name, loop.extent) for loop in self.hand.loops)

    @functools.cached_property
    def loops(self) -> tuple[Described, ...]:
        """The loops in numbers."""
        at, tails = places(self.hand), {}
        for r in self.hand.relations:
            if isinstance(r, Split):
                tails[r.outer] = r.extent % r.factor
        return tuple(
            Described(x.extent, tails.get(x.name, 0), at[x.name], x.reduce)
            for x in self.hand.loops
        )

    def after(self, action: int) -> State | None:
        """The state after an action; None where it is not legal, or leaves no room."""
        name, at, last = ACTIONS[action], self.cursor, len(self.hand.loops) - 1
        if name in ("up", "down"):
            to = at + (1 if name == "down" else -1)
            return replace(self, cursor=to) if 0 <= to <= last else None
        if name in ("swap_up", "swap_down"):
            to = at + (1 if name == "swap_down" else -1)
            if not 0 <= to <= last:
                return None
            order = list(range(last + 1))
            order[at], order[to] = to, at
            return self._step("order", order, to)
        factor = int(name.removeprefix("split_"))
        loop = self.hand.loops[at]
        rows = last + 2
        if self.hand.nest.reducer is not None:  # those that write the result are described too
            rows += len([x for x in self.hand.loops if not x.reduce]) + (not loop.reduce)
        if loop.extent <= factor or rows > ROWS:
            return None
        return self._step("split", (at, factor), at)

    def _step(self, operation: str, numbers: Sequence[int], cursor: int) -> State | None:
        try:
            hand = self.hand.after(Step(0, operation, tuple(numbers)))
        except ConfigError:
            return None
        return State(self.problem, hand, cursor)

    @functools.cached_property
    def successors(self) -> tuple[State | None, ...]:
        """The state after every action."""
        return tuple(self.after(action) for action in range(len(ACTIONS)))

    @property
    def mask(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        """1 for the actions that are legal."""
        return np.array([after is not None for after in self.successors], np.int8)

    @functools.cached_property
    def observation(self) -> Floats:
        """The state in numbers, of shape (`ROWS`, `NUMBERS`).

        A row is a loop, first those of the computation, then those that write its result: whether
        the cursor is here, size, tail, 0 for computation and 1 for writing, and how many accesses
        move by 2^0, 2^1, … 2^15 elements in one iteration. Rows that are not needed are 0.
        """
        rows = np.zeros((ROWS, NUMBERS), np.float32)
        for row, loop in zip(rows, self.loops):
            row[1:3] = loop.size, loop.tail
            for access in self.problem.accesses:
                _count(row, access[loop.place.axis], loop.place.step)
        rows[self.cursor, 0] = 1
        if self.hand.nest.reducer is None:
            return rows
        written = [loop for loop in self.loops if not loop.reduce]
        held = row_major(tuple(loop.size for loop in written))
        for row, loop, own in zip(rows[len(self.loops) :], written, held):
            row[1:4] = loop.size, loop.tail, 1
            _count(row, own, 1)
            _count(row, self.problem.accesses[-1][loop.place.axis], loop.place.step)
        return rows

    @functools.cached_property
    def config(self) -> Config:
        """The schedule as a config of the workload: splits, one order, and then vectors and
        unrolled loops by LoopNest's rules."""
        number = len(self.problem._before)
        steps: list[Step] = []
        hand = HandNest.of(self.hand.nest, self.hand.constant)
        for r in self.hand.relations:
            if isinstance(r, Split):
                steps.append(Step(number, "split", (hand.position(r.parent), r.factor)))
                hand = hand.after(steps[-1])
        order = tuple(hand.position(loop.name) for loop in self.hand.loops)
        if order != tuple(range(len(order))):
            steps.append(Step(number, "order", order))
        steps += kind_steps(self.hand, number, self.problem.target)
        for n, nest in enumerate(self.problem._before):
            steps += kind_steps(nest, n, self.problem.target)
        return Config(SketchName(Derivation(), structure(steps)), ())

    def __str__(self) -> str:
        words = [f"{name}={size}" for name, size in self.key]
        words[self.cursor] = f"[{words[self.cursor]}]"
        return " ".join(words)


def _count(row: Floats, along: int | None, step: int) -> None:
    """Count an access in the histogram of a row."""
    if along:
        row[4 + min(_BINS - 1, int(math.log2(abs(along) * step)))] += 1
