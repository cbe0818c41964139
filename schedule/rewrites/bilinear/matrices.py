"""Bilinear algorithms for short convolutions: fewer multiplications than their definition has.

For m neighbouring results of a window of r taps,

    y[j] = Σ_q  d[j + q] · g[q]           j < m, q < r,

Winograd's algorithm F(m, r) is three matrices with  y = A ((G g) ⊙ (B d)): m + r - 1
multiplications (Winograd 1980; Lavin and Gray 2016), found by Toom and Cook's interpolation at
small points.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

Matrix = tuple[tuple[Fraction, ...], ...]

# Points at which little is lost to rounding, in the order in which they are taken.
_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))


@dataclass(frozen=True)
class Bilinear:
    """`y = A ((G g) ⊙ (B d))` with m `results` in y: `inner` is G, of shape (multiplications, r),
    `outer` is A, (m, multiplications), and `data` is B, (multiplications, elements of d)."""

    results: int
    inner: Matrix
    outer: Matrix
    data: Matrix

    @property
    def products(self) -> int:
        """Multiplications."""
        return len(self.inner)

    @functools.cached_property
    def error_growth(self) -> float:
        """Error growth: how much larger rounding errors may be than in the sum itself. It is the
        root mean square of what is added up for a result, over that of its r products, for random
        d and g."""
        sizes = [_norm(g) * _norm(d) for g, d in zip(self.inner, self.data, strict=True)]
        sums = (math.hypot(*(float(a) * s for a, s in zip(row, sizes))) for row in self.outer)
        return max(sums) / math.sqrt(len(self.inner[0]))

    @functools.cached_property
    def amplification(self) -> float:
        """A bound of a result's terms, over |d| ≤ 1 and |g| ≤ 1: r in the sum itself."""
        sizes = [_total(g) * _total(d) for g, d in zip(self.inner, self.data, strict=True)]
        return max(sum(abs(float(a)) * size for a, size in zip(row, sizes)) for row in self.outer)


@functools.cache
def bilinear(results: int, taps: int) -> Bilinear:
    """F(m, r): evaluate at m + r - 2 points and at infinity, multiply, interpolate."""
    points = _POINTS[: results + taps - 2]
    inner: list[tuple[Fraction, ...]] = []
    data: list[tuple[Fraction, ...]] = []
    for at in points:
        others = [p for p in points if p != at]
        scale = math.prod((at - p for p in others), start=Fraction(1))
        inner.append(tuple(at**q / scale for q in range(taps)))
        data.append((*_product(others), Fraction(0)))
    inner.append((*(Fraction(0),) * (taps - 1), Fraction(1)))
    data.append(_product(list(points)))
    last = results - 1
    outer = tuple((*(p**j for p in points), Fraction(int(j == last))) for j in range(results))
    return Bilinear(results, tuple(inner), outer, tuple(data))


def _product(roots: list[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of Π (x - root), of x⁰ first."""
    found = [Fraction(1)]
    for root in roots:
        found = [a - root * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)])]
    return tuple(found)


def _total(row: tuple[Fraction, ...]) -> float:
    return sum(abs(float(x)) for x in row)


def _norm(row: tuple[Fraction, ...]) -> float:
    return math.hypot(*map(float, row))
