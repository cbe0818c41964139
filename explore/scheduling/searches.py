"""Searches over the environment's states, for as long as they may: LoopTune's baselines.

All of them look for the fastest state that ten actions lead to. An evaluator that they share
remembers speeds, so that a state costs time once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import Problem, State, check_problems

Clock = Callable[[], float]
_FEW = 8  # schedules that are evaluated before the time is looked at


@dataclass
class Found:
    """Result of a search: the fastest schedule with its speed, the seconds that it took, and a
    `curve` of seconds and GFLOP/s, whenever a faster one was found."""

    state: State
    gflops: float = 0.0
    seconds: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Found {self.state}: {self.gflops:.1f} GFLOP/s in {self.seconds:.1f} s>"


class TimeOutError(Exception):
    """The end of a search's time; it does not leave this module."""


class _Run:
    """One search: asks for speeds, keeps the best, and ends when time is up."""

    def __init__(
        self, evaluator: Evaluator, problem: Problem, seconds: float, clock: Clock
    ) -> None:
        self._evaluator, self._clock = evaluator, clock
        self._began, self._until = clock(), clock() + seconds
        self.found = Found(State.first(problem))
        self.speeds([self.found.state])

    def speeds(self, states: Sequence[State]) -> list[float]:
        """Speeds of states, a few at a time. Raises `TimeOutError` at the end of the time."""
        speeds: list[float] = []
        for start in range(0, len(states), _FEW):
            if self._clock() >= self._until and self.found.curve:
                raise TimeOutError
            few = states[start : start + _FEW]
            speeds += self._evaluator.speeds(few)
            self._keep(few, speeds[start:])
        return speeds

    def _keep(self, states: Sequence[State], speeds: Sequence[float]) -> None:
        found, now = self.found, self._clock() - self._began
        found.seconds = now
        for state, speed in zip(states, speeds, strict=True):
            if speed > found.gflops or not found.curve:
                found.state, found.gflops = state, speed
                found.curve.append((now, speed))


Search = Callable[[_Run, np.random.Generator], None]


def search(
    name: str,
    problem: Problem,
    evaluator: Evaluator,
    seconds: float,
    seed: int = 0,
    clock: Clock = time.monotonic,
) -> Found:
    """The fastest schedule that the search of this name, one of `SEARCHES`, finds in so many
    seconds. Raises `ConfigError` for another name, or what is no problem or no number."""
    if name not in SEARCHES:
        raise ConfigError(f"there is no search {name!r}: give one of {', '.join(SEARCHES)}")
    check_problems([problem])
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigError(f"seconds = {seconds!r}: give a number")
    run = _Run(evaluator, problem, seconds, clock)
    with contextlib.suppress(TimeOutError):
        SEARCHES[name](run, np.random.default_rng(seed))
    return run.found


def _after(state: State) -> list[State]:
    return [s for s in state.successors if s is not None]


def _reached(state: State, depth: int) -> Iterator[tuple[State, State]]:
    """States within so many actions, each with the first state on the way."""
    for first in _after(state):
        near = [first]
        for left in range(depth, 0, -1):
            yield from ((first, s) for s in near)
            near = [x for s in near for x in _after(s)] if left > 1 else []


def greedy(lookahead: int, run: _Run, _rng: np.random.Generator) -> None:
    """Take the action that leads to the fastest state within `lookahead` actions, as long as that
    is faster than the present one."""
    state = run.found.state
    (speed,) = run.speeds([state])
    for _ in range(STEPS):
        ways = list(_reached(state, lookahead))
        speeds = run.speeds([s for _, s in ways])
        best = int(np.argmax(speeds))
        if speeds[best] <= speed:
            return
        state = ways[best][0]
        (speed,) = run.speeds([state])


def beam(width: int, run: _Run, _rng: np.random.Generator) -> None:
    """Breadth first: of all states after one more action, go on from the `width` fastest."""
    near = [run.found.state]
    for _ in range(STEPS):
        more = {(s.key, s.cursor): s for state in near for s in _after(state)}
        near = _fastest(run, list(more.values()), width)


def beam_depth_first(width: int, run: _Run, _rng: np.random.Generator) -> None:
    """Depth first: from each state, go on from the `width` fastest next ones in turn."""

    def visit(state: State, left: int) -> None:
        for after in _fastest(run, _after(state), width) if left else ():
            visit(after, left - 1)

    visit(run.found.state, STEPS)


def _fastest(run: _Run, states: Sequence[State], width: int) -> list[State]:
    speeds = run.speeds(states)
    return [states[n] for n in sorted(range(len(states)), key=lambda n: -speeds[n])[:width]]


def random(run: _Run, rng: np.random.Generator) -> None:
    """Take random actions, episode by episode."""
    start = run.found.state
    while True:
        state = start
        for _ in range(STEPS):
            after = _after(state)
            state = after[int(rng.integers(len(after)))]
            run.speeds([state])


SEARCHES: dict[str, Search] = {
    "greedy1": partial(greedy, 1),
    "greedy2": partial(greedy, 2),
    "beam2dfs": partial(beam_depth_first, 2),
    "beam4dfs": partial(beam_depth_first, 4),
    "beam2bfs": partial(beam, 2),
    "beam4bfs": partial(beam, 4),
    "random": random,
}
"""The searches of LoopTune's experiment, by name."""
