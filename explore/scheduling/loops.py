"""The state of LoopTune's environment: the loops of a nest, a cursor, and seven actions.

    up, down              move the cursor
    swap_up, swap_down    exchange its loop with the neighbour, and go along
    split_4, 8, 16        tile its loop: `for i  ↦  for i.outer: for i.inner`

Grubisic et al. 2023, section 4. A state is a value: an action makes another one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError, TargetError
from loopwright.dsl.words import brief, counted
from loopwright.dsl.workload import Workload, as_workload
from loopwright.schedule.cpu.inner_loops import (
    PlainLoop,
    Strides,
    axis_strides,
    kind_steps,
    plain_loops,
)
from loopwright.schedule.cpu.lower_hand import hand_sketch
from loopwright.schedule.loops.nothing import refuse_nothing
from loopwright.schedule.program.nest import lanes
from loopwright.schedule.sketch.hand import HandNest, Step, structure
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
    nests: all stages, as the notation has them.
    start: the loops of the last one, in the order that an episode begins with.
    strides: elements that each access moves along every axis; the result's is the last.
    lanes: of the nest's vectors.
    """

    workload: Workload
    target: Target
    nests: tuple[HandNest, ...]
    start: tuple[PlainLoop, ...]
    strides: Strides
    lanes: int
    _moves: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(workload: Workload, target: Target, order: Sequence[str] | None = None) -> Problem:
        """The loops in the order in which the body names their axes, as in LoopTool, or in
        another one. Raises `ConfigError` for an order that does not name every axis once, and for
        a workload that no state describes; `NotationError` for what is no workload, `TargetError`
        for another target than a processor."""
        workload = as_workload(workload)
        if not isinstance(target, Target):
            raise TargetError(f'target = {brief(target)}: give a Target, as of resolve("cpu", 1)')
        if target.gpu is not None:
            raise TargetError(f"schedules by hand are for processors, not for {target.kind}")
        refuse_nothing(workload)
        nests = hand_sketch(workload, structure(())).hand
        last = nests[-1]
        loops = {loop.name: loop for loop in plain_loops(last)}
        rows = len(loops)
        if last.nest.reducer is not None:
            rows += sum(not loop.reduce for loop in loops.values())
        if not 0 < rows <= ROWS:
            raise ConfigError(
                f"{last.nest.out.name} has {counted(rows, 'loop')}, with those that write its "
                f"result, and a state describes 1 to {ROWS}: use lw.nest or lw.tune"
            )
        if order is None:
            read = (i.name for r in last.nest.reads() for p in r.index for i in p.indices())
            order = [name for name in dict.fromkeys((*read, *loops)) if name in loops]
        if not isinstance(order, Sequence) or sorted(map(str, order)) != sorted(loops):
            raise ConfigError(f"order is {brief(order)}: name each of {', '.join(loops)} once")
        start = tuple(loops[str(name)] for name in order)
        wide = lanes(last.nest, target)
        return Problem(workload, target, nests, start, axis_strides(last), wide)

    @functools.cached_property
    def key(self) -> str:
        """The workload's key."""
        return self.workload.key

    @property
    def sums(self) -> bool:
        """Return whether the nest is a reduction, whose result is written by loops of its own."""
        return self.nests[-1].nest.reducer is not None

    def moves(self, loop: PlainLoop) -> tuple[int, ...]:
        """Elements that each access moves in an iteration of a loop; 0 where that varies."""
        known = self._moves.get((loop.axis, loop.step))
        if known is None:
            along = (access[loop.axis] or 0 for access in self.strides)
            known = tuple(abs(x) * loop.step for x in along)
            self._moves[loop.axis, loop.step] = known
        return known


def check_problems(problems: Sequence[Problem]) -> None:
    """Raise `ConfigError` for what is no list of problems, or an empty one."""
    listed = isinstance(problems, Sequence) and problems
    if not listed or not all(isinstance(p, Problem) for p in problems):
        raise ConfigError(
            f"problems = {brief(problems)}: give a list of Problem.of(workload, target)"
        )


