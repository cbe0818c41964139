"""The numbers of a loop tree, apart from its structure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.expr import Binary, Cast, Const, Expr, Gather
from loopwright.dsl.traversal import children, rebuild
from loopwright.schedule.tree.formula import Formula, evaluated
from loopwright.schedule.tree.grammar import (
    Linear,
    Load,
    Loop,
    Position,
    Prefetch,
    Stmt,
    Tree,
    Var,
)

CLAMPED, PLAIN = "clamped", "plain"
"""Tokens of loads. One that is clamped is right where it need not be."""

MOST_SIZES = 1 << 22
"""Combinations of sizes at which a number of a tree is verified."""

Number = Callable[[Any], Any]


def without_hints(tree: Tree) -> Tree:
    """A tree without prefetches, and the loops that hold nothing else."""

    def changed(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        kept = (s for s in body if not _is_hint(s))
        return tuple(replace(s, body=changed(s.body)) if isinstance(s, Loop) else s for s in kept)

    return replace(tree, prepare=changed(tree.prepare), body=changed(tree.body))


def _is_hint(part: Any) -> bool:
    """Return whether a statement only prefetches. The places of hints follow sizes in ways of
    their own, so they are no part of a structure, and stay those of one size."""
    kind = type(part)
    if kind is Loop:
        return bool(part.body) and all(map(_is_hint, part.body))
    return kind is Prefetch


def structure(tree: Tree) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """A tree of one config without its numbers, and these, in a fixed order."""
    found: list[int] = []

    def number(value: int) -> int:
        found.append(value)
        return value

    visit = _Visit(number)
    visit(tree)
    return tuple(visit.tokens), tuple(found)


def loads(kind: Sequence[Any]) -> list[Any]:
    """`CLAMPED` or `PLAIN` for each load of a structure, in order."""
    return [how for token, how in itertools.pairwise(kind) if token is Load]


def with_numbers(
    tree: Tree, numbers: Mapping[int, Formula], clamped: Collection[int] = ()
) -> Tree:
    """A tree with formulas in place of some numbers, by their places in what `structure` gives,
    and loads that are `clamped`, by theirs in `loads`. Loops that never run are left out."""
    place = iter(range(1 << 62))

    def number(value: int) -> Any:
        return numbers.get(next(place), value)

    changed: Tree = _Visit(number, prune=True, clamped=clamped)(tree)
    return changed


def over(tree: Tree, parts: Mapping[str, Formula]) -> Tree:
    """A tree whose formulas have others in place of dims, by these names."""

    def number(x: Any) -> Any:
        if not isinstance(x, Formula):
            return x
        return parts.get(x.args[0], x) if x.op == "dim" else x.rebuilt(number)

    made: Tree = _Visit(number)(tree)
    return made


def at_sizes(tree: Tree, sizes: Mapping[str, np.ndarray[Any, Any]]) -> Tree:
    """A tree whose formulas are arrays: their numbers at sizes that broadcast together.

    Raises `ConfigError` where a number follows more than `MOST_SIZES` combinations of sizes.
    """

    def number(x: Any) -> Any:
        if isinstance(x, Formula):
            many = math.prod(sizes[name].size for name in x.dims())
            if many > MOST_SIZES:
                raise ConfigError(
                    f"{x} has {many} combinations of sizes, {MOST_SIZES} are verified"
                )
        return evaluated(x, sizes)

    made: Tree = _Visit(number)(tree)
    return made


class _Visit:
    """Goes over a tree, notes its structure as `tokens`, and changes its numbers.

    A constant that is a whole number is one as well, or one over it: extents stand in predicates
    and means. Where it changes, it becomes the value of an index expression.
    """

    def __init__(self, number: Number, prune: bool = False, clamped: Collection[int] = ()) -> None:
        self.number, self.prune, self.clamped = number, prune, clamped
        self._load = itertools.count()
        self.tokens: list[Any] = []
        self._order: dict[Var, int] = {}

    def __call__(self, x: Any) -> Any:
        kind = type(x)
        if kind is int:
            self.tokens.append(int)
            return self.number(x)
        if kind is tuple:
            hints = [_is_hint(y) for y in x]
            self.tokens.append(len(x) - sum(hints))
            parts = tuple([y if hint else self(y) for y, hint in zip(x, hints)])
            return tuple(y for y in parts if not _never_runs(y)) if self.prune else parts
        if kind is Linear:
            self.tokens.append(len(x.terms))
            return Linear(tuple([(self(t), self(c)) for t, c in x.terms]), self(x.const))
        if kind is Var:
            self.tokens.append((x.name, self._order.setdefault(x, len(self._order))))
            return x
        if kind is Formula or kind is np.ndarray:
            return self.number(x)
        if kind is Load:
            self.tokens += Load, CLAMPED if x.clamped else PLAIN
            clamped = (next(self._load) in self.clamped) or x.clamped
            return Load(self(x.buffer), self(x.index), clamped)
        if names := _fields(kind):
            if isinstance(x, Expr) and kind is not Position:
                return self._expression(x)
            self.tokens.append(kind)
            return kind(*[self(getattr(x, name)) for name in names])
        if isinstance(x, np.integer):
            return self(int(x))
        self.tokens.append(x)
        return x

    def _expression(self, x: Expr) -> Expr:
        if isinstance(x, Const):
            return self._constant(x)
        self.tokens.append(type(x))
        if isinstance(x, Gather):
            self.tokens.append(tuple(at is None for at in x.at))
            shape = self(x.shape)
            made = rebuild(x, self)
            assert isinstance(made, Gather)
            return replace(made, shape=shape)
        inside = children(x)
        for name in _fields(type(x)):
            value = getattr(x, name)
            if not any(value is child for child in inside):
                self.tokens.append(value)
        return rebuild(x, self)

    def _constant(self, x: Const) -> Expr:
        whole = not isinstance(x.value, bool) and abs(x.value) < 1 << 31
        if whole and x.value == int(x.value):
            self.tokens.append((Const, x.type))
            value = self.number(int(x.value))
            return x if isinstance(value, int) else _value(value, x.type)
        divisor = reciprocal(x.value)
        if divisor is None:
            self.tokens.append((x.value, x.type))
            return x
        self.tokens.append((Const, "1 /", x.type))
        value = self.number(divisor)
        one = Const(1.0, x.type)
        return x if isinstance(value, int) else Binary("div", one, _value(value, x.type))


def _fields(kind: Any) -> tuple[str, ...]:
    """The names of a dataclass's fields; none of another type."""
    if kind not in _KNOWN:
        _KNOWN[kind] = tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()
    return _KNOWN[kind]


_KNOWN: dict[Any, tuple[str, ...]] = {}


def _value(number: Any, dtype: str) -> Expr:
    """A number of the tree as a value of a type."""
    place = Position(Linear((), number))
    return place if dtype == "int32" else Cast(place, dtype)


def reciprocal(value: float) -> int | None:
    """The whole number that a float is one over, if there is one, as means divide by counts."""
    if not 0 < value < 1:
        return None
    divisor = round(1 / value)
    return divisor if divisor < 1 << 31 and 1.0 / divisor == value else None


def _never_runs(part: Any) -> bool:
    return isinstance(part, Loop) and isinstance(part.extent, int) and part.extent == 0
