"""Transfer search: one knob at a time from where another machine was best, then several together.

Programs that are fast on one machine are, knob by knob, nearly those that are fast on another, but
which knobs make the difference no record of the one tells. So the first trials ask just that.
"""

from __future__ import annotations

import numpy as np

from loopwright.explore.strategies.annealing import Annealing, Guide, programs
from loopwright.explore.strategies.encoded_space import Points, distinct
from loopwright.explore.strategies.process import expected

_KNOWN, _LOOKED_AT = 256, 2048
"""The cheapest points that the process knows, and the pairs of knobs around a point that it is
asked about, at most."""


class TransferSearch(Annealing):
    """Measures where it begins and one other choice of each of its knobs, then what a Gaussian
    process over the trials expects the least of, within two knobs of the beginning or of the best.
    Once these are as many as the former, every other candidate is annealing's.

    The process is of the logarithm of costs, see `process.expected`.
    """

    least = 4

    def __init__(self, guide: Guide, begin: Points | None = None) -> None:
        """`begin` is a batch of one point; by default the best one told, or the choice of a model
        that has learned elsewhere."""
        super().__init__(guide)
        self.begin = begin
        self.probes = np.empty((0, guide.encoded.width), np.int64)
        """Number of points: where it began, and then a neighbour for each knob."""

    def _propose(self, n: int) -> Points:
        if not len(self.probes):
            self.probes = self._variations(self._beginning() if self.begin is None else self.begin)
        chosen = self.seen.unseen(self.probes)
        chosen = chosen[self.encoded.is_legal(chosen)][:n]
        self.seen.add(chosen)
        left = n - len(chosen)
        if left and np.isfinite(self.costs).any():
            alone = len(self.points) < 2 * len(self.probes)
            near = self._near(left if alone else (left + len(self.points) % 2) // 2)
            self.seen.add(near)
            chosen = np.concatenate([chosen, near])
        if len(chosen) == n:
            return chosen
        return np.concatenate([chosen, super()._propose(n - len(chosen))])

    def _beginning(self) -> Points:
        if self.model.ready and not self._knows_enough:
            self._open()
            chosen = self._anneal(1).points
            if len(chosen):
                return chosen
        return self._best_told() if np.isfinite(self.costs).any() else self.encoded.default

    def _best_told(self) -> Points:
        return self.points[[int(np.argmin(self.costs))]]

    def _variations(self, begin: Points) -> Points:
        """A point, and for every knob that neighbour which the model likes best, of those that are
        other programs."""
        near, knobs = self.encoded.around(begin[0])
        legal = self.encoded.is_legal(near)
        near, knobs = near[legal], knobs[legal]
        rows = self.features(np.concatenate([begin, near]))
        other = np.flatnonzero(programs(rows[1:]) != programs(rows[:1]))
        near, rows = near[other], rows[1 + other]
        scores = self._scores(rows) if self.model.ready and len(rows) else np.zeros(len(rows))
        order = np.argsort(-scores, kind="stable")
        _, first = np.unique(knobs[other][order], return_index=True)
        return np.concatenate([begin, near[order[np.sort(first)]]])

    def _within_two(self, center: Points) -> Points:
        """Points that differ from one in one knob or two, legal or not: all, or many of them."""
        near, knobs = self.encoded.around(center[0])
        first, second = np.triu_indices(len(near), 1)
        if len(first) > _LOOKED_AT:
            first, second = self.rng.integers(max(len(near), 1), size=(2, _LOOKED_AT))
        pairs = near[first]
        pairs[np.arange(len(pairs)), 1 + knobs[second]] = near[second, 1 + knobs[second]]
        return np.concatenate([near, pairs])

    def _near(self, n: int) -> Points:
        """Up to `n` points of which the process expects the least."""
        best = self._cheapest(_KNOWN)
        costs = np.log(self.costs[best])
        centers = distinct(np.concatenate([self.probes[:1], self._best_told()]))
        points = self.seen.unseen(np.concatenate([self._within_two(c[None]) for c in centers]))
        points = points[self.encoded.is_legal(points)]
        known = self.encoded.values(self.points[best])
        found = expected(known, costs, self.encoded.values(points))
        picked: list[int] = []
        for place in np.argsort(found, kind="stable").tolist():
            if len(picked) == n:
                break
            program = programs(self.features(points[[place]]))
            if not np.isin(program, self.programs).any():
                self.programs = np.union1d(self.programs, program)
                picked.append(place)
        return points[picked]
