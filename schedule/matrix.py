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
from dataclasses import replace

from loopwright.dsl.expr import Binary, Expr, Read, children
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload
from loopwright.schedule.nest import Nest, extent
from loopwright.schedule.plan import Group, fused, grouped

_USES = 32  # of each copied element that repay the copy


def matrix(workload: Workload) -> tuple[Group, ...] | None:
    """The groups of a workload with each contraction that gains reading its second factor as a
    matrix; None if there is none."""
    program = fused(workload)
    taken = {t.name for t in (*workload.inputs, *workload.stages)}
    taken |= {n.out.name for n in program}
    done: list[Nest] = []
    for nest in program:
        found = _operand(nest)
        if found is None:
            done.append(nest)
            continue
        read, axes = found
        name = f"{read.tensor.name}_matrix"
        while name in taken:
            name += "_"
        taken.add(name)
        copy = Tensor(name, tuple(map(extent, axes)), read.dtype)
        at = tuple(a.affine() for a in axes)
        done.append(Nest(copy, at, axes, (), None, read, copy))
        assert isinstance(nest.body, Binary)
        x, y = (Read(copy, at) if side is read else side for side in children(nest.body))
        body: Expr = replace(nest.body, x=x, y=y)
        done.append(replace(nest, body=body))
    if len(done) == len(program):
        return None
    return grouped(tuple(done), tuple(done), workload.outputs)


def _operand(nest: Nest) -> tuple[Read, tuple[Index, ...]] | None:
    """The operand of a sum of products of which more axes would merge if it lay in another order,
    and that order: sums and what both operands have outside, its own axes inside. Of two, the one
    along which the result is contiguous."""
    x = nest.body
    if nest.reducer != "sum" or not isinstance(x, Binary) or x.op != "mul":
        return None
    sides = [r for r in children(x) if isinstance(r, Read)]
    if len(sides) != 2 or not all(map(_axes, sides)):
        return None
    order = [a for p in nest.index if (a := p.plain()) is not None]
    found: Read | None = None
    best: tuple[Index, ...] = ()
    for read, other in (sides, sides[::-1]):
        own = [a for a in order if a in _axes(read) and a not in _axes(other)]
        rest = [i for i in (*nest.axes, *nest.reduce) if i in _axes(read) and i not in own]
        axes = (*rest, *own)
        gains = _neighbours(order, axes) > _neighbours(order, _axes(read))
        repaid = nest.steps >= _USES * math.prod(map(extent, axes))
        if gains and repaid and (found is None or axes[-1] == order[-1]):
            found, best = read, axes
    return None if found is None else (found, best)


def _neighbours(order: Sequence[Index], axes: tuple[Index, ...]) -> int:
    """How many of the axes follow each other as they do in the result."""
    pairs = set(itertools.pairwise(order))
    return sum(pair in pairs for pair in itertools.pairwise(axes))


def _axes(read: Read) -> tuple[Index, ...]:
    """The loops of an operand's axes; none if they are not one for each."""
    found = tuple(p.plain() for p in read.index)
    if None in found or len(set(found)) < len(found):
        return ()
    return tuple(i for i in found if i is not None)
