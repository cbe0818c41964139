"""Search of a workload whose configs other machines have measured: their order, corrected here.

The list of configs by the geometric mean of their costs elsewhere needs no model. What a machine
differs in is a process with two parts: a mix of the machines' deviations from that mean, and a
part of its own, alike for configs that are alike. One half of the trials follows the list, and the
other is where the process expects to improve most. So at worst the list takes twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.explore.strategies.annealing import Annealing, Guide
from loopwright.explore.strategies.encoded_space import Floats, Points, distinct, hashes
from loopwright.explore.strategies.improvement import distances, expected_improvement

Measured = tuple[Points, Floats]
"""Points that a machine measured, and their costs in seconds, infinite for failures."""

_POOL = 512
"""Configs of the list that the process is asked about."""
_ALONE = 64
"""Trials after which annealing has half of them."""
_OWN, _MIXED, _WEIGHT, _NOISE, _WIDE = 0.2, 1.0, 0.5, 0.02, 10.0
"""Standard deviations, in logarithms of costs: of the own part, of the weight of a machine in the
mix, of noise and of the mean; and the weight of a knob in the own part."""
_MOST = np.log(20.0)
"""The logarithm of a cost over the best that stands for a failure, too."""


class MachinesSearch(Annealing):
    """Measures by the list and by the process in turn, and later by annealing, too."""

    least = 2

    def __init__(self, guide: Guide, machines: Sequence[Measured]) -> None:
        """`machines` are what others have measured, at least one of them."""
        super().__init__(guide)
        encoded, (self.listed, deviations) = guide.encoded, _list(machines)
        legal = encoded.is_legal(self.listed)
        self.listed, deviations = self.listed[legal][:_POOL], deviations[legal][:_POOL]
        self._prior = deviations.mean(axis=1)
        values = encoded.values(self.listed)[:, :-1]
        apart = distances(encoded, np.full(values.shape[1], _WEIGHT), values, values)
        mixed = deviations - self._prior[:, None]
        self._covariance = _OWN**2 * np.exp(-apart) + _MIXED**2 * mixed @ mixed.T + _WIDE**2

    def _propose(self, n: int) -> Points:
        own = n if len(self.points) < _ALONE else n // 2
        chosen = self.points[:0]
        for place in range(own):
            left = np.flatnonzero(~self.seen.has(self.listed))
            if not len(left):
                break
            promise = self._promise(left) if place % 2 else None
            best = left[0] if promise is None else left[int(np.argmax(promise))]
            chosen = np.concatenate([chosen, self.listed[[best]]])
            self.seen.add(chosen)
        if len(chosen) == n:
            return chosen
        return distinct(np.concatenate([chosen, super()._propose(n - len(chosen))]))

    def _promise(self, left: Points) -> Floats | None:
        """The expected improvement at places of the list; None where nothing is known yet."""
        places = {h: n for n, h in enumerate(hashes(self.listed).tolist())}
        at = [places.get(h, -1) for h in hashes(self.points).tolist()]
        told = np.flatnonzero(np.array(at, np.int64) >= 0)
        finite = self.costs[np.isfinite(self.costs)]
        if not len(told) or not len(finite):
            return None
        known = np.array(at, np.int64)[told]
        costs = np.minimum(np.log(self.costs[told] / finite.min()), _MOST)
        covariance = self._covariance[np.ix_(known, known)] + _NOISE**2 * np.eye(len(known))
        inverse, across = np.linalg.inv(covariance), self._covariance[np.ix_(left, known)]
        mean = self._prior[left] + across @ inverse @ (costs - self._prior[known])
        variance = self._covariance[left, left] - np.einsum("ij,ij->i", across @ inverse, across)
        return expected_improvement(mean, variance, costs.min())


def _list(machines: Sequence[Measured]) -> tuple[Points, Floats]:
    """The list, and the logarithm of each cost over the machine's best; shape (n, machines).

    A machine that has not measured a config is thought to be as the mean of the others.
    """
    points = distinct(np.concatenate([p for p, _ in machines]))
    places = {h: n for n, h in enumerate(hashes(points).tolist())}
    found = np.full((len(points), len(machines)), np.nan)
    for column, (known, costs) in enumerate(machines):
        rows = [places[h] for h in hashes(known).tolist()]
        best = costs.min(initial=np.inf, where=np.isfinite(costs))
        found[rows, column] = np.minimum(np.log(costs / best), _MOST)
    mean = np.nanmean(found, axis=1)
    order = np.argsort(mean, kind="stable")
    return points[order], np.where(np.isnan(found), mean[:, None], found)[order]
