"""Fusion: producers move to where they are read, consumers into the write-back."""

from __future__ import annotations

from dataclasses import replace

from loopwright.dsl.expr import Expr, Read, Table
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.traversal import map_subscripts
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import (
    Program,
    indices_in,
    placed,
    substitute_axes,
    unused,
)
from loopwright.schedule.program.nest import Nest, extent, gathers, is_order, leaves


def inline(program: Program, producer: Nest) -> Program:
    """Compute an element-wise producer where it is read, and drop its nest.

    `P[i] = f(i); C[j] = g(P[h(j)])  ↦  C[j] = g(f(h(j)))`
    """

    def read(r: Read) -> Expr:
        return inlined(r, producer) if r.tensor is producer.out else r

    consumers = [n for n in program if n is not producer]
    return tuple(n.with_reads(read) for n in consumers)


def inlined(read: Read, producer: Nest) -> Expr:
    """Expression of an element-wise producer where its result is read."""
    values = {
        axis: at
        for where, at in zip(producer.index, read.index, strict=True)
        if (axis := where.plain()) is not None
    }
    return map_subscripts(producer.body, lambda p: placed(p, values))


def can_inline(program: Program, producer: Nest) -> bool:
    """Return whether `inline` keeps the meaning. It takes an element-wise producer, written by one
    nest over its whole tensor, whose readers never leave it."""
    if producer.reducer is not None or producer.epilogue is not None:
        return False
    if sum(n.out is producer.out for n in program) != 1:
        return False
    readers = [n for n in program if any(r.tensor is producer.out for r in n.reads())]
    if any(map(is_order, readers)):
        return False
    if any(isinstance(r, Table) and r.tensor is producer.out for n in readers for r in n.reads()):
        return False
    if gathers(producer) and any(n.reducer is not None for n in readers):
        return False
    shape = tensor_shape(producer.out)
    for where, size in zip(producer.index, shape, strict=True):
        axis = where.plain()
        if (extent(axis) if axis else 1) != size:
            return False
    return not any(
        leaves(r, nest.extents)
        for nest in program
        for r in nest.reads()
        if r.tensor is producer.out
    )


def fuse_epilogue(producer: Nest, consumer: Nest) -> Nest | None:
    """Compute an element-wise consumer where the reduction writes back; None if it does not fit.

    `C[i, j] += A[i, k] * B[k, j]; D[i, j] = relu(C[i, j])
     ↦  D[i, j] = relu(sum over k of A[i, k] * B[k, j])`
    """
    if producer.reducer is None or producer.epilogue is not None or consumer.reducer is not None:
        return None
    if gathers(consumer) or is_order(producer):
        return None
    accesses = {r.index for r in consumer.reads() if r.tensor is producer.out}
    if len(accesses) != 1:
        return None
    match = _matching(producer, accesses.pop(), consumer)
    if match is None:
        return None
    extents = consumer.extents | {k: extent(k) for k in producer.reduce}
    fresh: dict[Index, Index] = {}
    for k in producer.reduce:
        taken = (*indices_in(consumer), *fresh.values())
        fresh[k] = Index(unused(k.name, taken), extents[k])
    values: dict[Index, IndexExpr] = {**match, **fresh}
    moved = substitute_axes(producer, consumer.axes, tuple(fresh.values()), values)
    return replace(
        moved, out=consumer.out, index=consumer.index, result=producer.out, epilogue=consumer.body
    )


def _matching(
    producer: Nest, access: tuple[Affine, ...], consumer: Nest
) -> dict[Index, Affine] | None:
    """Producer's axes in terms of the consumer's, if each consumer axis is one of them."""
    match: dict[Index, Affine] = {}
    for where, at in zip(producer.index, access, strict=True):
        axis, other = where.plain(), at.plain()
        if axis is None and where == at:
            continue
        if axis is None or other is None or extent(axis) != extent(other):
            return None
        match[axis] = other.affine()
    found = {p.plain() for p in match.values()}
    exact = found == set(consumer.axes) and len(found) == len(match)
    return match if exact else None
