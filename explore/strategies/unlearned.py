"""Searches that learn nothing: every point in order, and points drawn at random."""

from __future__ import annotations

import numpy as np

from loopwright.explore.strategies.encoded_space import Points
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
