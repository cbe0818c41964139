"""Probing: one knob at a time from where another machine was best, then several together.

Programs that are fast on one machine are, knob by knob, nearly those that are fast on another, but
which knobs make the difference no record of the one tells. So the first trials ask just that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loopwright.costmodel.model import CostModel
from loopwright.explore.annealing import Annealing, Schedule, programs
from loopwright.explore.features import Rows
from loopwright.explore.points import Domain, Floats, Points, distinct

_NOISE = 0.02
"""Standard deviation of the logarithm of a cost that its knobs do not explain."""
_WIDE = 10.0
"""That of the mean, of which nothing is known."""
_KNOWN, _LOOKED_AT = 256, 4096
"""The cheapest points that the process knows, and the points that it is asked about."""


class Probing(Annealing):
    """Measures where it begins and one other choice of each of its knobs, then what a Gaussian
    process over the trials expects the least of, within two knobs of the beginning or of the best.
    Once these are as many as the former, every other candidate is annealing's.

    The process is of the logarithm of costs, with the kernel s(a, b) + exp(-d(a, b) / 2), where d
    is the number of components in which points differ, and s the share of those in which they do
    not: each knob has an effect of its own (the additive kernel of Duvenaud et al. 2011, in the
    first order), and all have one together (that of the Hamming distance).
    """

    least = 4

    def __init__(
        self,
        domain: Domain,
        rng: np.random.Generator,
        model: CostModel,
        features: Callable[[Points], Rows],
        schedule: Schedule | None = None,
        begin: Points | None = None,
    ) -> None:
        """`begin` is a batch of one point; by default the best one told, or the choice of a model
        that has learned elsewhere."""
        super().__init__(domain, rng, model, features, schedule)
        self.begin = begin
        self.probes = np.empty((0, domain.width), np.int64)
        """Where it began, and then a neighbour for each knob."""

    def _propose(self, n: int) -> Points:
        if not len(self.probes):
            self.probes = self._probes(self._beginning() if self.begin is None else self.begin)
        chosen = self.seen.unseen(self.probes)[:n]
        self.seen.add(chosen)
        left = n - len(chosen)
        if left and np.isfinite(self.costs).any():
            alone = len(self.points) < 2 * len(self.probes)
            near = self._near(left if alone else left - left // 2)
            self.seen.add(near)
            chosen = np.concatenate([chosen, near])
        if len(chosen) == n:
            return chosen
        return np.concatenate([chosen, super()._propose(n - len(chosen))])

    def _beginning(self) -> Points:
        if self.model.ready and np.isfinite(self.costs).sum() < self.schedule.learn_from:
            return super()._propose(1)
        return self._best_told() if np.isfinite(self.costs).any() else self.domain.default

    def _best_told(self) -> Points:
        return self.points[[int(np.argmin(self.costs))]]

    def _probes(self, begin: Points) -> Points:
        """A point, and for every knob that neighbour which the model likes best, of those that are
        other programs."""
        near = self._within(1, begin)
        rows = self.features(np.concatenate([begin, near]))
        other = np.flatnonzero(programs(rows[1:]) != programs(rows[:1]))
        near, rows = near[other], rows[1 + other]
        knob = np.argmax(near != begin, axis=1)
        scores = self._scores(rows) if self.model.ready and len(rows) else np.zeros(len(rows))
        order = np.argsort(-scores, kind="stable")
        _, first = np.unique(knob[order], return_index=True)
        return np.concatenate([begin, near[order[np.sort(first)]]])

    def _within(self, knobs: int, center: Points) -> Points:
        """The legal points that differ from one in so many knobs at most, without itself."""
        counts = self.domain.tables.counts[center[0, 0]]
        found = center
        for _ in range(knobs):
            parts = [found]
            for k in np.flatnonzero(counts > 1):
                for choice in range(counts[k]):
                    changed = found.copy()
                    changed[:, 1 + k] = choice
                    parts.append(changed)
            found = distinct(np.concatenate(parts))
        found = found[1:]
        return found[self.domain.is_legal(found)]

    def _near(self, n: int) -> Points:
        """Up to `n` points of which the process expects the least, each as if those before it
        had cost what was expected of them."""
        best = np.argsort(self.costs, kind="stable")[:_KNOWN]
        best = best[np.isfinite(self.costs[best])]
        costs = np.log(self.costs[best])
        centers = distinct(np.concatenate([self.probes[:1], self._best_told()]))
        points = self.seen.unseen(np.concatenate([self._within(2, c[None]) for c in centers]))
        points = points[np.sort(self.rng.permutation(len(points))[:_LOOKED_AT])]
        values = self.domain.values(points)
        known = self.domain.values(self.points[best])
        picked: list[int] = []
        free = np.ones(len(points), np.bool_)
        while free.any() and len(picked) < n:
            expected = _expected(known, costs, values)
            place = int(np.argmin(np.where(free, expected, np.inf)))
            free[place] = False
            program = programs(self.features(points[[place]]))
            if np.isin(program, self.programs).any():
                continue
            self.programs = np.union1d(self.programs, program)
            picked.append(place)
            known = np.concatenate([known, values[[place]]])
            costs = np.append(costs, expected[place])
        return points[picked]


def _expected(known: Points, costs: Floats, points: Points) -> Floats:
    """The mean of the process at points, given by their components (`Domain.values`), as the known
    ones are."""
    mean = costs.mean()
    gram = _kernel(known, known) + _NOISE**2 * np.eye(len(known))
    result: Floats = mean + _kernel(points, known) @ np.linalg.solve(gram, costs - mean)
    return result


def _kernel(a: Points, b: Points) -> Floats:
    used = np.flatnonzero((a != -1).any(axis=0) | (b != -1).any(axis=0))
    differ = sum((a[:, [k]] != b[:, k]).astype(np.float64) for k in used)
    result: Floats = _WIDE**2 + 1 - differ / len(used) + np.exp(-differ / 2)
    return result
