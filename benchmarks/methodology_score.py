"""The score of "A methodology for comparing auto-tuning optimization algorithms" (Willemsen et
al., Future Generation Computer Systems 159, 2024), over numbers of evaluations.

Random search without repetition is reckoned, not run. A search's score on a table is how much of
the way from random search to the optimum it is ahead, in the mean over all numbers of evaluations
in a range: 0 is random search, 1 the optimum from the first evaluation on.

`autotuning_methodology` 1.1.0 numbers ranks from 0 where the equation numbers them from 1, so its
random search is one rank better. Here random search has a score of 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

START, END = 0.5, 0.96
"""Where the range begins and ends: when random search has come so far from the median to the
optimum. These are the values of the authors' own evaluation; others are allowed."""


@dataclass(frozen=True)
class Yardstick:
    """What searches of one table are measured against.

    Attributes
    ----------
    costs: of the table's points that work, ascending. At least three, not all the same.
    end: where the range ends, as `END`.
    """

    costs: np.ndarray
    end: float = END

    @staticmethod
    def of(costs: Sequence[float], end: float = END) -> Yardstick:
        """Of a table's costs, infinite where a point fails. As published, random search draws
        no point that fails, though other searches do."""
        finite = np.sort(np.asarray(costs, float)[np.isfinite(costs)])
        if len(finite) < 3 or np.median(finite) == finite[0]:
            raise ValueError("no score: fewer than three points work, or half are optimal")
        yardstick = Yardstick(finite, end)
        if not len(yardstick.evaluations):
            raise ValueError("no score: random search is at the optimum where the range begins")
        return yardstick

    @functools.cached_property
    def evaluations(self) -> np.ndarray:
        """The range. Random search is short of the optimum in all of it."""
        first = self.needed(START)
        every = np.arange(first, max(self.needed(self.end), first + 1))
        return every[self.random(every) > self.costs[0]]

    @property
    def budget(self) -> int:
        """Evaluations that a search gets."""
        return int(self.evaluations[-1])

    def needed(self, share: float) -> int:
        """Evaluations after which random search has come this share of the way from the median to
        the optimum: the inverse of `random`."""
        optimum, count = self.costs[0], len(self.costs)
        target = optimum + (np.median(self.costs) - optimum) * (1 - share)
        rank = np.count_nonzero(self.costs > target) + 1
        return math.ceil(rank / (count + 1 - rank))

    def random(self, evaluations: np.ndarray) -> np.ndarray:
        """Costs that random search has reached: those of its expected rank, counted from the
        worst, m · (n + 1) / (m + 1) after m of n."""
        count = len(self.costs)
        ranks = np.round(evaluations * (count + 1) / (evaluations + 1)).astype(int)
        return self.costs[count - np.minimum(ranks, count)]

    def reached(self, bests: np.ndarray) -> np.ndarray:
        """Costs of the mean rank among runs; `bests` has the best cost of each run (a row) after
        each number of evaluations. Nothing found yet has the worst rank."""
        ranks = np.minimum(np.searchsorted(self.costs, bests), len(self.costs) - 1)
        return self.costs[np.round(ranks.mean(axis=0)).astype(int)]

    def score(self, runs: Sequence[Sequence[float]]) -> float:
        """Of several runs of a search: the costs of what each evaluated, in order. One that ended
        before the range stays where it was."""
        bests = np.array([self.bests(run) for run in runs])
        return self.score_of(bests)

    def bests(self, run: Sequence[float]) -> np.ndarray:
        """Best costs of a run, after each number of evaluations in the range."""
        best = np.minimum.accumulate(np.asarray(run, float))
        return best[np.minimum(self.evaluations, len(best)) - 1]

    def score_of(self, bests: np.ndarray) -> float:
        """Of runs as `bests` gives them."""
        random = self.random(self.evaluations)
        return float(np.mean((random - self.reached(bests)) / (random - self.costs[0])))
