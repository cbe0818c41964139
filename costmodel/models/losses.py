"""Losses over a batch of predicted costs, with gradients, and measures of rankings.

Losses see predictions f of shape (n,) that grow with the cost, as in the paper; a model's scores
are -f.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.model import Floats, Integers, ModelError
from loopwright.costmodel.models.holdout import Index

_PARTNERS = 64  # records that each one is compared with, where all pairs would be too many
_LEAST_CURVATURE = 1e-6


class Loss(ABC):
    """A function of predictions, for the records it was made of."""

    @property
    @abstractmethod
    def informative(self) -> bool:
        """Return whether the records say anything."""

    @abstractmethod
    def value(self, f: Floats) -> float:
        """The mean loss, of a pair or of a record."""

    @abstractmethod
    def derivatives(self, f: Floats) -> tuple[Floats, Floats]:
        """The first derivative by each prediction, and the second (its diagonal)."""


@dataclass(frozen=True, eq=False)
class RankLoss(Loss):
    """Eq. 2 of Chen et al. 2018: Σ log(1 + exp(-sign(cᵢ - cⱼ)(fᵢ - fⱼ))) over pairs of a group.

    `slow` and `fast` are the two sides of the pairs; pairs of equal cost are left out, and a
    failure, whose cost is inf, is slower than whatever succeeded. Derivatives are per record, not
    per pair: divided by the mean number of pairs that a record is in.
    """

    slow: Index
    fast: Index
    n: int

    @staticmethod
    def of(costs: Floats, groups: Integers, rng: np.random.Generator) -> RankLoss:
        """All pairs of every group; in large ones, each record with `_PARTNERS` random ones."""
        slow, fast = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group in np.unique(groups):
            one, other = _pairs(np.flatnonzero(groups == group), rng)
            keep = costs[one] != costs[other]
            one, other = one[keep], other[keep]
            order = costs[one] > costs[other]
            slow.append(np.where(order, one, other))
            fast.append(np.where(order, other, one))
        return RankLoss(np.concatenate(slow), np.concatenate(fast), len(costs))

    @property
    def informative(self) -> bool:
        return len(self.slow) > 0

    def value(self, f: Floats) -> float:
        return float(np.logaddexp(0.0, f[self.fast] - f[self.slow]).mean())

    def derivatives(self, f: Floats) -> tuple[Floats, Floats]:
        wrong = 1.0 / (1.0 + np.exp(np.clip(f[self.slow] - f[self.fast], -50.0, 50.0)))
        curve = wrong * (1.0 - wrong)
        scale = self.n / (2.0 * max(len(self.slow), 1))
        first = self._sum(wrong, self.fast) - self._sum(wrong, self.slow)
        second = self._sum(curve, self.fast) + self._sum(curve, self.slow)
        return first * scale, np.maximum(second * scale, _LEAST_CURVATURE)

    def _sum(self, values: Floats, places: Index) -> Floats:
        return np.bincount(places, values, minlength=self.n).astype(np.float64, copy=False)


def _pairs(members: Index, rng: np.random.Generator) -> tuple[Index, Index]:
    count = len(members)
    if count <= 2 * _PARTNERS:
        one, other = np.triu_indices(count, 1)
        return members[one], members[other]
    one = np.repeat(np.arange(count), _PARTNERS)
    other = (one + rng.integers(1, count, len(one))) % count
    return members[one], members[other]


@dataclass(frozen=True, eq=False)
class SquaredLoss(Loss):
    """½(f - y)², where y = log₂ c and c is relative to the best of the group: the logarithm of
    throughput, but for the sign. Failures have no part in it: their derivatives are 0."""

    targets: Floats
    valid: Floats

    @staticmethod
    def of(costs: Floats, groups: Integers, rng: np.random.Generator) -> SquaredLoss:
        """Loss of `relative` costs; `groups` and `rng` are not used."""
        valid = np.isfinite(costs)
        targets = np.log2(costs, where=valid, out=np.zeros(len(costs)))
        return SquaredLoss(targets, valid.astype(float))

    @property
    def informative(self) -> bool:
        return len(np.unique(self.targets[self.valid > 0])) > 1

    def value(self, f: Floats) -> float:
        errors = self.valid * (f - self.targets)
        return float(0.5 * (errors**2).sum() / max(self.valid.sum(), 1.0))

    def derivatives(self, f: Floats) -> tuple[Floats, Floats]:
        return self.valid * (f - self.targets), np.maximum(self.valid, _LEAST_CURVATURE)


LOSSES: dict[str, type[RankLoss] | type[SquaredLoss]] = {
    "rank": RankLoss,
    "regression": SquaredLoss,
}
"""Losses by the names of objectives."""


def checked_objective(name: str) -> str:
    """The name of an objective; `ModelError` for any other."""
    if name not in LOSSES:
        raise ModelError(f"no objective {name!r}: use {' or '.join(LOSSES)}")
    return name


def relative(costs: Floats, groups: Integers) -> Floats:
    """Costs divided by the least one of their group, so that those of all groups compare."""
    result = np.array(costs, np.float64)
    for group in np.unique(groups[np.isfinite(costs)]):
        members = groups == group
        result[members] /= costs[members].min()
    return result


def pairwise_accuracy(scores: Floats, costs: Floats, apart: float = 1.0) -> float:
    """The share of pairs in which the cheaper one has the higher score, among those whose costs
    differ by more than the factor `apart`; equal scores count half. 0.5 is chance; nan if there
    is no such pair."""
    cheaper = costs[:, None] * apart < costs[None, :]
    difference = scores[:, None] - scores[None, :]
    right = (difference > 0) + 0.5 * (difference == 0)
    return float(right[cheaper].mean()) if cheaper.any() else float("nan")


def top_k_recall(scores: Floats, costs: Floats, k: int) -> float:
    """The share of the k cheapest, or of all that work if they are fewer, that are among as many
    of the highest scores; nan if none works."""
    k = min(k, int(np.isfinite(costs).sum()))
    cheapest = np.argsort(costs, kind="stable")[:k]
    chosen = np.argsort(-scores, kind="stable")[:k]
    return len(np.intersect1d(cheapest, chosen)) / k if k else float("nan")
