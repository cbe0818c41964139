"""Annealing whose candidates a second model ranks again, by features too slow to anneal on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from loopwright.costmodel.model import CostModel
from loopwright.explore.strategies.annealing import Annealing, Found, Guide
from loopwright.explore.strategies.encoded_space import Points
from loopwright.explore.strategies.features import Rows

RANKED = 128
"""Candidates that are ranked again for a batch: each takes some 10 ms to write."""


class Reranking(Annealing):
    """Proposes by one model, and chooses among the best `RANKED` by another, which learns from the
    same measurements."""

    def __init__(
        self, guide: Guide, ranker: CostModel, ranked_by: Callable[[Points], Rows]
    ) -> None:
        """`ranked_by` turns points into rows for `ranker`."""
        super().__init__(guide)
        self.ranker, self.ranked_by = ranker, ranked_by
        self.ranked = np.empty((0, 0), np.float32)
        """Rows of `ranked_by` for every point told."""

    def _learn(self) -> None:
        super()._learn()
        new = self.ranked_by(self.points[len(self.ranked) :])
        self.ranked = new if not len(self.ranked) else np.concatenate([self.ranked, new])
        if self._knows_enough:
            self.ranker.fit(self.ranked, self.costs, np.zeros(len(self.costs), np.int64))

    def _likely(self, n: int) -> Points:
        """No points: the second model chooses them all."""
        return self.points[:0]

    def _anneal(self, keep: int) -> Found:
        if not self.ranker.ready:
            return super()._anneal(keep)
        found = super()._anneal(max(keep, RANKED))
        scores = np.asarray(self.ranker.predict(self.ranked_by(found.points)), np.float64)
        best = np.argsort(-scores, kind="stable")[:keep]
        return replace(found, scores=scores).take(best)
