"""Copies of operands in another order, for the rewrites that read from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from loopwright.dsl.expr import Binary, Expr, Read
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import children
from loopwright.schedule.program.nest import Nest, extent, fresh
from loopwright.schedule.program.plan import FusionGroup, grouped
from loopwright.schedule.program.source import Source

Choose = Callable[[Nest], tuple[Read, tuple[Index, ...]] | None]
"""The operand of a nest that is worth copying, and the loops of the axes of the copy."""


def with_copies(source: Source, suffix: str, choose: Choose) -> tuple[FusionGroup, ...] | None:
    """The groups of a workload in which each sum of products reads the operand that is chosen for
    it from a copy, named after it; None if none is chosen.

    `O[i] += X[f(i, k)] * Y[k]  ↦  X_suffix[k, i] = X[f(i, k)]; O[i] += X_suffix[k, i] * Y[k]`
    """
    program = source.program
    taken = source.names()
    done: list[Nest] = []
    for nest in program:
        chosen = choose(nest)
        if chosen is None:
            done.append(nest)
            continue
        read, axes = chosen
        name = fresh(f"{read.tensor.name}_{suffix}", taken)
        copy = Tensor(name, tuple(map(extent, axes)), read.dtype)
        at = tuple(a.affine() for a in axes)
        done.append(Nest(copy, at, axes, (), None, read, copy))
        done.append(_reading(nest, read, Read(copy, at)))
    if len(done) == len(program):
        return None
    return grouped(tuple(done), tuple(done), source.outputs)


def factors(nest: Nest) -> tuple[Read, ...]:
    """The operands of a sum of products of two; none of another nest."""
    x = nest.body
    if nest.reducer != "sum" or not isinstance(x, Binary) or x.op != "mul":
        return ()
    return tuple(r for r in children(x) if isinstance(r, Read))


def _reading(nest: Nest, old: Read, new: Read) -> Nest:
    """The nest with one operand of its product replaced."""
    assert isinstance(nest.body, Binary)
    x, y = (new if side is old else side for side in (nest.body.x, nest.body.y))
    body: Expr = replace(nest.body, x=x, y=y)
    return replace(nest, body=body)
