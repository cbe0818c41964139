"""Pieces of loop programs that the lowerings for processors and for GPUs both write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.dsl import dtypes
from loopwright.dsl import index as notation
from loopwright.dsl.expr import Const
from loopwright.dsl.index import Affine, Index
from loopwright.schedule.tree import grammar as g


def identity(reducer: str | None, dtype: str) -> Const:
    """Identity of a reduction."""
    return Const(dtypes.identity(reducer or "sum", dtype), dtype)


def wrapped(body: Sequence[g.Stmt], loops: Sequence[tuple[g.Var, g.Column, str]]) -> list[g.Stmt]:
    """Statements inside of loops, the outermost first."""
    stmts = list(body)
    for var, count, kind in reversed(loops):
        stmts = [g.Loop(var, count, kind, tuple(stmts))]
    return stmts


def to_linear(value: Affine, at: Mapping[Index, g.Linear]) -> g.Linear:
    """An index expression with every index replaced by where it stands in the loops."""
    if (index := value.plain()) is not None:
        return at[index]
    total = g.Linear((), value.const)
    for atom, coefficient in value.terms:
        if isinstance(atom, Index):
            part = at[atom]
        else:
            made = g.Quotient if isinstance(atom, notation.Quotient) else g.Remainder
            term: g.Term = made(to_linear(atom.value, at), atom.divisor)
            part = g.Linear(((term, 1),))
        total = total + part * coefficient
    return total