@dataclass(frozen=True, eq=False)
class State:
    """The loops of a nest, outermost first, and the position of the cursor.

    `splits` has the loops that were split, by name, and the factors, in order.
    """

    problem: Problem
    loops: tuple[PlainLoop, ...]
    splits: tuple[tuple[str, int], ...] = ()
    cursor: int = 0

    @staticmethod
    def first(problem: Problem) -> State:
        """The state that an episode begins with."""
        return State(problem, problem.start)

    @functools.cached_property
    def key(self) -> tuple[str | int, ...]:
        """The schedule: equal where the workload and the loops are, whatever steps led there."""
        return (self.problem.key, *(x for loop in self.loops for x in (loop.name, loop.size)))

    def after(self, action: int) -> State | None:
        """The state after an action; None where it is not legal, or leaves no room."""
        name, at, loops = ACTIONS[action], self.cursor, self.loops
        if name.startswith("split"):
            return self._split(int(name.removeprefix("split_")))
        to = at + (1 if name.endswith("down") else -1)
        if not 0 <= to < len(loops):
            return None
        if name.startswith("swap"):
            changed = list(loops)
            changed[at], changed[to] = loops[to], loops[at]
            loops = tuple(changed)
        return State(self.problem, loops, self.splits, to)

    def _split(self, factor: int) -> State | None:
        loop, loops = self.loops[self.cursor], self.loops
        rows = len(loops) + 1
        if self.problem.sums:  # the loops that write the result are described too
            rows += sum(not x.reduce for x in loops) + (not loop.reduce)
        if loop.size <= factor or rows > ROWS:
            return None
        loops = (*loops[: self.cursor], *loop.split(factor), *loops[self.cursor + 1 :])
        return State(self.problem, loops, (*self.splits, (loop.name, factor)), self.cursor)

    @functools.cached_property
    def successors(self) -> tuple[State | None, ...]:
        """The state after every action."""
        return tuple(self.after(action) for action in range(len(ACTIONS)))

    def action_to(self, other: State) -> int:
        """The action that leads to a state, the first one of several."""
        wanted = other.key, other.cursor
        for action, after in enumerate(self.successors):
            if after is not None and (after.key, after.cursor) == wanted:
                return action
        raise ConfigError(f"no action leads from {self} to {other}")

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
        rows, used = np.zeros((ROWS, NUMBERS), np.float32), 0
        for loop in self.loops:
            rows[used, 1], rows[used, 2] = loop.size, loop.tail
            _count(rows[used], self.problem.moves(loop))
            used += 1
        rows[self.cursor, 0] = 1
        if self.problem.sums:
            written = [loop for loop in self.loops if not loop.reduce]
            held = math.prod(loop.size for loop in written)
            for loop in written:
                held //= loop.size  # elements between neighbours in the tile of accumulators
                rows[used, 1], rows[used, 2], rows[used, 3] = loop.size, loop.tail, 1
                _count(rows[used], (held, self.problem.moves(loop)[-1]))
                used += 1
        return rows

    @functools.cached_property
    def config(self) -> Config:
        """The schedule as a config: splits, one order, then vectors and unrolling by LoopNest's
        rules."""
        number = len(self.problem.nests) - 1
        steps: list[Step] = []
        hand = self.problem.nests[-1]
        for name, factor in self.splits:
            steps.append(Step(number, "split", (hand.position(name), factor)))
            hand = hand.after(steps[-1])
        order = tuple(hand.position(loop.name) for loop in self.loops)
        if order != tuple(range(len(order))):
            steps.append(Step(number, "order", order))
            hand = hand.after(steps[-1])
        steps += kind_steps(hand, number, self.problem.target)
        for n, nest in enumerate(self.problem.nests[:-1]):
            steps += kind_steps(nest, n, self.problem.target)
        return Config(SketchName(Derivation(), structure(steps)), ())

    def __str__(self) -> str:
        words = [f"{loop.name}={loop.size}" for loop in self.loops]
        words[self.cursor] = f"[{words[self.cursor]}]"
        return " ".join(words)


def _count(row: Floats, moves: Sequence[int]) -> None:
    """Count accesses in the histogram of a row; those that do not move are not in it."""
    for move in moves:
        if move:
            row[4 + min(_BINS, move.bit_length()) - 1] += 1
