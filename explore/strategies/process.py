"""A Gaussian process over the knobs of points, which a few measurements correct.

Its kernel is s(a, b) + exp(-d(a, b) / 2). Here d is the number of components in which points
differ, and s the share of those in which they do not. So each knob has an effect of its own (the
additive kernel of Duvenaud et al. 2011, in the first order), and all have one together (that of
the Hamming distance).
"""

from __future__ import annotations

import numpy as np

from loopwright.explore.strategies.encoded_space import Floats, Points

_NOISE = 0.02
"""Standard deviation of the logarithm of a cost that its knobs do not explain."""
_WIDE = 10.0
"""Noise of the mean, of which nothing is known."""


def expected(known: Points, costs: Floats, points: Points) -> Floats:
    """The mean of the process at points, by their components (`EncodedSpace.values`) and those of
    the points that are known."""
    every = np.concatenate([known, points])
    used = np.flatnonzero((every != -1).any(axis=0))
    level = costs.mean()
    gram = _kernel(known[:, used], known[:, used]) + _NOISE**2 * np.eye(len(known))
    weights = np.linalg.solve(gram, costs - level)
    result: Floats = level + _kernel(points[:, used], known[:, used]) @ weights
    return result


def _kernel(a: Points, b: Points) -> Floats:
    differ = np.zeros((len(a), len(b)))
    for one, other in zip(a.T, b.T, strict=True):
        differ += one[:, None] != other
    result: Floats = _WIDE**2 + 1 - differ / a.shape[1] + np.exp(-differ / 2)
    return result
