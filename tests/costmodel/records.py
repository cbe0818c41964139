"""Made-up records for every kind of features, with costs that depend on them."""

import numpy as np

from loopwright.costmodel.features.context import names, text_names
from loopwright.schedule.tree.grammar import KINDS

LOOPS = 6


def data(n, seed=0, failures=0.0, reads="relation"):
    """Features, costs with noise, and groups: two, of unlike scale."""
    rng = np.random.default_rng(seed)
    x, logarithm = (vectors if reads == "relation" else trees)(n, rng, reads)
    groups = rng.integers(0, 2, n)
    costs = np.exp(logarithm + rng.normal(size=n) / 20)
    costs *= np.array([1e-3, 1.0])[groups]
    costs[rng.random(n) < failures] = np.inf
    return x, costs, groups


def vectors(n, rng, reads):
    """Ten features, of which four matter."""
    x = rng.normal(size=(n, 10)).astype(np.float32)
    return x, x[:, 0] + np.abs(x[:, 1]) - x[:, 2] * (x[:, 3] > 0)


def trees(n, rng, reads):
    """Two nests of loops. What counts is the extent of each loop, less where it is vectorized,
    and which of the first nest's loops is the vectorized one."""
    columns = names() if reads == "tree" else text_names()
    x = np.zeros((n, LOOPS, len(columns)), np.float32)
    extents = rng.uniform(1.6, 5, (n, LOOPS))
    kinds = rng.integers(0, len(KINDS), (n, LOOPS))
    x[:, :, columns.index("extent")] = extents
    x[:, :, columns.index("depth")] = (0, 1, 2, 0, 1, 1)
    if reads == "text":
        x[:, :, columns.index("identifier")] = 10 + np.arange(LOOPS)
    for number, kind in enumerate(KINDS):
        x[:, :, columns.index(kind)] = kinds == number
    vectorized = kinds == KINDS.index("vectorized")
    logarithm = (extents * np.where(vectorized, -1.0, 1.0) / 4).sum(axis=1)
    return x.reshape(n, -1), logarithm + vectorized[:, 2]
