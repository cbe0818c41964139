"""The end of a search: the best few measured again, side by side, and a winner chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl.numerics import Numerics
from loopwright.measure.timing import typical
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space

SIGNIFICANT = 0.025
"""Differences that chance makes as large more often than this are ties: one-sided, so that ties
agree with two-sided intervals of 95 %."""
MARGIN = 0.01
"""By as much a program may be slower than the fastest and be tied with it all the same: its own
time differs as much from one process to the next, by where its code and data happen to lie."""
WIDE = 1.2
"""The ends of a ratio that is claimed are no farther apart, so that it is within 10 % of them, as
it is of the ratio of the costs."""
FEWEST = 6
"""Rounds, of which a test can tell anything at that significance."""
_EXACT = 50
"""Rounds up to which all ways to sign the ranks are counted; of more the sum is about normal."""

Order = Callable[[Config], Any]
"""Sort key of configs that cannot be told apart, the one to choose first."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of times, and where it lies with a confidence of 95 %."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        value, low, high = (format(x, spec or ".2f") for x in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"

    def __str__(self) -> str:
        return format(self)


@dataclass(frozen=True)
class Finalist:
    """One of the best configs, with samples in seconds, those of one place taken side by side. `p`
    tells how often chance alone would make it as slow if it took no more than `MARGIN` longer than
    the fastest. It is the "winner", "tied" with the fastest but not chosen, or "slower"."""

    config: Config
    seconds: tuple[float, ...]
    p: float
    standing: str

    @property
    def cost(self) -> float:
        """Cost that the samples show, in seconds: see `timing.typical`."""
        return typical(self.seconds)


def fixed_order(space: Space, sizes: Mapping[Config, int]) -> Order:
    """The order among configs that a test cannot tell apart, so that the choice holds: the default
    first, then stricter numerics, the smaller error growth, fewer bytes of code and workspace, and
    the text."""

    def key(config: Config) -> tuple[bool, Numerics, float, int, str]:
        sketch = space.whole.sketch(config.sketch)
        size = sizes.get(config, 0)
        return config != space.default, sketch.numerics, sketch.error_growth, size, str(config)

    return key


def judge(samples: Mapping[Config, tuple[float, ...]], order: Order) -> list[Finalist]:
    """The finalists that ran, the winner first, the others by cost.

    The fastest has the lowest cost. Tied are all that the signed-rank test cannot tell from it;
    the first of these in the fixed order wins, whatever its own cost.
    """
    ran = {c: s for c, s in samples.items() if s and math.isfinite(max(s))}
    if not ran:
        return []
    fastest = min(ran, key=lambda c: (typical(ran[c]), order(c)))
    p = {c: slower(s, ran[fastest]) for c, s in ran.items()}
    p[fastest] = 1.0
    tied = {c for c in ran if p[c] >= SIGNIFICANT}
    winner = min(tied, key=order)
    ranked = sorted(ran, key=lambda c: (c != winner, typical(ran[c]), order(c)))
    standing = dict.fromkeys(ran, "slower") | dict.fromkeys(tied, "tied") | {winner: "winner"}
    return [Finalist(c, ran[c], p[c], standing[c]) for c in ranked]


def slower(a: Sequence[float], b: Sequence[float]) -> float:
    """Probability that chance alone makes `a` as slow, if it took `MARGIN` longer than `b`."""
    return chance(a, (1 + MARGIN) * np.asarray(b))


def chance(a: Sequence[float] | np.ndarray[Any, Any], b: Any) -> float:
    """Probability that paired samples (seconds) of equal distributions would have `a` as much
    above `b`: the one-sided p-value of Wilcoxon's signed-rank test on their logarithms.

    Exact, ties included: of all ways to sign the ranks of the differences, how many give a sum
    at least as high. (Importing SciPy for it would take a second.)
    """
    ratios = np.log(a) - np.log(b)
    ratios = ratios[ratios != 0.0]
    sizes = np.abs(ratios)
    ordered = np.sort(sizes)
    twice = np.searchsorted(ordered, sizes, "left") + np.searchsorted(ordered, sizes, "right") + 1
    positive = int(twice[ratios > 0.0].sum())
    if len(twice) > _EXACT:
        apart = (positive - 1 - twice.sum() / 2) / math.sqrt((twice.astype(float) ** 2).sum() / 4)
        return math.erfc(apart / math.sqrt(2)) / 2
    ways = _ways(twice)
    return float(ways[positive:].sum() / ways.sum())


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """The ratio of `a` to `b`, paired samples: the Hodges–Lehmann estimate of its logarithm, the
    median over all pairs of rounds of their mean, and the interval that inverts the signed-rank
    test (Hollander, Wolfe and Chicken 2014, section 3.2 and 3.3). Fewer than `FEWEST` rounds bound
    nothing."""
    logs = np.log(a) - np.log(b)
    n = len(logs)
    first, second = np.triu_indices(n)
    means = np.sort((logs[first] + logs[second]) / 2)
    if n > _EXACT:
        middle, deviation = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        rank = int(middle - 1.96 * deviation)
    else:
        ways = _ways(np.arange(1, n + 1))
        rank = int((np.cumsum(ways) <= SIGNIFICANT * ways.sum()).sum())
    low, high = (means[rank - 1], means[-rank]) if rank else (-math.inf, math.inf)
    return Ratio(*(math.exp(x) for x in (float(np.median(means)), float(low), float(high))))


def doubt(a: Sequence[float], b: Sequence[float]) -> str:
    """Reason why the ratio of `a` to `b`, paired samples, is not to be claimed; nothing if it may
    be. Other programs may slow one more than the other in most rounds, and then the faster quarter
    of the samples shows another ratio, which is nearer to what holds."""
    found, costs = ratio(a, b), typical(a) / typical(b)
    if found.high > WIDE * found.low:
        return "differed too much from round to round"
    if abs(math.log(found.value / costs)) > math.log(WIDE) / 2:
        return f"is {costs:.2f} by the faster calls, which were disturbed less"
    return ""


def _ways(ranks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Number of ways in which some of the ranks have each sum."""
    ways = np.zeros(int(ranks.sum()) + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[:-rank].copy()
    return ways
