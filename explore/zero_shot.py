"""The choice of a model that has learned elsewhere, in a fraction of a second."""

from __future__ import annotations

import numpy as np

from loopwright.costmodel.model import CostModel
from loopwright.explore.strategies.annealing import programs
from loopwright.explore.strategies.encoded_space import EncodedSpace, Points, distinct
from loopwright.explore.strategies.features import Features
from loopwright.explore.strategies.selection import select
from loopwright.explore.strategies.strategy import Strategy

GUESSES = 128
"""Guesses in each of the sketches that are kept."""
ROUNDS, BEST, MOVES = 2, 16, 6
"""Number of steps of the best points of each sketch, number of these points, and of ways to
step."""
ALPHA = 0.1
"""The weight of diversity in Eq. 3."""
NESTS = 6
"""Most nests of the sketches that are looked at, on average: where they are longer, it is fewer
sketches, down to a half."""
MARGIN = 0.1
"""Bonus on the default config's score. The best of hundreds of scores is the luckiest one, and
where a model sees hardly any gain there is none, or less."""


class ZeroShot(Strategy):
    """Asks a global model once: for sketches by their defaults, then for configs of the best ones,
    guesses first, neighbours of the best of them next.

    Programs are lowered as they come, since recording a sketch for thousands of configs would
    take longer than all of this.
    """

    def __init__(
        self,
        encoded: EncodedSpace,
        rng: np.random.Generator,
        model: CostModel,
        sketches: int = 24,
        kept: int = 4,
    ) -> None:
        """Looks at the defaults of so many `sketches`, and for better configs in the best `kept`
        ones. Most of the time goes into lowering each and its features, 0.5 ms a nest."""
        super().__init__(encoded, rng)
        self.model, self.sketches, self.kept = model, sketches, kept
        self._features = Features(encoded.space, model.reads)

    def choose(self, n: int = 1) -> Points:
        """The `n` points, or a few less, that the model likes best and that differ; the first is
        its choice."""
        points = self._defaults()
        scores, rows = self._scored(points)
        scores[(points == self.encoded.default).all(axis=1)] += MARGIN
        kept = points[np.argsort(-scores, kind="stable")[: self.kept], 0]
        guesses = self.encoded.guesses(GUESSES * len(self.encoded.space.sketches), self.rng)
        new = guesses[np.isin(guesses[:, 0], kept)]
        for _ in range(1 + ROUNDS):
            new = distinct(np.concatenate([points, new]))[len(points) :]
            if len(new):
                more, more_rows = self._scored(new)
                points = np.concatenate([points, new])
                scores, rows = np.append(scores, more), np.concatenate([rows, more_rows])
            best = np.concatenate([self._best(points, scores, sketch) for sketch in kept])
            new = self.encoded.neighbours(np.repeat(best, MOVES, axis=0), self.rng, hop=0.0)
        _, first = np.unique(programs(rows), return_index=True)
        first = first[~self.seen.has(points[first])]
        order = first[np.argsort(-scores[first], kind="stable")][: 16 * n]
        return points[order[select(scores[order], self.encoded.values(points[order]), n, ALPHA)]]

    def _propose(self, n: int) -> Points:
        return self._completed(self.choose(n), n)

    def _defaults(self) -> Points:
        points = self.encoded.defaults(self.sketches)
        nests = np.cumsum([len(self.encoded.space.sketches[k].nests) for k in points[:, 0]])
        fits = nests <= NESTS * self.sketches
        fits[: self.sketches // 2] = True
        return points[fits]

    def _scored(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        rows = self._features.directly(points)
        return np.asarray(self.model.predict(rows), np.float64), rows

    def _best(self, points: Points, scores: np.ndarray, sketch: int) -> Points:
        own = np.flatnonzero(points[:, 0] == sketch)
        return points[own[np.argsort(-scores[own], kind="stable")[:BEST]]]
