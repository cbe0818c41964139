"""The choice of a batch among scored candidates: good, and different from each other (Eq. 3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.explore.strategies.encoded_space import Floats

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def select(scores: Floats, components: Numbers, b: int, alpha: float) -> Numbers:
    """Choose `b` candidates S that make the diversity-aware objective of Eq. 3 large:

        L(S) = Σ_{s in S} score(s) + α Σ_j |∪_{s in S} {s_j}|

    greedily, which for this submodular objective is within 1 - 1/e of the best.

    Parameters
    ----------
    scores: shape (n,), the predicted score of each candidate, higher is better (the paper's
        -f̂); they are divided by their standard deviation, so that α is in units of that.
    components: shape (n, m), the components s_j of each, as numbers.
    alpha: the weight of diversity against the score.

    Returns the numbers of the chosen, in the order of choice, fewer if there are fewer than `b`.
    """
    if not len(scores):
        return np.empty(0, np.int64)
    value = scores / (scores.std() or 1.0)
    labels = _labels(components)
    missing = np.ones(labels.max(initial=0) + 1, np.bool_)
    chosen: list[int] = []
    for _ in range(min(b, len(scores))):
        best = int(np.argmax(value + alpha * missing[labels].sum(axis=1)))
        chosen.append(best)
        missing[labels[best]] = False
        value[best] = -np.inf
    return np.array(chosen, np.int64)


def _labels(components: Numbers) -> Numbers:
    """One number for each pair of a column and a value."""
    low = components.min(axis=0, initial=0)
    span = components.max(axis=0, initial=0) - low + 1
    labels: Numbers = components - low + np.concatenate([[0], np.cumsum(span)[:-1]])
    return labels
