"""Contractions as matrix products: an operand is copied so that its axes lie as in the result.

    O[a, b, c, d] += X[a, e, b, f] * Y[f, d, e, c]
     ↦  Y_matrix[e, f, c, d] = Y[f, d, e, c]
        O[a, b, c, d] += X[a, e, b, f] * Y_matrix[e, f, c, d]

after which `c` and `d` merge into one axis, along which vectors are whole however short the two
are. The other operand is read element by element, and stays as it is. (Transposing all of the
operands is known as TTGT, doing it in panels as GETT: Springer and Bientinesi 2018.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from loopwright.dsl.expr import Read
from loopwright.dsl.index import Affine, Index
from loopwright.schedule.program.nest import Nest, extent, predicated_reads
from loopwright.schedule.rewrites.cache_read import factors, with_copies
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


def _operand(nest: Nest) -> tuple[Read, tuple[Index, ...]] | None:
    """The operand of a sum of products of which more axes would merge if it lay in another order,
    and that order: sums and what both operands have outside, its own axes inside. Of two, the one
    along which the result is contiguous."""
    sides = factors(nest)
    if len(sides) != 2 or not all(map(_axes, sides)):
        return None
    order = _loops(nest.index)
    epilogue = () if nest.epilogue is None else predicated_reads(nest.epilogue)
    after = [_loops(r.index) for r, _ in epilogue if r.tensor is not nest.result]
    found: Read | None = None
    best: tuple[Index, ...] = ()
    for read, other in (sides, sides[::-1]):
        own = [a for a in order if a in _axes(read) and a not in _axes(other)]
        rest = [i for i in (*nest.axes, *nest.reduce) if i in _axes(read) and i not in own]
        gains = any(
            _neighbours(pair, order)
            and not _neighbours(pair, _axes(read))
            and all(_neighbours(pair, axes) or not set(pair) & set(axes) for axes in after)
            for pair in itertools.pairwise(own)
        )
        repaid = nest.steps >= REWRITE.copy_uses * math.prod(map(extent, (*rest, *own)))
        if gains and repaid and (found is None or own[-1] == order[-1]):
            found, best = read, (*rest, *own)
    return None if found is None else (found, best)


def _neighbours(pair: tuple[Index, Index], axes: Sequence[Index]) -> bool:
    return pair in itertools.pairwise(axes)


def _axes(read: Read) -> tuple[Index, ...]:
    """The loops of an operand's axes; none if they are not one for each."""
    found = _loops(read.index)
    moving = sum(bool(p.terms) for p in read.index)
    return found if len(set(found)) == moving else ()


def _loops(index: Sequence[Affine]) -> tuple[Index, ...]:
    """The loops of those subscripts that are a loop each."""
    return tuple(i for p in index if (i := p.plain()) is not None)


class Ttgt(Rewrite):
    """`Y_matrix[e, f, c, d] = Y[f, d, e, c]; O[a, c, d] += X[a, e, f] * Y_matrix[e, f, c, d]`."""

    name = "ttgt"
    needs = "a contraction of two tensors of which more axes merge once one of them is transposed"
    prior = 0.8  # copies that make axes merge leave all else as it is

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = with_copies(base.source, "matrix", _operand)
        return None if groups is None else Rewritten(groups, numerics=base.source.numerics)
