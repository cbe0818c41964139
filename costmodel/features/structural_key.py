"""Structural keys: equal for statements that do the same, whatever their variables and buffers are
called.

A program repeats itself: the sketches of a space share most of their nests, and phases or layers
are alike within one. What is known of one such nest is known of all.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from loopwright.costmodel.features.trace import Traced
from loopwright.dsl.expr import Const, Expr
from loopwright.dsl.traversal import children
from loopwright.schedule.tree import grammar as g


def structural_key(stmt: g.Stmt) -> Hashable:
    """A key that is the same for statements of processors' programs that differ in names, or in
    the numbers that they compute with, alone. Keys of the same batch, or trace, compare."""
    return _Names().statement(stmt)


class _Names:
    """Variables and buffers by the order in which they come."""

    def __init__(self) -> None:
        self.variables: dict[g.Var, int] = {}
        self.buffers: dict[str, int] = {}

    def statement(self, stmt: g.Stmt) -> Hashable:
        if isinstance(stmt, g.Loop):
            extent = _column(stmt.extent)
            bound = None if stmt.bound is None else self.linear(stmt.bound)
            self.variables[stmt.var] = len(self.variables)
            return (stmt.kind, extent, bound, *map(self.statement, stmt.body))
        if isinstance(stmt, g.Let):
            value = self.linear(stmt.value)
            self.variables[stmt.var] = len(self.variables)
            return ("let", value, _column(stmt.limit))
        if isinstance(stmt, g.Store):
            return (self.place(stmt.buffer, stmt.index), self.value(stmt.value))
        if isinstance(stmt, g.Allocate):
            return self.buffer(stmt.buffer)
        if isinstance(stmt, g.Prefetch):
            return "prefetch"
        raise TypeError(f"a program for a processor has no {type(stmt).__name__}")

    def value(self, x: Expr) -> Hashable:
        if isinstance(x, g.Load):
            return self.place(x.buffer, x.index)
        if isinstance(x, g.Position):
            return self.linear(x.value)
        if isinstance(x, Const):
            return x.dtype
        return (type(x), getattr(x, "op", x.dtype), *map(self.value, children(x)))

    def place(self, buffer: g.Buffer, index: tuple[g.Linear, ...]) -> Hashable:
        return (self.buffer(buffer), *map(self.linear, index))

    def buffer(self, buffer: g.Buffer) -> Hashable:
        number = self.buffers.setdefault(buffer.name, len(self.buffers))
        return (number, buffer.dtype, buffer.scope, *map(_column, buffer.shape))

    def linear(self, value: g.Linear) -> Hashable:
        terms = ((self.term(term), _column(factor)) for term, factor in value.terms)
        return (*terms, _column(value.const))

    def term(self, term: g.Term) -> Hashable:
        if isinstance(term, g.Var):
            return self.variables[term]
        return (type(term), self.linear(term.value), _column(term.divisor))


def _column(value: g.Column) -> Hashable:
    """Traced columns are equal if they are the same one: a trace has equal ones once."""
    if isinstance(value, Traced):
        return (value.number,)
    return value.tobytes() if isinstance(value, np.ndarray) else int(value)
