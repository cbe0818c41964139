"""A rough time of a program, by which algorithm a search begins with, and a default is made.

A nest takes the longer of two times: of its computing, at the share of the peak that its register
tile may reach, and of what it moves. That orders direct sums, im2col and Winograd programs as
measurements do; it is no cost model within one of them.
"""

from __future__ import annotations

import math
from typing import Protocol

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.workload import Workload, tensor_bytes
from loopwright.schedule.cpu.heuristics import PRIOR
from loopwright.schedule.cpu.register_tile import best_tile, best_tile_score
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.footprint import NestContext, indices, touched
from loopwright.schedule.program.nest import Nest, extent, is_order, operations, terms
from loopwright.schedule.program.plan import FusionGroup, has_reuse
from loopwright.schedule.program.predicates import share
from loopwright.schedule.sketch.sketch import NestSketch
from loopwright.schedule.target import Target


class Outline(Protocol):
    """Subject of the estimate: a workload, and the structure of every nest of a program."""

    @property
    def workload(self) -> Workload: ...
    @property
    def groups(self) -> tuple[FusionGroup, ...]: ...
    @property
    def nests(self) -> tuple[NestSketch, ...]: ...


def estimate(sketch: Outline, target: Target) -> float:
    """Cycles of one core for the default program of a sketch, but for what is constant."""
    constants = constants_of(sketch.workload, sketch.groups)
    chosen = iter(sketch.nests)
    total = 0.0
    for group in sketch.groups:
        near = _near(group, target)
        for nest, shared in group.placed():
            context = NestContext(target, shared, constants)
            structure = next(chosen)
            if nest.out.name not in constants:
                rows = math.prod(map(extent, shared))
                arithmetic = rows * _arithmetic(structure, context)
                moved = _moved(nest, near, context)
                moved += rows * _streamed_again(structure, context)
                again = _fetched_again(nest, {t.name for t in group.all_scratch}, context)
                total += max(
                    arithmetic + again / PRIOR.reread_bytes_per_cycle,
                    moved / PRIOR.bytes_per_cycle,
                )
                near |= _read_in_a_row(nest, context) if shared else set()
    return total


def _near(group: FusionGroup, target: Target) -> set[str]:
    """The local tensors of a group, if they stay in the caches of one core."""
    fit = sum(map(tensor_bytes, group.scratch)) <= target.l2_bytes
    return {t.name for t in group.all_scratch} if fit else set()


def _read_in_a_row(nest: Nest, context: NestContext) -> set[str]:
    """Tensors that a row of a nest leaves in the caches for the next nest of its group, but for
    constants. Of large ones, every nest reads another part."""
    small = context.target.l2_bytes // 2
    reads = (r for r in nest.reads() if touched(nest, r) <= small)
    return {r.tensor.name for r in reads} - context.constants


def _arithmetic(structure: NestSketch, context: NestContext) -> float:
    nest = structure.nest
    if is_order(nest):  # of a few bytes, one after the other
        return PRIOR.ordered_cycles * math.prod(map(extent, indices(nest.reads()[0])))
    if structure.scan is not None:
        rows = math.prod(best_tile(structure, context)) if structure.tile else 1
        return PRIOR.scanned_cycles * nest.size / rows
    predicates = structure.predicates
    tile = {}
    if structure.vector is not None and has_reuse(nest):
        tile = dict(zip(structure.tile, best_tile(structure, context), strict=True))
    every = (predicates.body, *(other for _, other in nest.also))
    work = nest.steps * share(nest, (*predicates.whole, *predicates.places))
    added = len(terms(predicates.body)) if nest.reducer is not None else 0
    work *= added + sum(operations(each, tile) for each in every)
    if nest.epilogue is not None:
        work += nest.size * operations(nest.epilogue)
    rate = context.lanes(nest) * (
        PRIOR.reuse_operations
        if has_reuse(nest)
        else PRIOR.sum_operations
        if nest.reduce
        else PRIOR.element_operations
    )
    return work / (rate * max(best_tile_score(structure, context), 1 / 16))


def _moved(nest: Nest, near: set[str], context: NestContext) -> float:
    """Bytes of tensors that are not `near` which go through the caches: what a row does not share
    with the others, and what is too large to wait there for the next row. What was laid out ahead
    of time, as it is read, counts half, unless it is larger than the last of caches."""
    rows = math.prod(map(extent, context.rows))
    total = 0.0
    for read in dict.fromkeys(nest.reads()):
        size = touched(nest, read)
        if read.tensor.name not in near:
            own = indices(read) - set(nest.extents)
            again = rows if own or size > context.target.l2_bytes // 2 else 1
            size = min(again * size, tensor_bytes(read.tensor)) if own else again * size
            streamed = read.tensor.name in context.constants and size <= PRIOR.last_cache_bytes
            total += size / 2 if streamed else size
    wrote = 0 if nest.out.name in near else rows * nest.size * item_bytes(nest.out.dtype)
    return total + wrote


def _fetched_again(nest: Nest, local: set[str], context: NestContext) -> float:
    """Bytes of operands that every row reads, local ones left out, which the second-level cache
    does not keep from one row to the next."""
    rows = math.prod(map(extent, context.rows))
    shared = (r for r in dict.fromkeys(nest.reads()) if r.tensor.name not in local)
    sizes = [touched(nest, r) for r in shared if indices(r) <= set(nest.extents)]
    return (rows - 1) * sum(max(0.0, size - context.target.l2_bytes) for size in sizes)


def _streamed_again(structure: NestSketch, context: NestContext) -> float:
    """Bytes of an operand that is read again for every register tile along the axes that it does
    not have, where the panel that one tile reads is too large to wait in the cache; half of them,
    since they are read in order."""
    nest, vector = structure.nest, structure.vector
    if vector is None or not has_reuse(nest):
        return 0.0
    sizes = dict(zip(structure.tile, best_tile(structure, context), strict=True))
    again = 0.0
    for read in dict.fromkeys(nest.reads()):
        used = indices(read)
        depth = math.prod(extent(k) for k in nest.reduce if k in used)
        panel = depth * sizes.get(vector, 1) * item_bytes(read.dtype)
        if vector in used and panel > context.target.l2_bytes // 2:
            times = math.prod(extent(a) / sizes.get(a, 1) for a in nest.axes if a not in used)
            again += touched(nest, read) / 2 * max(0.0, times - 1)
    return again
