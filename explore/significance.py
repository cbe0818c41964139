"""The end of a search: the best few measured again, side by side, and a winner named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.measure.timing import typical
from loopwright.schedule.sketch.sketch import Config

SIGNIFICANT = 0.05
"""Differences that chance makes as large more often than this are ties."""


@dataclass(frozen=True)
class Finalist:
    """One of the best configs.

    Attributes
    ----------
    seconds: samples of the comparison; those of one place were taken side by side.
    p: how often chance alone would make it differ from the winner as much; 1 for the winner.
    """

    config: Config
    seconds: tuple[float, ...]
    p: float

    @property
    def cost(self) -> float:
        """What the samples say, in seconds: see `timing.typical`."""
        return typical(self.seconds)

    @property
    def tied(self) -> bool:
        """Whether it cannot be told from the winner."""
        return self.p >= SIGNIFICANT


def judge(
    configs: Sequence[Config], samples: Sequence[tuple[float, ...]], default: Config
) -> list[Finalist]:
    """Rank the finalists that ran, the winner first.

    The winner has the lowest cost; of equal ones the default config, then the first. Ties are
    by Wilcoxon's signed-rank test on the logarithms of paired samples, two-sided.
    """
    ran = [(c, s) for c, s in zip(configs, samples, strict=True) if s and math.isfinite(max(s))]
    ran.sort(key=lambda pair: (typical(pair[1]), pair[0] != default))
    return [Finalist(c, s, 1.0 if c == ran[0][0] else chance(s, ran[0][1])) for c, s in ran]


def chance(a: Sequence[float], b: Sequence[float]) -> float:
    """The p-value of paired samples (seconds) having equal distributions.

    Exact, ties included: of all ways to sign the ranks of the differences, how many give a sum
    at least as far from the middle. (Importing SciPy for it would take a second.)
    """
    ratios = np.log(a) - np.log(b)
    ratios = ratios[ratios != 0.0]
    sizes = np.abs(ratios)
    ordered = np.sort(sizes)
    twice = np.searchsorted(ordered, sizes, "left") + np.searchsorted(ordered, sizes, "right") + 1
    ways = np.zeros(twice.sum() + 1)  # by the doubled sum of the positive ranks
    ways[0] = 1.0
    for rank in twice:
        ways[rank:] += ways[:-rank].copy()
    positive = twice[ratios > 0.0].sum()
    tail = ways[: min(positive, twice.sum() - positive) + 1].sum()
    return float(min(1.0, 2.0 * tail / ways.sum()))
