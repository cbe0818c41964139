"""Computations of iterations from their rows alone, whose products are one, before the loop.

In every iteration, x a row of X          once
P[b, k] += x[b, j] * W[j, k]        ↦     all[t, b, k] += X[t, b, j] * W[j, k], P a row of all
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopwright.dsl.expr import Binary, Expr, Gather, Read
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import rebuild
from loopwright.dsl.workload import defined, reads
from loopwright.graph.importers.definitions import Definitions, read_by
from loopwright.graph.importers.onnx.values import shape_of
from loopwright.graph.loops import Loop, Row

Body = tuple[Loop[Tensor], list[Definitions]]


def lifted(loop: Loop[Tensor], parts: Sequence[Definitions]) -> Body:
    """A loop and its body without the products that are known from rows alone, which are rows of
    others then. One that would be left with no body stays as it is."""
    tensors = [t for part in parts for t in part.tensors]
    alone = {r.part for r in loop.reads}
    others = {*tensors, *(s.before for s in loop.states)}
    for t in tensors:
        if not others.intersection(read_by(t)) - alone:
            alone.add(t)
    chosen = {t for t in tensors if t in alone and _is_product(t)}
    for t in reversed(tensors):
        if t in chosen:
            chosen.update(x for x in read_by(t) if x in alone and x.definition is not None)
    left = [t for t in tensors if t not in chosen]
    if not chosen or not left:
        return loop, list(parts)
    every = {r.part: (r.whole, r.backward) for r in loop.reads}
    for t in tensors:
        if t in chosen:
            every[t] = _for_all(t, every, loop.count), False
    read = {*loop.made(), *(x for t in left for x in read_by(t))}
    rows = [Row(t, *every[t]) for t in tensors if t in chosen and t in read]
    for t in chosen:
        t.definition = None
    kept = (Definitions(p.name, tuple(t for t in p.tensors if t not in chosen)) for p in parts)
    return replace(loop, reads=(*loop.reads, *rows)), [p for p in kept if p.tensors]


def _is_product(tensor: Tensor) -> bool:
    """Return whether a tensor is a sum of products without a window."""
    d = defined(tensor)
    multiplies = d.reducer == "sum" and isinstance(d.body, Binary) and d.body.op == "mul"
    places = (place for r in reads(d.body) for place in r.index)
    return multiplies and all(not p.terms or p.plain() is not None for p in places)


def _for_all(tensor: Tensor, every: dict[Tensor, tuple[Tensor, bool]], count: int) -> Tensor:
    """The values of a tensor in all iterations, along a new first axis."""
    number = Index("iteration", count)

    def read(r: Read) -> Read:
        if r.tensor not in every:
            return r
        whole, backward = every[r.tensor]
        place = as_affine(count - 1 - number if backward else number)
        return Read(whole, (place, *r.index))

    def moved(x: Expr) -> Expr:
        if isinstance(x, Read):
            return read(x)
        if not isinstance(x, Gather):
            return rebuild(x, moved)
        at = tuple(None if e is None else moved(e) for e in x.at)
        if x.table.tensor in every:
            return Gather(read(x.table), (None, *at), (count, *x.shape))
        return Gather(x.table, at, x.shape)

    d = defined(tensor)
    made = Tensor(tensor.name, (count, *shape_of(tensor)), tensor.dtype)
    made.definition = Definition((number, *d.axes), d.reduce, d.reducer, moved(d.body))
    return made
