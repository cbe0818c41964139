"""Copies with rows that are shorter than vectors lie like what they copy.

    P[y, x, c] = where(…, X[c, y - 1, x - 1], 0);   O[…] += P[y + r, x + s, c] * W[…]  for c < 3
     ↦  P[c, y, x] = where(…, X[c, y - 1, x - 1], 0);   O[…] += P[c, y + r, x + s] * W[…]

An image with channels first, before a layer that has them last, is of this kind. Its few channels
are summed up, each element being read alone, so that their order does not matter there; and rows
are copied in vectors.
"""

from __future__ import annotations

from dataclasses import replace

from loopwright.dsl.expr import Expr, Read
from loopwright.dsl.index import Affine
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.nest import Nest, extent, stride

_SHORT = 8  # elements of a row, less than which are copied one after the other


def like_sources(program: Program, outputs: tuple[Tensor, ...]) -> Program:
    """The program with every such copy in the order of what it copies."""
    for number in range(len(program)):
        nest = program[number]
        order = None if nest.out in outputs else _order(nest, program)
        if order is not None:
            shape = tuple(tensor_shape(nest.out)[d] for d in order)
            new = Tensor(nest.out.name, shape, nest.out.dtype)
            program = tuple(_reordered(n, nest.out, new, order) for n in program)
    return program


def _order(nest: Nest, program: Program) -> list[int] | None:
    """The axes of a copy in the order of what it copies, if that is what makes its rows long."""
    sources, writers = set(nest.reads()), [n for n in program if n.out is nest.out]
    moving = [d for d, p in enumerate(nest.index) if p.terms]
    axes = {d: a for d in moving if (a := nest.index[d].plain()) is not None}
    plain = nest.reducer is None and not nest.also and len(axes) == len(moving) > 0
    if not plain or len(sources) != 1 or len(writers) != 1 or extent(axes[moving[-1]]) >= _SHORT:
        return None
    for other in program:
        last = [r.index[moving[-1]] for r in other.reads() if r.tensor is nest.out]
        if any(not set(p.indices()) <= set(other.reduce) for p in last):
            return None
    (source,) = sources
    apart = {d: stride(source.tensor, source.index, a) or 0 for d, a in axes.items()}
    order = sorted(range(len(nest.index)), key=lambda d: (d in apart, -apart.get(d, 0)))
    return order if apart[order[-1]] == 1 and extent(axes[order[-1]]) >= _SHORT else None


def _reordered(nest: Nest, old: Tensor, new: Tensor, order: list[int]) -> Nest:
    """A nest that writes or reads a tensor, with the axes of that in another order."""

    def turned(index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(index[d] for d in order)

    def read(r: Read) -> Expr:
        return Read(new, turned(r.index)) if r.tensor is old else r

    axes = nest.axes
    if nest.out is old:  # the last loop is along its rows
        axes = tuple(a for p in turned(nest.index) if (a := p.plain()) is not None)
    made = nest.map(axes, nest.reduce, read, lambda p: p)
    if nest.out is not old:
        return made
    return replace(made, out=new, index=turned(made.index), result=new)
