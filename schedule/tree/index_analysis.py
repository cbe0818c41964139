"""Interval and congruence analysis of index expressions: the range of their values, and what
divides them."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    def loop(self, var: Var, extent: Column) -> None:
        """Bind a loop's counter."""
        last = _greatest(extent, 1) - 1
        self.known[var] = ValueRange(0, last, _least(last, 1))

    def let(self, var: Var, value: Linear, limit: Column) -> None:
        """Bind `var = min(value, limit)`."""
        low, high = self.range(value)
        clips = np.greater(high, limit) * 1
        step = np.gcd(self.step(value), np.multiply(limit, clips))
        self.known[var] = ValueRange(_least(low, limit), _least(high, limit), step)

    def range(self, x: Linear) -> tuple[Column, Column]:
        """The least and the greatest value."""
        low, high = x.const, x.const
        for term, coefficient in x.terms:
            first, last = self._term_range(term)
            ends = coefficient * first, coefficient * last
            low, high = low + _least(*ends), high + _greatest(*ends)
        return low, high

    def step(self, x: Linear) -> Column:
        """A number that divides every value."""
        result: Column = np.abs(x.const)
        for term, coefficient in x.terms:
            result = np.gcd(result, coefficient * self._term_step(term))
        return result

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
            return np.gcd(inside, term.divisor)
        divides: Column = np.equal(inside % term.divisor, 0) * 1
        whole: Column = inside // term.divisor
        return divides * whole + (1 - divides)


def _least(one: Column, other: Column) -> Column:
    """The lesser of two columns; NumPy takes twenty times as long for a pair of integers."""
    if one.__class__ is int and other.__class__ is int:
        return one if one < other else other
    return np.minimum(one, other)


def _greatest(one: Column, other: Column) -> Column:
    """The greater of two columns."""
    if one.__class__ is int and other.__class__ is int:
        return other if one < other else one
    return np.maximum(one, other)


def _remainders(low: Column, high: Column, divisor: Column) -> tuple[Column, Column]:
    """The least and the greatest remainder of the numbers from `low` to `high`."""
    one: Column = np.equal(low // divisor, high // divisor) * 1  # all have the same quotient
    return one * (low % divisor), one * (high % divisor) + (1 - one) * (divisor - 1)
