"""`Strategy`: what is measured next, given what was measured so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from loopwright.explore.strategies.encoded_space import EncodedSpace, Floats, Points, Seen


class Strategy(ABC):
    """Chooses points of a space to measure.

    A search alternates `ask` and `tell`. `ask(n)` gives up to n legal points that were neither
    asked for nor told before, the very first of them the default config; once the space runs
    out it gives fewer, then none, and `exhausted` is true. `tell` takes costs in seconds,
    infinite for points that failed; it also takes points that were never asked for, such as
    those of an earlier session, in any order and number.

    All randomness comes from `rng`: the same calls give the same points.
    """

    least = 16
    """The fewest points that a search should ask for at a time, where it has the choice."""

    def __init__(self, encoded: EncodedSpace, rng: np.random.Generator) -> None:
        self.encoded, self.rng = encoded, rng
        self.seen = Seen()
        self.points = np.empty((0, encoded.width), np.int64)
        """Every point told, in order."""
        self.costs = np.empty(0)
        """Their costs, in seconds."""
        self.exhausted = False

    def ask(self, n: int) -> Points:
        """Up to `n` points to measure, shape (n, 1 + K)."""
        first = self.encoded.default
        first = self.seen.unseen(first[self.encoded.is_legal(first)])[:n]
        self.seen.add(first)
        more = self._propose(n - len(first)) if n > len(first) else first[:0]
        chosen = np.concatenate([first, more])
        self.seen.add(chosen)
        self.exhausted = len(chosen) < n
        return chosen

    def tell(self, points: Points, costs: Floats) -> None:
        """Learn what points cost."""
        if not len(points):
            return
        self.seen.add(points)
        self.points = np.concatenate([self.points, points])
        self.costs = np.concatenate([self.costs, np.asarray(costs, np.float64)])
        self._learn()

    @abstractmethod
    def _propose(self, n: int) -> Points:
        """Up to `n` different legal points that are not in `seen`; fewer only where no more are
        left."""

    def _learn(self) -> None:  # noqa: B027 - not every strategy learns
        """Take notice of new points and costs."""

    def _cheapest(self, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The places of the cheapest points told, at most so many, the cheapest first."""
        order = np.argsort(self.costs, kind="stable")[:count]
        return order[np.isfinite(self.costs[order])]

    def _completed(self, points: Points, n: int) -> Points:
        """The points, with random new ones added until there are `n`."""
        taken = self.seen.and_also(points)
        return np.concatenate([points, self.encoded.fresh(n - len(points), taken, self.rng)])
