"""A genetic algorithm: a baseline that learns, but has no model."""

from __future__ import annotations

import numpy as np

from loopwright.explore.strategies.encoded_space import Points, distinct
from loopwright.explore.strategies.strategy import Strategy


class Genetic(Strategy):
    """Children of the best points so far: parents win tournaments among the `population` best,
    knobs come from either parent, and each child then mutates with a probability."""

    population = 64
    tournament = 3
    mutation = 0.5

    def _propose(self, n: int) -> Points:
        alive = self._cheapest(self.population)
        if len(alive) < self.population // 2:
            return self.encoded.fresh(n, self.seen, self.rng)
        born = np.empty((0, self.encoded.width), np.int64)
        for _ in range(8):
            born = distinct(np.concatenate([born, self._children(self.points[alive], 2 * n)]))
            if len(born) >= n:
                break
        return self._completed(born[:n], n)

    def _children(self, ranked: Points, n: int) -> Points:
        """New legal points; a tournament of draws among ranked points is won by the least."""
        first, second = self.rng.integers(len(ranked), size=(2, n, self.tournament)).min(axis=2)
        children = self.encoded.crossed(ranked[first], ranked[second], self.rng)
        changed = self.rng.random(n) < self.mutation
        children[changed] = self.encoded.neighbours(children[changed], self.rng)
        children = self.seen.unseen(children)
        return children[self.encoded.is_legal(children)]
