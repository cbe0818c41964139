"""Good episodes by evolution of action sequences: what is shown to those that learn.

A sequence is judged by its end alone, so that it may first make a schedule slower, where a greedy
search gives up. What is good for one workload is where the search of the next one begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import ACTIONS, Problem, State

Episode = tuple[State, ...]
Actions = tuple[int, ...]

_SIZE, _PARENTS, _NEW = 64, 24, 8
"""Sequences of a generation, those that have offspring, and those that are drawn anew."""
_CROSSED, _MOVED, _CHANGED = 0.4, 0.4, 0.12
"""Shares of offspring of two parents, of those with an action moved in or out, and of actions that
are drawn anew."""


class Evolution:
    """Finds good episodes of one workload after the other, and remembers good sequences."""

    def __init__(self, evaluator: Evaluator, rng: np.random.Generator) -> None:
        self._evaluator, self._rng = evaluator, rng
        self._pool: list[Actions] = []

    def episodes(self, problem: Problem, count: int, generations: int = 5) -> list[Episode]:
        """Episodes with the fastest ends, all different, the fastest first."""
        found: dict[object, tuple[float, Actions, Episode]] = {}
        few = self._rng.permutation(len(self._pool))[: _SIZE - _NEW]
        sequences = [self._pool[n] for n in few]
        for _ in range(generations):
            fresh = self._rng.integers(len(ACTIONS), size=(_SIZE - len(sequences), STEPS))
            sequences += map(tuple, fresh.tolist())
            played = [self._played(problem, s) for s in sequences]
            speeds = self._evaluator.speeds([episode[-1] for _, episode in played])
            for (actions, episode), speed in zip(played, speeds, strict=True):
                found.setdefault(episode[-1].key, (speed, actions, episode))
            best = sorted(found.values(), key=lambda x: -x[0])[:_PARENTS]
            parents = [actions for _, actions, _ in best]
            sequences = [self._offspring(parents) for _ in range(_SIZE - _NEW)]
        best = sorted(found.values(), key=lambda x: -x[0])[:count]
        self._pool = [*self._pool[-10 * _SIZE :], *(actions for _, actions, _ in best)]
        return [episode for _, _, episode in best]

    def _offspring(self, parents: Sequence[Actions]) -> Actions:
        rng = self._rng
        one, two = (list(parents[int(rng.integers(len(parents)))]) for _ in range(2))
        at, to = rng.integers(STEPS, size=2).tolist()
        if rng.random() < _CROSSED:
            one = one[:at] + two[at:]
        if rng.random() < _MOVED:
            action = one.pop(at)
            one.insert(to, action if rng.random() < 0.5 else int(rng.integers(len(ACTIONS))))
        drawn = rng.random(STEPS) < _CHANGED
        return tuple(int(rng.integers(len(ACTIONS))) if d else a for a, d in zip(one, drawn))

    def _played(self, problem: Problem, sequence: Actions) -> tuple[Actions, Episode]:
        """A sequence, and its episode; an action that is not legal is replaced by another."""
        states, taken = [State.first(problem)], []
        for action in sequence:
            after = states[-1].successors
            if after[action] is None:
                legal = [n for n, s in enumerate(after) if s is not None]
                action = legal[int(self._rng.integers(len(legal)))]
            state = after[action]
            assert state is not None
            states.append(state)
            taken.append(action)
        return tuple(taken), tuple(states)
