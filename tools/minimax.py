"""Compute the polynomial coefficients of `codegen/tir/elementary.py` and print them.

    python tools/minimax.py [NAME]...

The method is Remez' exchange on a dense grid: the weighted error of the polynomial is levelled on
n + 1 points of alternating sign, then these points move to the extrema of the error, and so on.
The coefficients are then rounded to float32 one at a time, from the highest power down, and the
lower ones are fitted again after each, so that they absorb the rounding. (Downwards, because x,
x^2, ... without a constant all vanish at 0 and have no levelled error around it.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]
_ROUNDS = 20  # it settles in ten, or goes round between extrema that differ by a few percent


@dataclass(frozen=True)
class Problem:
    """Minimise the maximum of weight(x) |value(x) - p(x)| over [low, high], 0 excluded.

    `weight` >= 0 turns the error of the polynomial into the relative error of the whole function.
    """

    value: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    low: float
    high: float
    degree: int

    def grid(self, points: int = 20_001) -> Array:
        """Chebyshev nodes, dense at the ends, where extrema crowd."""
        angle = (np.arange(points) + 0.5) * (np.pi / points)
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        nodes = middle - half * np.cos(angle)
        return np.asarray(nodes[np.abs(nodes) > 1e-9])


def _exp_tail(r: Array) -> Array:
    """(e^r - 1 - r) / r^2, by its Taylor series, which has no cancellation."""
    terms = [r**k / special.factorial(k + 2) for k in range(18)]
    return np.asarray(np.sum(np.array(terms[::-1]), axis=0))


def _log_tail(f: Array) -> Array:
    """(log(1 + f) - f + f^2/2) / f^3, in extended precision because it cancels."""
    wide = f.astype(np.longdouble)
    direct = (np.log1p(wide) - wide + wide * wide / 2) / wide**3
    series = 1 / 3 - f / 4 + f * f / 5 - f**3 / 6 + f**4 / 7 - f**5 / 8
    return np.where(np.abs(f) < 1e-3, series, direct.astype(np.float64))


def _series(coefficients: list[float]) -> Callable[[Array], Array]:
    """A function by its Taylor series, which does not cancel where its terms are small."""
    return lambda z: np.asarray(np.polynomial.polynomial.polyval(z, coefficients))


_TERMS = range(1, 40)
_SIN_TAIL = _series([(-1.0) ** k / special.factorial(2 * k + 1) for k in _TERMS])
_COS_TAIL = _series([(-1.0) ** (k + 1) / special.factorial(2 * k + 2) for k in _TERMS])
_ATAN_TAIL = _series([(-1.0) ** k / (2 * k + 1) for k in _TERMS])
_ASIN_TAIL = _series([special.binom(2 * k, k) / 4.0**k / (2 * k + 1) for k in _TERMS])
_SINH_TAIL = _series([1 / special.factorial(2 * k + 1) for k in _TERMS])


def _odd(
    tail: Callable[[Array], Array], f: Callable[[Array], Array], most: float, degree: int
) -> Problem:
    """f(x) = x + x z p(z) with z = x^2, for |x| <= most."""
    return Problem(tail, lambda z: z * np.sqrt(z) / f(np.sqrt(z)), 0.0, most**2, degree)


def _erf_exponent(x: Array) -> Array:
    """-log(1 - erf(x)) / x."""
    log_erfc = np.where(x < 0.5, np.log1p(-special.erf(x)), np.log(special.erfc(x)))
    return np.asarray(-log_erfc / x)


PROBLEMS: dict[str, Problem] = {
    # e^r = 1 + r + r^2 p(r); the weight is that of e^r - 1, the stricter use (tanh, erf).
    "exp": Problem(
        _exp_tail, lambda r: np.abs(r * r / np.expm1(r)), -np.log(2) / 2, np.log(2) / 2, degree=4
    ),
    # log(1 + f) = f - f^2/2 + f^3 p(f), 1 + f between sqrt(1/2) and sqrt(2).
    "log": Problem(
        _log_tail, lambda f: f**3 / np.log1p(f), np.sqrt(0.5) - 1, np.sqrt(2) - 1, degree=7
    ),
    # erf(x) = 1 - exp(-x p(x)); from x = 3.92 on erf rounds to 1 in float32.
    "erf": Problem(
        _erf_exponent, lambda x: x * special.erfc(x) / special.erf(x), 0.0, 3.95, degree=8
    ),
    "sin": _odd(_SIN_TAIL, np.sin, np.pi / 4, degree=2),
    # cos(x) = 1 - z/2 + z^2 p(z).
    "cos": Problem(_COS_TAIL, lambda z: z * z / np.cos(np.sqrt(z)), 0.0, np.pi**2 / 16, degree=2),
    "atan": _odd(_ATAN_TAIL, np.arctan, np.tan(np.pi / 8), degree=3),
    "asin": _odd(_ASIN_TAIL, np.arcsin, 0.5, degree=4),
    "sinh": _odd(_SINH_TAIL, np.sinh, 1.0, degree=2),
}


def remez(problem: Problem, rounded: list[float]) -> tuple[list[float], float]:
    """The best lower coefficients under the `rounded` top ones, and the maximum weighted error."""
    x = problem.grid()
    weight = problem.weight(x)
    count = problem.degree + 1 - len(rounded)
    top = np.polynomial.polynomial.polyval(x, [0.0] * count + rounded) if rounded else 0.0
    target = weight * (problem.value(x) - top)
    basis = np.stack([weight * x**k for k in range(count)], axis=1)
    points = np.linspace(0, len(x) - 1, count + 1).astype(np.int64)
    signs = (-1.0) ** np.arange(count + 1)
    best: Array = np.zeros(count)
    least = np.inf
    for _ in range(_ROUNDS):
        solved = np.linalg.solve(np.column_stack([basis[points], signs]), target[points])
        error = target - basis @ solved[:-1]
        worst = float(np.max(np.abs(error)))
        if worst < least:
            best, least = np.asarray(solved[:-1], np.float64), worst
        points = _extrema(error, count + 1)
    return [float(c) for c in best], least


def _extrema(error: Array, count: int) -> NDArray[np.int64]:
    """The position of the largest error in each run of one sign; `count` runs, small ends cut."""
    starts = np.flatnonzero(np.diff(np.sign(error)) != 0) + 1
    runs = np.split(np.arange(len(error)), starts)
    peaks = [int(run[np.argmax(np.abs(error[run]))]) for run in runs]
    while len(peaks) > count:
        peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
    if len(peaks) < count:
        raise ArithmeticError(f"the error alternates {len(peaks)} times, {count} are needed")
    return np.array(peaks)


def fit(problem: Problem) -> tuple[list[float], float]:
    """Float32 coefficients, constant term first, and the weighted error that they leave."""
    rounded: list[float] = []
    while len(rounded) <= problem.degree:
        free, _ = remez(problem, rounded)
        rounded.insert(0, float(np.float32(free[-1])))
    x = problem.grid()
    error = problem.value(x) - np.polynomial.polynomial.polyval(x, rounded)
    return rounded, float(np.max(problem.weight(x) * np.abs(error)))


def main(names: list[str]) -> None:
    """Print the coefficients of the named problems (all of them without names)."""
    for name in names or list(PROBLEMS):
        coefficients, error = fit(PROBLEMS[name])
        sys.stdout.write(f"{name}: relative error 2^{np.log2(error):.1f}\n")
        sys.stdout.writelines(f"    {coefficient:.9g},\n" for coefficient in coefficients)


if __name__ == "__main__":
    main(sys.argv[1:])
