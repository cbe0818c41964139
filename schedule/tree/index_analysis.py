"""Interval and congruence analysis of index expressions: the range of their values, and what
divides them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.schedule.tree.grammar import Column, Linear, Remainder, Term, Var


@dataclass(frozen=True)
class ValueRange:
    """The values of a variable: from `low` to `high`, all of them multiples of `step` (of a
    variable that is always 0, `step` is 0)."""

    low: Column
    high: Column
    step: Column


@dataclass
class IndexAnalysis:
    """The values of the variables that are bound so far, for a batch of configs."""

    known: dict[Var, ValueRange] = field(default_factory=dict)
    clipped: dict[Var, Linear] = field(default_factory=dict)  # the value of each `Let`

    def loop(self, var: Var, extent: Column) -> None:
        """Bind a loop's counter."""
        last = greatest(extent, 1) - 1
        self.known[var] = ValueRange(0, last, least(last, 1))

    def let(self, var: Var, value: Linear, limit: Column) -> None:
        """Bind `var = min(value, limit)`."""
        low, high = self.range(value)
        clips = (high > limit) * 1
        step = _gcd(self.step(value), limit * clips)
        self.known[var] = ValueRange(least(low, limit), least(high, limit), step)
        self.clipped[var] = value

    def range(self, x: Linear) -> tuple[Column, Column]:
        """The least and the greatest value."""
        low, high = x.const, x.const
        for term, coefficient in x.terms:
            first, last = self._term_range(term)
            ends = coefficient * first, coefficient * last
            low, high = low + least(*ends), high + greatest(*ends)
        return low, high

    def step(self, x: Linear) -> Column:
        """A number that divides every value."""
        result = _gcd(x.const, 0)
        for term, coefficient in x.terms:
            result = _gcd(result, coefficient * self._term_step(term))
        return result

    def gap(self, x: Linear) -> Column:
        """The most that neighbours among the values can differ by, where no term follows from
        another: 0 of one value, 1 of a run of integers."""
        spans: list[Column] = []
        gaps: list[Column] = []
        for term, coefficient in x.terms:
            low, high = self._term_range(term)
            times: Any = abs(coefficient)
            spans.append(times * (high - low))
            gaps.append(least(times * self._term_gap(term), spans[-1]))
        result: Column = 0
        for i, gap in enumerate(gaps):
            filled: Column = 0  # by terms whose gaps are smaller
            for k, (other, span) in enumerate(zip(gaps, spans)):
                before: Column = ((other < gap) | ((other == gap) & (k < i))) * 1
                if k != i:
                    filled = filled + before * span
            result = greatest(result, gap - filled)
        return result

    def _term_gap(self, term: Term) -> Column:
        if isinstance(term, Var):
            return self.gap(self.clipped[term]) if term in self.clipped else 1
        if isinstance(term, Remainder):  # all remainders that the step allows are taken
            return _gcd(self.step(term.value), term.divisor)
        return greatest(-(-self.gap(term.value) // term.divisor), 1)

    def _term_range(self, term: Term) -> tuple[Column, Column]:
        if isinstance(term, Var):
            values = self.known[term]
            return values.low, values.high
        low, high = self.range(term.value)
        if isinstance(term, Remainder):
            return _remainders(low, high, term.divisor)
        return low // term.divisor, high // term.divisor

    def _term_step(self, term: Term) -> Column:
        if isinstance(term, Var):
            return self.known[term].step
        inside = self.step(term.value)
        if isinstance(term, Remainder):
            return _gcd(inside, term.divisor)
        divides: Column = (inside % term.divisor == 0) * 1
        whole: Column = inside // term.divisor
        return divides * whole + (1 - divides)


def least(one: Column, other: Column) -> Column:
    """The lesser of two columns; NumPy takes twenty times as long for a pair of integers."""
    if one.__class__ is int and other.__class__ is int:
        return one if one < other else other
    return np.minimum(one, other)


def greatest(one: Column, other: Column) -> Column:
    """The greater of two columns."""
    if one.__class__ is int and other.__class__ is int:
        return other if one < other else one
    return np.maximum(one, other)


def _gcd(one: Column, other: Column) -> Column:
    """The greatest common divisor of two columns."""
    if one.__class__ is int and other.__class__ is int:
        return math.gcd(one, other)
    return np.gcd(one, other)


def _remainders(low: Column, high: Column, divisor: Column) -> tuple[Column, Column]:
    """The least and the greatest remainder of the numbers from `low` to `high`."""
    one: Column = (low // divisor == high // divisor) * 1  # all have the same quotient
    return one * (low % divisor), one * (high % divisor) + (1 - one) * (divisor - 1)
