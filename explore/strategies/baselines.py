"""Baselines, which have no model: every point in order, points at random, a genetic algorithm."""

from __future__ import annotations

import numpy as np

from loopwright.explore.strategies.encoded_space import Points, distinct
from loopwright.explore.strategies.strategy import Strategy

_STEP = 4096


class GridSearch(Strategy):
    """The points sketch by sketch, the last knob changing fastest; complete, and hopeless in a
    large space."""

    _next = 0

    def _propose(self, n: int) -> Points:
        found = np.empty((0, self.encoded.width), np.int64)
        while len(found) < n and self._next < self.encoded.space.size:
            points = self.encoded.range(self._next, self._next + _STEP)
            fits = ~self.seen.has(points) & self.encoded.is_legal(points)
            places = np.flatnonzero(fits)[: n - len(found)]
            full = len(places) == n - len(found)
            self._next += int(places[-1]) + 1 if full else len(points)
            found = np.concatenate([found, points[places]])
        return found


class RandomSearch(Strategy):
    """The baseline that every learned strategy has to beat: new points, drawn evenly over
    sketches, and then over the choices of each knob."""

    def _propose(self, n: int) -> Points:
        return self.encoded.fresh(n, self.seen, self.rng)


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
