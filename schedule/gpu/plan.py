"""From a workload to the groups that become GPU kernels.

Producers, consumers and zeros are fused as for processors (`plan.py`). Beyond that, a predicated
copy (padding) is computed where it is read, if its readers use an element few times; groups whose
rows do not fit shared memory run nest after nest, each over all threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import walk
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.schedule.gpu.context import walk_order
from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.gpu.mma import mma_sketches
from loopwright.schedule.gpu.rules import shared_reads
from loopwright.schedule.gpu.shared_tile import is_transposed, shared_order
from loopwright.schedule.gpu.tile_sizes import tiled_axes
from loopwright.schedule.program.canonical import Program, drop_units, merge_axes, split_divisions
from loopwright.schedule.program.fusion import can_inline, inline
from loopwright.schedule.program.nest import Nest, fresh, leaves
from loopwright.schedule.program.plan import FusionGroup, groups_of, has_reuse
from loopwright.schedule.program.source import Source
from loopwright.schedule.target import Gpu


def gpu_program(source: Source) -> Program:
    """The nests of a workload, producers and consumers fused."""
    return _pads_inlined(source.program, source.outputs)


def gpu_plan(program: Program, outputs: tuple[Tensor, ...], gpu: Gpu) -> tuple[FusionGroup, ...]:
    """The groups of a program, in an order in which they can run."""
    return tuple(_groups(program, outputs, gpu))


def sources(
    program: Program,
    groups: tuple[FusionGroup, ...],
    workload: Workload,
    constants: frozenset[str],
    gpu: Gpu,
) -> tuple[Nest, ...]:
    """The element-wise nests that need no kernel of their own, since all that read them copy to
    shared memory their results: padding, above all. Tensor cores take operands as they lie in
        memory."""
    found = []
    alone = {g.nests[0].out.name for g in groups if len(g.nests) == 1 and not g.outer}
    for nest in program:
        name = nest.out.name
        if nest.out in workload.outputs or not can_inline(program, nest):
            continue
        if name in constants or name not in alone:
            continue
        readers = [
            g for g in groups if any(r.tensor.name == name for n in g.nests for r in n.reads())
        ]
        if readers and all(_keeps_in_shared(group, nest.out, gpu) for group in readers):
            found.append(nest)
    made = {n.out for n in found}
    return tuple(n for n in found if not any(r.tensor in made for r in n.reads()))


def without(groups: tuple[FusionGroup, ...], gone: tuple[Nest, ...]) -> tuple[FusionGroup, ...]:
    """The groups but for those that make what is computed elsewhere."""
    names = {n.out.name for n in gone}
    return tuple(g for g in groups if not {n.out.name for n in g.nests} <= names)


def apart(groups: tuple[FusionGroup, ...]) -> tuple[FusionGroup, ...]:
    """The groups with nests that share no loops each in a group of its own."""
    return tuple(
        part
        for group in groups
        for part in ([group] if group.outer else [FusionGroup((), (n,)) for n in group.nests])
    )


def lay_out_operands(
    groups: tuple[FusionGroup, ...], workload: Workload, constants: frozenset[str]
) -> tuple[FusionGroup, ...]:
    """The groups with every constant that a tiled kernel would transpose re-laid out ahead.

    `C[i, j] += A[i, k] * W[j, k]
     ↦  W_turned[k, j] = W[j, k];  C[i, j] += A[i, k] * W_turned[k, j]`
    """
    taken = {t.name for t in (*workload.inputs, *workload.stages)}
    taken |= {n.out.name for g in groups for n in g.nests}
    done: list[FusionGroup] = []
    for group in groups:
        if not group.outer and group.nests[0].out.name not in constants:
            copies, nest = _with_operands_laid_out(group.nests[0], constants, taken)
            done += [FusionGroup((), (copy,)) for copy in copies]
            group = FusionGroup((), (nest,))
        done.append(group)
    return tuple(done)


def _with_operands_laid_out(
    nest: Nest, constants: frozenset[str], taken: set[str]
) -> tuple[list[Nest], Nest]:
    tiled = tiled_axes(nest, walk_order(nest))
    copies: list[Nest] = []
    new: dict[Read, Read] = {}
    if not has_reuse(nest) or len(tiled) < 2:
        return [], nest
    for read in shared_reads(nest, tiled):
        known = read.tensor.name in constants
        if (
            not known
            or not is_transposed(read, tiled)
            or any(p.plain() is None for p in read.index)
        ):
            continue
        order = shared_order(read, tiled)
        name = fresh(f"{read.tensor.name}_turned", taken)
        sizes = tensor_shape(read.tensor)
        axes = tuple(Index(f"d{d}", size) for d, size in enumerate(sizes))
        copy = Tensor(name, tuple(sizes[d] for d in order), read.dtype)
        whole = Read(read.tensor, tuple(a.affine() for a in axes))
        at = tuple(axes[d].affine() for d in order)
        copies.append(Nest(copy, at, tuple(axes[d] for d in order), (), None, whole, copy))
        new[read] = Read(copy, tuple(read.index[d] for d in order))
    return copies, nest.with_reads(lambda r: new.get(r, r))


def _keeps_in_shared(group: FusionGroup, made: Tensor, gpu: Gpu) -> bool:
    """Return whether shared-memory tiles of the group hold every element of `made` it reads."""
    nest = group.nests[0]
    tiled = tiled_axes(nest, walk_order(nest))
    if group.outer or len(group.nests) != 1 or not has_reuse(nest) or len(tiled) < 2 or nest.also:
        return False
    if any(mma_sketches(group, gpu)):
        return False
    after = () if nest.epilogue is None else walk(nest.epilogue)
    if any(isinstance(x, Read) and x.tensor.name == made.name for x in after):
        return False
    shared = shared_reads(nest, tiled)
    reads = {r for r in nest.reads() if r.tensor.name == made.name}
    return all(r.tensor is made and r in shared for r in reads)


def _groups(program: Program, outputs: tuple[Tensor, ...], gpu: Gpu) -> Iterator[FusionGroup]:
    start = 0
    for group in groups_of(program, program, outputs):
        stop = start + len(group.nests)
        if fits(group, gpu):
            yield finished(group)
        else:
            yield from (finished(FusionGroup((), (nest,))) for nest in program[start:stop])
        start = stop


def fits(group: FusionGroup, gpu: Gpu) -> bool:
    """Return whether a row of the group's scratch tensors fits shared memory, with room left."""
    size = sum(math.prod(tensor_shape(t)) * item_bytes(t.dtype) for t in group.scratch)
    return 2 * size <= gpu.shared_bytes


def finished(group: FusionGroup) -> FusionGroup:
    """The group with its nests as simple as they can be written."""
    return replace(
        group, body=tuple(merge_axes(split_divisions(drop_units(n))) for n in group.nests)
    )


def _pads_inlined(program: Program, outputs: tuple[Tensor, ...]) -> Program:
    for nest in reversed(program):
        current = next((n for n in program if n.out is nest.out), None)
        if current is None or nest.out in outputs or not can_inline(program, current):
            continue
        if not any(leaves(r, current.extents) for r in current.reads()):
            continue
        readers = [n for n in program if any(r.tensor is nest.out for r in n.reads())]
        if readers and sum(n.steps for n in readers) <= GPU.inlined_uses * current.size:
            program = inline(program, current)
    return program
