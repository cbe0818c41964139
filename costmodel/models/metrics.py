"""Metrics of predicted scores, against measured costs; inf is the cost of a failure."""

from __future__ import annotations

import numpy as np

from loopwright.costmodel.model import Floats


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
