"""Walks over element expressions, and expressions made anew from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loopwright.dsl.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Gather,
    IndexValue,
    Read,
    Reduce,
    Select,
    Table,
    Unary,
)
from loopwright.dsl.index import Affine


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside one."""
    if isinstance(expr, (Unary, Cast, Reduce)):
        return (expr.x,)
    if isinstance(expr, Binary):
        return (expr.x, expr.y)
    if isinstance(expr, Select):
        return (expr.cond, expr.x, expr.y)
    if isinstance(expr, Gather):
        return (expr.table, *(x for x in expr.at if x is not None))
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything inside it, outermost first, left to right."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The same node over changed children: `f(x, y)  ↦  f(change(x), change(y))`."""
    if isinstance(expr, Unary):
        return Unary(expr.op, change(expr.x))
    if isinstance(expr, Cast):
        return Cast(change(expr.x), expr.type)
    if isinstance(expr, Reduce):
        return Reduce(expr.op, change(expr.x))
    if isinstance(expr, Binary):
        return Binary(expr.op, change(expr.x), change(expr.y))
    if isinstance(expr, Select):
        return Select(change(expr.cond), change(expr.x), change(expr.y))
    if isinstance(expr, Gather):
        table = change(expr.table)
        if isinstance(table, Read):
            table = Table(table.tensor, table.index)
        return Gather(table, tuple(x if x is None else change(x) for x in expr.at), expr.shape)
    return expr


def map_leaves(
    expr: Expr, read: Callable[[Read], Expr], index: Callable[[Affine], Affine]
) -> Expr:
    """The same expression with its reads and its index values replaced."""
    if isinstance(expr, Read):
        return read(expr)
    if isinstance(expr, IndexValue):
        return IndexValue(index(expr.value))
    return rebuild(expr, lambda child: map_leaves(child, read, index))


def map_reads(expr: Expr, read: Callable[[Read], Expr]) -> Expr:
    """The same expression with its reads replaced."""
    return map_leaves(expr, read, lambda index: index)


def map_subscripts(expr: Expr, index: Callable[[Affine], Affine]) -> Expr:
    """The same expression with its subscripts and its index values replaced."""
    return map_leaves(expr, lambda r: Read(r.tensor, tuple(map(index, r.index))), index)


def widened(x: Expr, dtype: str) -> Expr:
    """An expression of a narrower floating type with everything worked out in a wider one:
    `A[i] * B[i]  ↦  cast(A[i]) * cast(B[i])`. Only what is cast outright is rounded as before."""
    if isinstance(x, (Read, Const, Cast, Gather)):
        return Cast(x, dtype)
    if isinstance(x, Select):
        return Select(x.cond, widened(x.x, dtype), widened(x.y, dtype))
    return rebuild(x, lambda child: widened(child, dtype))
