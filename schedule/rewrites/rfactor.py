"""Split reductions: a rewrite for results too small to keep every thread busy."""

from __future__ import annotations

import math
from collections.abc import Iterator

from loopwright.dsl.expr import Expr, Read, Reduce, map_leaves
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, defined, workload
from loopwright.schedule.program.canonical import fresh, unused
from loopwright.schedule.program.nest import extent
from loopwright.schedule.target import Target

_FEW = 256  # elements of a result that alone do not make enough parallel work
_ROWS = 32  # elements of a result for each thread that are parallel work enough
_DEEP = 1 << 12  # steps of a reduction that panels as deep leave no cache for
_LONG = 1 << 15  # steps of a reduction that are worth splitting


def split_reductions(source: Workload, target: Target) -> Iterator[tuple[str, Workload]]:
    """The workload and its variants with split reductions, best guess first, each with a label
    that makes the names of its sketches unique."""
    long = [number for number, stage in enumerate(source.stages) if _is_long(stage)]
    variants = []
    for number in long:
        for parts in (target.threads, 4 * target.threads):
            form = split_reduction(source, number, parts) if parts > 1 else None
            if form is not None:
                variants.append((f"split{number}={parts} ", form))
    # Many elements are parallel work as they are, and rows of their own.
    first = 0 if all(_enough(source.stages[number], target) for number in long) else 1
    yield from variants[:first]
    yield "", source
    yield from variants[first:]


def split_reduction(source: Workload, number: int, parts: int) -> Workload | None:
    """Reduce stage `number` in parts, then the parts; None if no reduction axis divides.

    `S[i] += f(i, k)  ↦  P[p, i] += f(i, K/parts·p + k);  S[i] += P[p, i]`
    """
    stage = source.stages[number]
    d = defined(stage)
    axis = next((k for k in d.reduce if extent(k) % parts == 0), None)
    if d.reducer is None or axis is None:
        return None
    part = Index(unused("p", tuple(d.extents)), parts)
    rest = Index(axis.name, extent(axis) // parts)

    def position(p: Affine) -> Affine:
        return p.replace(lambda i: part * (rest.extent or 1) + rest if i == axis else i)

    def read(r: Read) -> Expr:
        return Read(r.tensor, tuple(position(p) for p in r.index))

    taken = {t.name for t in (*source.inputs, *source.stages)}
    partial = Tensor(fresh(f"{stage.name}_part", taken))
    left = tuple(Index(i.name, i.extent) for i in d.axes)
    body = _declared(map_leaves(d.body, read, position), d.extents, rest)
    partial[(part, *left)] = Reduce(d.reducer, body)
    return _replace_stage(source, stage, partial, part, left, d.reducer)


def _declared(body: Expr, extents: dict[Index, int], *others: Index) -> Expr:
    """Say every range outright: what inference would find from other subscripts may differ."""
    known = {i: Index(i.name, n) for i, n in extents.items()} | {i: i for i in others}

    def position(p: Affine) -> Affine:
        return p.replace(lambda i: known.get(i, i))

    return map_leaves(body, lambda r: Read(r.tensor, tuple(map(position, r.index))), position)


def _replace_stage(
    source: Workload,
    stage: Tensor,
    partial: Tensor,
    part: Index,
    left: tuple[Index, ...],
    reducer: str,
) -> Workload:
    whole = Tensor(stage.name, stage.shape, stage.dtype)
    whole[left] = Reduce(reducer, partial[(part, *left)])
    new: dict[Tensor, Tensor] = {stage: whole}
    for other in source.stages:
        if other is stage:
            continue
        d = defined(other)

        def read(r: Read) -> Expr:
            return Read(new.get(r.tensor, r.tensor), r.index)

        copy = Tensor(other.name, other.shape, other.dtype)
        body = _declared(map_leaves(d.body, read, lambda p: p), d.extents)
        copy[d.axes] = body if d.reducer is None else Reduce(d.reducer, body)
        new[other] = copy
    return workload(*(new[t] for t in source.outputs))


def _enough(stage: Tensor, target: Target) -> bool:
    return math.prod(extent(axis) for axis in defined(stage).axes) >= _ROWS * target.threads


def _is_long(stage: Tensor) -> bool:
    d = defined(stage)
    size, steps = 1, 1
    for axis in d.axes:
        size *= extent(axis)
    for axis in d.reduce:
        steps *= extent(axis)
    if size <= 2 * steps and steps >= _DEEP:
        return True  # its operands' tiles leave the cache before they are used again
    return size <= _FEW and size * steps >= _LONG and steps > size
