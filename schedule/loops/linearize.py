"""From the notation's subscripts to those of the loop tree."""

from __future__ import annotations

from collections.abc import Mapping

from loopwright.dsl import index as notation
from loopwright.dsl.index import Affine, Index
from loopwright.schedule.tree.grammar import Linear, Quotient, Remainder, Term


def to_linear(value: Affine, at: Mapping[Index, Linear]) -> Linear:
    """An index expression with every index replaced by where it stands in the loops."""
    total = Linear((), value.const)
    for atom, coefficient in value.terms:
        if isinstance(atom, Index):
            part = at[atom]
        else:
            made = Quotient if isinstance(atom, notation.Quotient) else Remainder
            term: Term = made(to_linear(atom.value, at), atom.divisor)
            part = Linear(((term, 1),))
        total = total + part * coefficient
    return total
