"""Parts of a loop tree found by their form, and replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from loopwright.dsl.expr import ORDERS, Cast, Expr
from loopwright.dsl.traversal import rebuild
from loopwright.schedule.tree import grammar as g


def nested(loop: g.Loop) -> list[g.Loop]:
    """A loop and those of its kind that stand directly inside each other, outermost first."""
    found = [loop]
    while len(loop.body) == 1 and isinstance(inner := loop.body[0], g.Loop):
        if inner.kind != loop.kind:
            break
        found.append(loop := inner)
    return found


def value_of(x: g.Linear, values: Callable[[g.Var], Any]) -> Any:
    """The value of an index expression, given those of its variables."""
    total: Any = x.const
    for term, coefficient in x.terms:
        if isinstance(term, g.Var):
            part = values(term)
        elif isinstance(term, g.Quotient):
            part = value_of(term.value, values) // term.divisor
        else:
            part = value_of(term.value, values) % term.divisor
        total = total + part * coefficient
    return total


def order_parts(loop: g.Loop) -> tuple[g.Loop, g.Store, g.Load] | None:
    """The loop over places of an order, its store and its load; None for any other loop."""
    if loop.kind not in ORDERS or loop.bound is not None or len(loop.body) != 1:
        return None
    (places,) = loop.body
    if not isinstance(places, g.Loop) or places.bound is not None or len(places.body) != 1:
        return None
    (store,) = places.body
    if not isinstance(store, g.Store) or not isinstance(store.value, Cast):
        return None
    load = store.value.x
    if not isinstance(load, g.Load) or load.clamped or store.buffer.dtype != "int32":
        return None
    return places, store, load


def map_values(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """The same element expression with its loads and positions replaced."""
    if isinstance(expr, (g.Load, g.Position)):
        return leaf(expr)
    return rebuild(expr, lambda child: map_values(child, leaf))


def renamed(stmt: g.Stmt, old: str, new: str) -> g.Stmt:
    """The same statement with a buffer called otherwise."""
    return rebuffered(stmt, lambda b: replace(b, name=new) if b.name == old else b)


def rebuffered(stmt: g.Stmt, buffer: Callable[[g.Buffer], g.Buffer]) -> g.Stmt:
    """The same statement with other buffers."""

    def leaf(x: Expr) -> Expr:
        return replace(x, buffer=buffer(x.buffer)) if isinstance(x, g.Load) else x

    if isinstance(stmt, g.Loop):
        sparse = stmt.sparse
        if sparse is not None:
            sparse = replace(sparse, load=replace(sparse.load, buffer=buffer(sparse.load.buffer)))
        body = tuple(rebuffered(s, buffer) for s in stmt.body)
        return replace(stmt, body=body, sparse=sparse)
    if isinstance(stmt, g.Store):
        return replace(stmt, buffer=buffer(stmt.buffer), value=map_values(stmt.value, leaf))
    if isinstance(stmt, (g.Prefetch, g.Allocate)):
        return replace(stmt, buffer=buffer(stmt.buffer))
    if isinstance(stmt, (g.AsyncCopy, g.MatrixLoad)):
        return replace(stmt, source=buffer(stmt.source))
    return stmt


def allocated(body: tuple[g.Stmt, ...]) -> Iterator[g.Buffer]:
    """The buffers that statements allocate."""
    for stmt in body:
        if isinstance(stmt, g.Allocate):
            yield stmt.buffer
        elif isinstance(stmt, g.Loop):
            yield from allocated(stmt.body)
