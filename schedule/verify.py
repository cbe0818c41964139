"""The verifier: what every loop tree must satisfy, checked for a whole batch at once.

1. every variable is bound once, before it is used, and every buffer is declared;
2. no subscript leaves its buffer (unless its load is clamped);
3. extents and shapes are positive (a loop's extent may be 0: no iteration);
4. parallel loops stand outside of all others, vectorized ones innermost, and hold one store;
5. register buffers are small and inside of all parallel loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.expr import Expr, children
from loopwright.schedule.tree import (
    KINDS,
    Allocate,
    Buffer,
    Column,
    Let,
    Linear,
    Load,
    Loop,
    Position,
    Quotient,
    Stmt,
    Store,
    Tree,
    Var,
    column,
)

MOST_REGISTER_BYTES = 1 << 16

Problem = tuple[Any, Callable[[int], str]]
"""A boolean column of the configs that have it, and what to say about config i."""


def verify(tree: Tree) -> None:
    """Raise `ConfigError` naming the first thing that is wrong with any config of the batch."""
    for bad, say in _Checker(tree).problems():
        wrong = np.flatnonzero(np.broadcast_to(bad, (tree.n,)))
        if len(wrong):
            raise ConfigError(
                f"an illegal loop tree (config {wrong[0]} of {tree.n}): {say(wrong[0])}"
            )


def legal(tree: Tree) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which configs of the batch satisfy every rule; shape (n,)."""
    good = np.ones(tree.n, bool)
    for bad, _ in _Checker(tree).problems():
        good &= ~np.broadcast_to(bad, (tree.n,))
    return good


@dataclass
class _Checker:
    tree: Tree
    ranges: dict[Var, tuple[Column, Column]] = field(default_factory=dict)
    buffers: set[str] = field(default_factory=set)
    found: list[Problem] = field(default_factory=list)
    runs: Any = True  # the configs in which the statement at hand is reached at all

    def problems(self) -> list[Problem]:
        t = self.tree
        for arguments, body in (
            ((*t.constants, *t.prepared), t.prepare),
            ((*t.inputs, *t.prepared, *t.outputs), t.body),
        ):
            self.ranges, self.buffers = {}, set()
            for buffer in arguments:
                self._declare(buffer)
            self._block(body, "parallel")
        return self.found

    def _add(self, bad: Any, say: Callable[[int], str]) -> None:
        if bad is not False and np.any(bad & self.runs):
            self.found.append((bad & self.runs, say))

    def _declare(self, buffer: Buffer) -> None:
        for extent in buffer.shape:
            self._add(np.less(extent, 1), lambda i: f"{buffer.name} has an empty axis")
        self._add(buffer.name in self.buffers, lambda i: f"{buffer.name} is allocated twice")
        self.buffers.add(buffer.name)

    def _block(self, body: tuple[Stmt, ...], inside: str) -> None:
        allocated = set(self.buffers)
        for stmt in body:
            if isinstance(stmt, Loop):
                self._loop(stmt, inside)
            elif isinstance(stmt, Let):
                self._let(stmt)
            elif isinstance(stmt, Allocate):
                self._declare(stmt.buffer)
                self._register(stmt.buffer)
            else:
                self._access(stmt.buffer, stmt.index, False)
                self._value(stmt.value)
        self.buffers = allocated

    def _loop(self, loop: Loop, inside: str) -> None:
        name = loop.var.name
        self._add(loop.kind not in KINDS, lambda i: f"loop {name} is of no known kind")
        self._add(np.less(loop.extent, 0), lambda i: f"loop {name} has a negative extent")
        nested = loop.kind == "parallel" and inside != "parallel"
        self._add(nested, lambda i: f"parallel loop {name} stands inside of a {inside} one")
        one = len(loop.body) == 1 and isinstance(loop.body[0], Store)
        vector = loop.kind == "vectorized" and not one
        self._add(vector, lambda i: f"vectorized loop {name} holds something other than one store")
        if loop.bound is not None:
            self._range(loop.bound)
        outside, self.runs = self.runs, self.runs & np.greater(loop.extent, 0)
        self._bind(loop.var, 0, np.maximum(loop.extent, 1) - 1)
        self._block(loop.body, loop.kind)
        self.runs = outside

    def _let(self, let: Let) -> None:
        low, high = self._range(let.value)
        self._bind(let.var, np.minimum(low, let.limit), np.minimum(high, let.limit))

    def _bind(self, var: Var, low: Column, high: Column) -> None:
        self._add(var in self.ranges, lambda i: f"{var} is bound twice")
        self.ranges[var] = (low, high)

    def _register(self, buffer: Buffer) -> None:
        if buffer.scope == "register":
            much = np.greater(buffer.size, MOST_REGISTER_BYTES)
            self._add(much, lambda i: f"register buffer {buffer.name} is too large")

    def _value(self, x: Expr) -> None:
        if isinstance(x, Load):
            self._access(x.buffer, x.index, x.clamped)
        elif isinstance(x, Position):
            self._range(x.value)
        for child in children(x):
            self._value(child)

    def _access(self, buffer: Buffer, index: tuple[Linear, ...], clamped: bool) -> None:
        unknown = buffer.name not in self.buffers
        self._add(unknown, lambda i: f"{buffer.name} is used before it is allocated")
        rank = len(index) != len(buffer.shape)
        self._add(rank, lambda i: f"{buffer.name} is indexed by {len(index)} subscripts")
        for axis, (position, extent) in enumerate(zip(index, buffer.shape)):
            low, high = self._range(position)
            if not clamped:
                self._outside(buffer.name, axis, low, high, extent)

    def _outside(self, name: str, axis: int, low: Column, high: Column, extent: Column) -> None:
        def say(i: int) -> str:
            reach = f"{column(low, self.tree.n)[i]} to {column(high, self.tree.n)[i]}"
            size = column(extent, self.tree.n)[i]
            return f"axis {axis} of {name}, extent {size}, is read or written at {reach}"

        self._add(np.less(low, 0) | np.greater_equal(high, extent), say)

    def _range(self, x: Linear) -> tuple[Column, Column]:
        low, high = x.const, x.const
        for term, coefficient in x.terms:
            first, last = self._term_range(term)
            ends = coefficient * first, coefficient * last
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        return low, high

    def _term_range(self, term: Any) -> tuple[Column, Column]:
        if isinstance(term, Var):
            unbound = term not in self.ranges
            self._add(unbound, lambda i: f"variable {term} is not bound here")
            return self.ranges.get(term, (0, 0))
        low, high = self._range(term.value)
        if isinstance(term, Quotient):
            return low // term.divisor, high // term.divisor
        return 0, term.divisor - 1
