"""Points where a Gaussian process over knobs expects to improve on the best so far.

A cost model that ranks looks for more of what is good already. The process knows where nothing is
known, too: it proposes corners that few knobs single out together, which a model of the averages
believes to be bad.

The covariance of two points is exp(-Σ_j w_j d_j), where d_j is how far their values of knob j are
apart (`KnobTables.apart`), and the weights w are those that make the costs most likely, one step
of a factor of two at a time. The logarithm of costs is what is modelled, and a failure counts as
the worst of them. Points are chosen by expected improvement (Jones et al. 1998), less where they
are like one that was chosen before.
"""

from __future__ import annotations

import math

import numpy as np

from loopwright.explore.strategies.encoded_space import EncodedSpace, Floats, Points, Seen

_KNOWN = 192
"""The cheapest points that the process knows."""
_TOPS, _PARENTS, _DRAWN = 5, 32, 512
"""Points whose neighbours are looked at, points that are crossed and changed, and how many of
each kind are drawn; twice as many are drawn at random."""
_NOISE = 1e-2
"""Variance that knobs do not explain, as a share of all."""
_WEIGHT, _LEAST, _MOST = 0.5, 0.02, 4.0
"""The weight of a knob before anything is known, and its bounds."""
_PRIOR = 0.1
"""The penalty of a weight that differs from the former, by the squared logarithm."""


class Improvement:
    """Chooses points of a space by expected improvement; weights persist from call to call."""

    def __init__(self, encoded: EncodedSpace, rng: np.random.Generator) -> None:
        self._encoded, self._rng = encoded, rng
        self._weights = np.full(1 + encoded.tables.names, _WEIGHT)

    def choose(self, n: int, points: Points, costs: Floats, seen: Seen, among: Points) -> Points:
        """Up to `n` new legal points of the sketches `among`, the most promising first.

        `points` were measured at `costs`. Where fewer than two different ones are finite, nothing
        is known of the knobs, and none is chosen.
        """
        ranked = points[np.argsort(costs, kind="stable")[: np.isfinite(costs).sum()]]
        if len(np.unique(costs[np.isfinite(costs)])) < 2:
            return points[:0]
        pool = seen.unseen(self._pool(ranked, among))
        pool = pool[self._encoded.is_legal(pool)]
        if not len(pool):
            return pool
        process = _Process(self._encoded, points, costs, self._weights)
        self._weights = process.weights
        return pool[process.chosen(pool, n)]

    def _pool(self, ranked: Points, among: Points) -> Points:
        """Candidates: neighbours of the best, children of good ones and some of anywhere."""
        encoded, rng = self._encoded, self._rng
        good = ranked[:_PARENTS]
        one, other, changed = good[rng.integers(len(good), size=(3, _DRAWN))]
        twice = encoded.neighbours(changed, rng, among=among)
        pool = [encoded.around(point)[0] for point in ranked[:_TOPS]]
        pool.append(encoded.crossed(one, other, rng))
        pool.append(encoded.neighbours(twice, rng, among=among))
        pool.append(encoded.sample(2 * _DRAWN, rng, among))
        return np.concatenate(pool)


class _Process:
    """The process, given costs."""

    def __init__(
        self, encoded: EncodedSpace, points: Points, costs: Floats, weights: Floats
    ) -> None:
        worked = np.isfinite(costs)
        values = np.log(np.where(worked, costs, costs[worked].max()))
        kept = np.argsort(values, kind="stable")[:_KNOWN]
        values, self._encoded = values[kept], encoded
        self._known = encoded.values(points[kept])[:, :-1]
        self._level, self._spread = values.mean(), values.std() or 1.0
        self._costs = (values - self._level) / self._spread
        self.weights = self._likeliest(weights)
        covariance = self._covariance(self._known)
        covariance[np.diag_indices(len(kept))] += _NOISE
        self._inverse = np.linalg.inv(covariance)
        self._answers = self._inverse @ self._costs
        self._amplitude = float(self._costs @ self._answers) / len(kept)

    def chosen(self, pool: Points, n: int) -> Points:
        """Places of up to `n` points of a pool."""
        values = self._encoded.values(pool)[:, :-1]
        promise = self._expected_improvement(values)
        places: list[int] = []
        for _ in range(min(n, len(pool))):
            best = int(np.argmax(promise))
            places.append(best)
            promise *= 1 - self._covariance(values, values[[best]])[:, 0] ** 2
            promise[best] = -1.0
        return np.array(places, np.int64)

    def _expected_improvement(self, values: Points) -> Floats:
        covariance = self._covariance(values)
        left = 1 + _NOISE - np.einsum("ij,ij->i", covariance @ self._inverse, covariance)
        mean = covariance @ self._answers
        return expected_improvement(mean, self._amplitude * left, self._costs.min())

    def _covariance(self, values: Points, known: Points | None = None) -> Floats:
        known = self._known if known is None else known
        result: Floats = np.exp(-distances(self._encoded, self.weights, values, known))
        return result

    def _likeliest(self, weights: Floats) -> Floats:
        """The weights after one step of each that makes the costs more likely."""
        known = self._known.T
        used = np.flatnonzero((known != known[:, :1]).any(axis=1))
        parts = {j: self._encoded.tables.apart[j][known[j]][:, known[j]] for j in used.tolist()}
        weights = weights.copy()
        total = sum((weights[j] * part for j, part in parts.items()), np.zeros(()))
        least = self._unlikelihood(total, weights)
        for j, part in parts.items():
            for factor in (2.0, 0.5):
                step = np.clip(weights[j] * factor, _LEAST, _MOST) - weights[j]
                weights[j] += step
                found = self._unlikelihood(total + step * part, weights)
                if found < least:
                    least, total = found, total + step * part
                    break
                weights[j] -= step
        return weights

    def _unlikelihood(self, total: Floats, weights: Floats) -> float:
        """Minus the logarithm of the likelihood, the best amplitude given, and the prior's."""
        n = len(self._costs)
        # The last row of this factor is L⁻¹ times the costs, and the rest is L.
        whole = np.full((n + 1, n + 1), 1e9)
        whole[:n, :n] = np.exp(-total)
        whole[np.diag_indices(n)] += _NOISE
        whole[n, :n] = whole[:n, n] = self._costs
        factor = np.linalg.cholesky(whole)
        likelihood = 0.5 * n * math.log(float((factor[n, :n] ** 2).sum()) / n)
        likelihood += float(np.log(np.diagonal(factor)[:n]).sum())
        return likelihood + _PRIOR * float((np.log(weights / _WEIGHT) ** 2).sum())


def distances(encoded: EncodedSpace, weights: Floats, some: Points, others: Points) -> Floats:
    """Σ_j w_j d_j between points, by their components but the last one; shape (n, m)."""
    result = np.zeros((len(some), len(others)))
    for weight, table, one, other in zip(
        weights, encoded.tables.apart, some.T, others.T, strict=True
    ):
        if (one != one[:1]).any() or (other != one[0]).any():
            # As a product of matrices: faster than to look pairs up.
            result += weight * table[one] @ np.eye(len(table))[other].T
    return result


def expected_improvement(mean: Floats, variance: Floats, best: float) -> Floats:
    """The expected improvement on the best by normal values of these means and variances."""
    deviation = np.sqrt(np.maximum(variance, 1e-9))
    gain = (best - mean) / deviation
    density = np.exp(-0.5 * gain**2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-g / math.sqrt(2)) for g in gain.tolist()])
    result: Floats = deviation * (gain * below + density)
    return result
