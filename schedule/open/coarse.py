"""Families that follow a dim in steps alone, over dims that count these steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.size import Dim
from loopwright.schedule.open.family import Family, numbered
from loopwright.schedule.open.numbers import over
from loopwright.schedule.open.rule import Rule
from loopwright.schedule.tree.formula import Formula
from loopwright.schedule.tree.grammar import Tree


@dataclass(frozen=True)
class Coarse:
    """A family of which each value of a dim is another workload, made of one over the dims `fine`.

    A network halves an image of height h five times, and what follows is one workload for 32
    values of h: `⌊(h + 31) / 32⌋ ↦ h`. A dim that the family does not follow has one value.
    `parts` are what stood where a dim stands now.
    """

    family: Family
    fine: tuple[Dim, ...]
    parts: Mapping[str, Formula]

    def tree(self, tree: Tree) -> Tree:
        """A tree with formulas of the fine dims."""
        return over(tree, self.parts)

    def rule(self, rule: Rule) -> Rule:
        """A rule with bounds of the fine dims."""
        pairs = zip(self.fine, self.family.dims, rule.bounds, strict=True)
        return Rule(tuple(self._bounds(*each) for each in pairs), rule.program)

    def _bounds(self, fine: Dim, own: Dim, ends: tuple[int, int]) -> tuple[int, int]:
        if fine.name not in self.parts:
            return ends if own == fine else (fine.low, fine.high)
        values = np.array(fine.values)
        found = self.parts[fine.name].at({fine.name: values})
        inside = values[(ends[0] <= found) & (found <= ends[1])]
        return int(inside[0]), int(inside[-1])


def coarse(family: Family) -> Coarse:
    """A family over the coarsest dims."""
    formulas = dict[str, Formula]()

    def see(x: Any) -> Any:
        if isinstance(x, Formula):
            formulas[str(x)] = x
        return x

    numbered(family.form, see)
    dims, parts, steps = [], dict[str, Formula](), list[tuple[Formula, Formula | int]]()
    for d in family.dims:
        own = [f for f in formulas.values() if d.name in f.dims()]
        if not own:
            dims.append(replace(d, low=1, high=1, multiple=1))
        elif (part := _only_part(d, own)) is not None:
            more = max(0, 1 - part.low)  # a dim is at least 1
            counted = part + more
            assert isinstance(counted, Formula), "it takes several values"
            dims.append(replace(d, low=counted.low, high=counted.high, multiple=1))
            parts[d.name] = counted
            steps.append((part, Formula.of(dims[-1]) - more))
        else:
            dims.append(d)
    if not parts:
        return Coarse(Family(tuple(dims), family.form), family.dims, {})

    def change(x: Any) -> Any:
        for part, value in steps:
            x = _over(x, part, value)
        return x

    form = numbered(family.form, change)
    return Coarse(Family(tuple(dims), form), family.dims, parts)


def _only_part(known: Dim, formulas: list[Formula]) -> Formula | None:
    """The quotient of a dim by which alone formulas follow it, if it takes all values between its
    ends, one after the other."""
    for part in {str(p): p for f in formulas for p in _quotients(f, known.name)}.values():
        if any(_follows(_over(f, part, 0), known.name) for f in formulas):
            continue
        rises = np.diff(part.at({known.name: np.array(known.values)}))
        if rises.any() and ((rises == 0) | (rises == 1)).all():
            low, high = (part.at({known.name: end}) for end in (known.low, known.high))
            return replace(part, low=int(low), high=int(high))
    return None


def _quotients(formula: Formula, name: str) -> Iterator[Formula]:
    """The quotients of one dim in a formula, outer ones first."""
    if formula.op == "floordiv" and formula.dims() == {name}:
        yield formula
    for x in formula.args:
        if isinstance(x, Formula):
            yield from _quotients(x, name)


def _over(x: Any, part: Formula, value: Formula | int) -> Any:
    """A formula with a value in place of a quotient, and what follows from it in place of others.

    `⌊(n + 30) / 20⌋ ↦ ⌊(value + 2) / 2⌋`  where the value is `⌊(n + 10) / 10⌋`.
    """
    if not isinstance(x, Formula):
        return x
    if str(x) == str(part):
        return value
    if x.op == part.op and all(isinstance(q.args[1], int) for q in (x, part)):
        (own, more), (other, less) = _numerator(x), _numerator(part)
        times, left = divmod(x.args[1], part.args[1])
        further, between = divmod(more - less, part.args[1])
        if str(own) == str(other) and not left and not between:
            return (value + further) // times
    return x.rebuilt(lambda y: _over(y, part, value))


def _numerator(quotient: Formula) -> tuple[Formula | int, int]:
    """What is divided, as a formula and a number behind it."""
    x = quotient.args[0]
    if isinstance(x, Formula) and x.op == "add" and isinstance(x.args[1], int):
        return x.args
    return x, 0


def _follows(x: Formula | int, name: str) -> bool:
    return isinstance(x, Formula) and name in x.dims()
