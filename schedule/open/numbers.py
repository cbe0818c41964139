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
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.formula import Formula, evaluated

CLAMPED, PLAIN = "clamped", "plain"
"""Tokens of loads. One that is clamped is right where it need not be."""

MOST_SIZES = 1 << 22
"""Combinations of sizes at which a number of a tree is verified."""

Number = Callable[[Any], Any]


def without_hints(tree: g.Tree) -> g.Tree:
    """A tree without prefetches, and the loops that hold nothing else."""

    def changed(body: tuple[g.Stmt, ...]) -> tuple[g.Stmt, ...]:
        kept = (s for s in body if not _is_hint(s))
        return tuple(
            replace(s, body=changed(s.body)) if isinstance(s, g.Loop) else s for s in kept
        )

    return replace(tree, prepare=changed(tree.prepare), body=changed(tree.body))


def _is_hint(part: Any) -> bool:
    """Return whether a statement only prefetches. The places of hints follow sizes in ways of
    their own, so they are no part of a structure, and stay those of one size."""
    kind = type(part)
    if kind is g.Loop:
        return bool(part.body) and all(map(_is_hint, part.body))
    return kind is g.Prefetch


def structure(tree: g.Tree) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """A tree of one config without its numbers, and these, in a fixed order. Terms that are 0
    are none."""
    reader = _Reader()
    reader.read(tree)
    return tuple(reader.tokens), tuple(reader.numbers)


def loads(kind: Sequence[Any]) -> list[Any]:
    """`CLAMPED` or `PLAIN` for each load of a structure, in order."""
    return [how for token, how in itertools.pairwise(kind) if token is g.Load]


def with_numbers(
    tree: g.Tree, numbers: Mapping[int, Formula], clamped: Collection[int] = ()
) -> g.Tree:
    """A tree with formulas in place of some numbers, by their places in what `structure` gives,
    and loads that are `clamped`, by theirs in `loads`. Loops that never run are left out."""
    place = iter(range(1 << 62))

    def number(value: int) -> Any:
        return numbers.get(next(place), value)

    changed: g.Tree = _Rebuild(number, prune=True, clamped=clamped)(tree)
    return changed


def over(tree: g.Tree, parts: Mapping[str, Formula]) -> g.Tree:
    """A tree whose formulas have others in place of dims, by these names."""

    def number(x: Any) -> Any:
        if not isinstance(x, Formula):
            return x
        return parts.get(x.args[0], x) if x.op == "dim" else x.rebuilt(number)

    made: g.Tree = _Rebuild(number)(tree)
    return made


def at_sizes(tree: g.Tree, sizes: Mapping[str, np.ndarray[Any, Any]]) -> g.Tree:
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

    made: g.Tree = _Rebuild(number)(tree)
    return made


class _Reader:
    """Notes the structure of a tree as `tokens`, and its `numbers`.

    A constant that is a whole number is one as well, or one over it: extents stand in predicates
    and means.
    """

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.numbers: list[int] = []
        self._order: dict[g.Var, int] = {}

    def read(self, x: Any) -> None:
        kind = type(x)
        if kind is int or kind is Formula:
            self.tokens.append(int)
            self.numbers.append(x)
        elif kind is tuple:
            kept = [y for y in x if not _is_hint(y)]
            self.tokens.append(len(kept))
            for y in kept:
                self.read(y)
        elif kind is g.Linear:
            terms = [(t, n) for t, c in x.terms if (n := _of_one(c))]
            self.tokens.append(len(terms))
            for term, coefficient in terms:
                self.read(term)
                self.read(coefficient)
            self.read(x.const)
        elif kind is g.Var:
            self.tokens.append((x.name, self._order.setdefault(x, len(self._order))))
        elif kind is g.Load:
            self.tokens += g.Load, CLAMPED if x.clamped else PLAIN
            self.read(x.buffer)
            self.read(x.index)
        elif kind is Const:
            self._constant(x)
        elif names := _fields(kind):
            self.tokens.append(kind)
            if isinstance(x, Expr) and kind is not g.Position:
                self._expression(x, names)
            else:
                for name in names:
                    self.read(getattr(x, name))
        elif isinstance(x, (np.ndarray, np.integer)):
            self.read(_of_one(x))
        else:
            self.tokens.append(x)

    def _expression(self, x: Expr, names: tuple[str, ...]) -> None:
        inside = children(x)
        if isinstance(x, Gather):
            self.tokens.append(tuple(at is None for at in x.at))
            self.read(x.shape)
        else:
            for name in names:
                value = getattr(x, name)
                if not any(value is child for child in inside):
                    self.tokens.append(value)
        for child in inside:
            self.read(child)

    def _constant(self, x: Const) -> None:
        number, over = _whole(x)
        if number is None:
            self.tokens.append((x.value, x.type))
        else:
            self.tokens.append((Const, over, x.type))
            self.numbers.append(number)


