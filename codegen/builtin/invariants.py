"""What is the same in all iterations of a loop, and takes long."""

from __future__ import annotations

from loopwright.dsl.expr import Binary, Const, Expr, Unary
from loopwright.dsl.traversal import children, walk
from loopwright.schedule.tree.grammar import (
    Let,
    Load,
    Loop,
    Position,
    Stmt,
    Store,
    Var,
    statements,
    variables,
)

_CHEAP = frozenset(("add", "sub", "mul", "neg", "abs", "min", "max"))


def invariants(var: Var, body: tuple[Stmt, ...]) -> list[Expr]:
    """Quotients, roots and functions in a loop that are the same in all of its iterations."""
    inside = list(statements(body))
    bound = {var} | {s.var for s in inside if isinstance(s, (Loop, Let))}
    stores = [s for s in inside if isinstance(s, Store)]
    written = {s.buffer.name for s in stores}
    found: dict[int, Expr] = {}

    def same(x: Expr) -> bool:
        for part in walk(x):
            if isinstance(part, Load):
                places = part.index
                if part.buffer.name in written or part.clamped:
                    return False
            elif isinstance(part, Position):
                places = (part.value,)
            elif not isinstance(part, (Const, Unary, Binary)):
                return False
            else:
                continue
            if any(bound & set(variables(place)) for place in places):
                return False
        return True

    def look(x: Expr) -> None:
        if isinstance(x, (Unary, Binary)) and x.op not in _CHEAP and x.dtype == "float32":
            if same(x):
                found[id(x)] = x
                return
        for child in children(x):
            look(child)

    for store in stores:
        look(store.value)
    return list(found.values())
