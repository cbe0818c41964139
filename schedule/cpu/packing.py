"""Packing: which operands of a nest are copied into the order in which its register tiles read
them."""

from __future__ import annotations

import math
from dataclasses import replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read, Table
from loopwright.dsl.index import Index
from loopwright.dsl.workload import tensor_bytes, tensor_shape
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.program.footprint import LINE, NestContext, indices, mostly_written, uses
from loopwright.schedule.program.nest import Nest, extent, leaves, predicated_reads, stride
from loopwright.schedule.program.plan import has_reuse
from loopwright.schedule.sketch.sketch import Packed


def packings(
    nest: Nest, vector: Index | None, tiled: tuple[Index, ...], context: NestContext
) -> list[tuple[Packed, ...]]:
    """Choices of packed operands: what must be and what is free, then with what may be."""
    made_ahead = nest.out.name in context.constants
    if context.rows and (made_ahead or nest.reducer is None):
        return [()]  # in the first case a row's own tensors would be copied before they are made
    if not context.rows and not has_reuse(nest):
        return [()]
    always: list[Packed] = []
    maybe: list[Packed] = []
    for read in dict.fromkeys(read for read, _ in predicated_reads(nest.body)):
        axes = [a for a in (vector, *reversed(tiled)) if a is not None and a in indices(read)]
        if not axes or not packable(nest, read, axes[0], context):
            continue
        packed = _packed(nest, read, axes[0], context)
        forced = axes[0] == vector and stride(read.tensor, read.index, axes[0]) != 1
        constant = read.tensor.name in context.constants
        (always if forced or constant else maybe).append(packed)
    # What follows is outside of them, and small operands are in cache anyway.
    if context.rows:
        large = context.target.l1_bytes // 2

        def pays(p: Packed) -> bool:
            scattered = p.axis == vector and stride(p.tensor, p.index, p.axis) != 1
            return scattered or (has_reuse(nest) and tensor_bytes(p.tensor) > large)

        ahead = tuple(filter(pays, always))
        return [*((*ahead, p) for p in maybe if p.axis == vector and pays(p)), ahead]
    vectors = [p for p in maybe if p.axis == vector]
    panels = [p for p in (*vectors, *always) if _fits_a_panel(p, vector, tiled, context)][:1]
    every = (*vectors, *always)
    blocks = [b for p in every if (b := _block(p, vector, tiled, context)) is not None][:1]
    options = [
        *(
            (*(p for p in always if (p.tensor, p.index) != (block.tensor, block.index)), block)
            for block in blocks
        ),
        *((*(p for p in always if p != panel), replace(panel, local=True)) for panel in panels),
        *([(*always, *vectors)] if vectors else []),
        tuple(always),
        *([(*always, *maybe)] if len(maybe) > len(vectors) else []),
    ]
    if vectors and _near(nest, vectors[0], context):
        options.insert(0, options.pop(options.index(tuple(always))))
    if mostly_written(nest):
        options.sort(key=lambda option: any(p.local for p in option))
    if any(p.axis != vector and _scattered(p, context) for p in maybe):
        options.insert(0, options.pop(options.index((*always, *maybe))))
    return options


def _near(nest: Nest, packed: Packed, context: NestContext) -> bool:
    """Return whether an operand is read in place as fast as from a panel. It is if it is in the
    nearest cache, or, where vectors are whole lines, in the next one."""
    size, target = tensor_bytes(packed.tensor), context.target
    item = item_bytes(packed.tensor.dtype)
    steps = [stride(packed.tensor, packed.index, i) for i in (*packed.outer, *packed.inner)]
    whole = context.lanes(nest) * item == LINE and all(s and s * item % LINE == 0 for s in steps)
    return size < target.l1_bytes // 2 or (whole and size <= target.l2_bytes // 4)


def packable(nest: Nest, read: Read, axis: Index, context: NestContext) -> bool:
    """Return whether a copy in another layout is no larger than the tensor, and repaid. It stands
    before the common loops, where nothing is there yet that these make."""
    constant = read.tensor.name in context.constants
    used, extents = indices(read), nest.extents
    if context.rows and read.tensor.name in context.made:
        return False
    if nest.out.name not in context.constants:
        extents |= {row: extent(row) for row in context.rows}
    if axis not in used & set(nest.axes) or not used <= set(extents):
        return False
    if read.tensor is nest.result or isinstance(read, Table):
        return False
    if any(not isinstance(atom, Index) for p in read.index for atom, _ in p.terms):
        return False
    if leaves(read, extents):
        return False
    if math.prod(extent(i) for i in used) > math.prod(tensor_shape(read.tensor)):
        return False
    return constant or uses(nest, read) >= CPU.pack_uses


def _scattered(packed: Packed, context: NestContext) -> bool:
    """Return whether every step of the reduction reads other cache lines of an operand. Either
    each is for one element, or so many that they leave the nearest cache."""
    if any(stride(packed.tensor, packed.index, k) == 1 for k in packed.inner):
        return False
    deep = math.prod(extent(k) for k in packed.inner) * LINE > context.target.l1_bytes // 2
    apart = stride(packed.tensor, packed.index, packed.axis)
    return deep or not apart or abs(apart) * item_bytes(packed.tensor.dtype) > LINE // 2


def _fits_a_panel(
    packed: Packed, vector: Index | None, tiled: tuple[Index, ...], context: NestContext
) -> bool:
    """Return whether one tile of the operand at a time can be copied inside of the nest. All
    register tiles along the tiled axes then use it from the cache."""
    if packed.axis != vector or packed.tensor.name in context.constants:
        return False
    depth = math.prod(extent(k) for k in packed.inner) * item_bytes(packed.tensor.dtype)
    widest = min(extent(packed.axis), CPU.panel_lanes)
    return not set(packed.outer) & set(tiled) and depth * widest <= context.target.l2_bytes // 2


def _block(
    packed: Packed, vector: Index | None, tiled: tuple[Index, ...], context: NestContext
) -> Packed | None:
    """A panel that also spans the axis along which its operand is contiguous, so that whole cache
    lines are copied; None if that is no axis of the result, the panel is too large, or a register
    tile spans other axes of the operand, of which a panel holds one place."""
    if packed.axis != vector or packed.tensor.name in context.constants:
        return None
    near = [a for a in packed.outer if stride(packed.tensor, packed.index, a) == 1]
    size = math.prod(extent(a) for a in (*near, *packed.inner)) * item_bytes(packed.tensor.dtype)
    if not near or size * min(extent(packed.axis), CPU.panel_lanes) > context.target.l2_bytes // 2:
        return None
    outer = tuple(a for a in packed.outer if a not in near)
    if set(outer) & set(tiled):
        return None
    return replace(packed, outer=outer, inner=(*near, *packed.inner), local=True)


def _packed(nest: Nest, read: Read, axis: Index, context: NestContext) -> Packed:
    used = indices(read)
    outer = tuple(a for a in (*context.rows, *nest.axes) if a in used and a != axis)
    inner = tuple(k for k in nest.reduce if k in used)
    return Packed(read.tensor, read.index, axis, outer, inner)