def _of_one(column: Any) -> Any:
    """The number of a column of one config."""
    return int(np.ravel(column)[0]) if isinstance(column, (np.ndarray, np.integer)) else column


def _whole(x: Const) -> tuple[int | None, bool]:
    """The whole number that a constant is, or with True the one that it is one over; None where
    it is neither."""
    if not isinstance(x.value, bool) and abs(x.value) < 1 << 31 and x.value == int(x.value):
        return int(x.value), False
    return reciprocal(x.value), True


class _Rebuild:
    """Makes a tree anew with other numbers, met in the order of `structure`. A constant that
    changes becomes the value of an index expression."""

    def __init__(self, number: Number, prune: bool = False, clamped: Collection[int] = ()) -> None:
        self.number, self.prune, self.clamped = number, prune, clamped
        self._load = itertools.count()

    def __call__(self, x: Any) -> Any:
        kind = type(x)
        if kind is int or kind is Formula or kind is np.ndarray:
            return self.number(x)
        if kind is tuple:
            parts = tuple([y if _is_hint(y) else self(y) for y in x])
            return tuple(y for y in parts if not _never_runs(y)) if self.prune else parts
        if kind is g.Linear:
            return g.Linear(tuple([(self(t), self(c)) for t, c in x.terms]), self(x.const))
        if kind is g.Load:
            clamped = (next(self._load) in self.clamped) or x.clamped
            return g.Load(self(x.buffer), self(x.index), clamped)
        if kind is Const:
            return self._constant(x)
        if kind is g.Var or not (names := _fields(kind)):
            return x
        if isinstance(x, Expr) and kind is not g.Position:
            shape = self(x.shape) if isinstance(x, Gather) else ()
            made = rebuild(x, self)
            return replace(made, shape=shape) if isinstance(made, Gather) else made
        return kind(*[self(getattr(x, name)) for name in names])

    def _constant(self, x: Const) -> Expr:
        whole, over = _whole(x)
        value = whole if whole is None else self.number(whole)
        if value is None or isinstance(value, int):
            return x
        made = _value(value, x.type)
        return Binary("div", Const(1.0, x.type), made) if over else made


def _fields(kind: Any) -> tuple[str, ...]:
    """The names of a dataclass's fields; none of another type."""
    if kind not in _KNOWN:
        _KNOWN[kind] = tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()
    return _KNOWN[kind]


_KNOWN: dict[Any, tuple[str, ...]] = {}


def _value(number: Any, dtype: str) -> Expr:
    """A number of the tree as a value of a type."""
    place = g.Position(g.Linear((), number))
    return place if dtype == "int32" else Cast(place, dtype)


def reciprocal(value: float) -> int | None:
    """The whole number that a float is one over, if there is one, as means divide by counts."""
    if not 0 < value < 1:
        return None
    divisor = round(1 / value)
    return divisor if divisor < 1 << 31 and 1.0 / divisor == value else None


def _never_runs(part: Any) -> bool:
    return isinstance(part, g.Loop) and isinstance(part.extent, int) and part.extent == 0
