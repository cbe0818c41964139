"""The GPU's rules: which kernels and which sizes are worth considering for a group of nests.

Nothing here knows operators by name; the rules look at strides, reuse and extents.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.dsl.workload import tensor_bytes, tensor_shape
from loopwright.schedule.gpu.context import contiguous_axis, walk_order
from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.gpu.lower_elementwise import unrolled_axes
from loopwright.schedule.gpu.mma import mma_default, mma_knobs, mma_sketches
from loopwright.schedule.gpu.shared_tile import is_affine, is_transposed
from loopwright.schedule.gpu.tile_sizes import tiled_axes, tiled_default, tiled_knobs
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.nest import Nest, extent, leaves, predicated_reads, stride
from loopwright.schedule.program.plan import FusionGroup, has_reuse
from loopwright.schedule.sketch.kernel import (
    Elementwise,
    KernelSketch,
    Mma,
    RowReduction,
    Tiled,
    Transpose,
)
from loopwright.schedule.sketch.sketch import Choice, Knob, unrolls
from loopwright.schedule.target import Gpu

_THREADS = (32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class KernelContext:
    """Context of the rules: the GPU, what follows from constants, and the element-wise nests that
    are computed into shared-memory tiles."""

    gpu: Gpu
    constants: frozenset[str] = frozenset()
    sources: tuple[Nest, ...] = ()


def kernel_sketches(group: FusionGroup, context: KernelContext) -> tuple[KernelSketch, ...]:
    """The structures for one group, the most promising first."""
    if group.outer:
        return (RowReduction(group, group.outer),)
    (nest,) = group.nests
    flat = _elementwise(group)
    if nest.reducer is None:
        return (*_transposes(group), flat)
    tiled: tuple[KernelSketch, ...] = (*mma_sketches(group, context.gpu), *_tiled(group, context))
    if any(isinstance(kernel, Tiled) and kernel.sources for kernel in tiled):
        return tiled  # none of the others can compute them
    steps = math.prod(map(extent, nest.reduce))
    if steps < GPU.team_steps:
        return (*tiled, flat) if _many_steps(nest) else (flat, *tiled)
    rows = RowReduction(group, nest.axes)
    if _team_pays(nest, context.gpu):
        return (rows, *tiled, flat)
    return (*tiled, flat, rows) if _many_steps(nest) else (flat, *tiled, rows)


def kernel_knobs(sketch: KernelSketch, context: KernelContext) -> Iterator[Knob]:
    """The knobs of one kernel."""
    if isinstance(sketch, Elementwise):
        yield Knob("threads", tuple((t,) for t in _THREADS if t <= context.gpu.most_threads))
        if sketch.tiled:
            yield Knob("tile", tuple(_elementwise_tiles(sketch, context)))
        if sketch.nest.reduce:
            axes = unrolled_axes(sketch.nest)
            yield Knob("unroll", tuple(unrolls([extent(k) for k in axes])))
    elif isinstance(sketch, Tiled):
        yield from tiled_knobs(sketch, context.gpu)
    elif isinstance(sketch, Transpose):
        yield Knob("threads", tuple((t,) for t in (64, 128, 256) if t <= context.gpu.most_threads))
        yield Knob("tile", tuple(itertools.product((8, 16, 32, 64), repeat=2)))
    elif isinstance(sketch, Mma):
        yield from mma_knobs(sketch, context.gpu)
    elif isinstance(sketch, RowReduction):
        yield Knob("team", tuple(_teams(sketch, context.gpu)))


def kernel_default(sketch: KernelSketch, context: KernelContext) -> dict[str, Choice]:
    """A choice for every knob by rules of thumb."""
    knobs = {k.name: k.choices for k in kernel_knobs(sketch, context)}
    if isinstance(sketch, Elementwise):
        return _elementwise_default(sketch, knobs, context.gpu)
    if isinstance(sketch, Tiled):
        return tiled_default(sketch, knobs, context.gpu)
    if isinstance(sketch, Transpose):
        return {"threads": knobs["threads"][-1], "tile": _transpose_tile(sketch, context.gpu)}
    if isinstance(sketch, Mma):
        return mma_default(sketch, knobs, context.gpu)
    assert isinstance(sketch, RowReduction)
    return {"team": _usual_team(sketch, knobs["team"])}


def _tiled(group: FusionGroup, context: KernelContext) -> Iterator[Tiled]:
    """Blocks that copy to shared memory all operands that are used again, by every pipeline."""
    (nest,) = group.nests
    axes = walk_order(nest)
    tiled = tiled_axes(nest, axes)
    if not has_reuse(nest) or len(tiled) < 2 or nest.also:
        return
    shared = shared_reads(nest, tiled)
    if not shared:
        return
    sources = tuple(n for n in context.sources if any(r.tensor is n.out for r in shared))
    chunked = max(nest.reduce, key=lambda k: (extent(k), -nest.reduce.index(k)))
    pipelines = ["double", "plain"]
    copied = not sources and all(_copies(r, nest, tiled) for r in shared)
    if context.gpu.async_copies and copied:
        # Elements of 4 bytes, one by one, cost more than vectors that go through registers.
        slow = any(is_transposed(r, tiled) for r in shared)
        pipelines.insert(1 if slow else 0, "async")
    for pipeline in pipelines:
        yield Tiled(group, axes, tiled, chunked, shared, sources, pipeline)


def _copies(read: Read, nest: Nest, tiled: tuple[Index, ...]) -> bool:
    """Return whether a shared-memory tile is made by copies of 4 bytes or more. Elements of 2 are
    copied by pairs, which all begin at even places."""
    if leaves(read, nest.extents) or item_bytes(read.dtype) not in (2, 4, 8):
        return False
    if item_bytes(read.dtype) >= 4:
        return True
    last = read.index[-1].plain() if read.index else None
    sizes = (extent(last), tensor_shape(read.tensor)[-1]) if last is not None else (1,)
    return not is_transposed(read, tiled) and all(size % 2 == 0 for size in sizes)


def _transposes(group: FusionGroup) -> Iterator[Transpose]:
    """Tiles in shared memory, if operands are contiguous along another axis than the result."""
    (nest,) = group.nests
    fast = contiguous_axis(nest)
    if fast is None or nest.also or extent(fast) < GPU.line_elements:
        return
    found: dict[Index, list[Read]] = {}
    for read in dict.fromkeys(r for r, _ in predicated_reads(nest.body)):
        along = [a for a in nest.axes if stride(read.tensor, read.index, a) == 1]
        across = stride(read.tensor, read.index, fast) not in (0, 1)
        if across and along and extent(along[0]) >= GPU.line_elements and is_affine(read, nest):
            found.setdefault(along[0], []).append(read)
    if found:
        slow = max(found, key=lambda a: len(found[a]))
        yield Transpose(group, (slow, fast), tuple(found[slow]))


def _transpose_tile(sketch: Transpose, gpu: Gpu) -> Choice:
    """The largest square whose shared-memory tiles fit shared memory, at most 32 by 32; rows are
    16 bytes longer than need be."""
    items = [item_bytes(r.dtype) for r in sketch.shared_reads]
    fitting = (t for t in (32, 16) if t * sum(t * i + 16 for i in items) <= gpu.shared_bytes)
    size = next(fitting, 8)
    return size, size


def shared_reads(nest: Nest, tiled: tuple[Index, ...]) -> tuple[Read, ...]:
    """The operands that go through shared memory: those that threads of a block share."""
    reads = dict.fromkeys(r for r, _ in predicated_reads(nest.body) if is_affine(r, nest))
    return tuple(r for r in reads if not set(tiled) <= indices(r) or _slides(r, nest, tiled))


def _slides(read: Read, nest: Nest, tiled: tuple[Index, ...]) -> bool:
    """Return whether a window of the read slides along the tile: neighbours' windows overlap."""
    for p in read.index:
        window = max((abs(c) * (extent(k) - 1) for k, c in p.terms if k in nest.reduce), default=0)
        if any(a in tiled and abs(c) <= window for a, c in p.terms):
            return True
    return False


def _elementwise(group: FusionGroup) -> Elementwise:
    (nest,) = group.nests
    fast = contiguous_axis(nest)
    axes = walk_order(nest)
    count = 1 if nest.reducer is None else 2
    return Elementwise(group, axes, axes[-count:] if fast is not None else ())


def _team_pays(nest: Nest, gpu: Gpu) -> bool:
    """Return whether a team is better than a thread for each element. It is for too few elements
    to keep the GPU busy, or memory that only a team reads as it lies."""
    return nest.size * 8 < gpu.multiprocessors * gpu.warp or reads_along(nest)


def reads_along(nest: Nest) -> bool:
    """Return whether a reduction's largest read is contiguous along it, and hardly reused."""
    read = _largest(nest)
    if read is None:
        return False
    along = any(stride(read.tensor, read.index, k) == 1 for k in nest.reduce)
    return along and reuse(nest) < GPU.shared_tile_uses


def _reads_again(nest: Nest, axis: Index) -> bool:
    """Return whether neighbours along an axis read the same elements of the largest operand."""
    read = _largest(nest)
    return read is not None and (axis not in indices(read) or _slides(read, nest, (axis,)))


def _largest(nest: Nest) -> Read | None:
    """The operand of which the nest reads most, if it reads any."""

    def size(read: Read) -> int:
        return math.prod(nest.extents.get(i, 1) for i in indices(read))

    return max((r for r, _ in predicated_reads(nest.body)), key=size, default=None)


def _many_steps(nest: Nest) -> bool:
    """Return whether elements in memory are used so often that caches alone will not do."""
    tensors = {r.tensor for r in nest.reads() if r.tensor is not nest.result}
    elements = nest.size + sum(math.prod(tensor_shape(t)) for t in tensors)
    return nest.steps > GPU.shared_tile_uses * elements


def reuse(nest: Nest) -> int:
    """Least number of uses of an operand's elements by a tile, as large as can be."""
    tiled = tiled_axes(nest, walk_order(nest))
    if not has_reuse(nest) or len(tiled) < 2:
        return 1
    shared = shared_reads(nest, tiled)
    again = (math.prod(extent(a) for a in tiled if a not in indices(r)) for r in shared)
    return min(again, default=1)


def _elementwise_tiles(sketch: Elementwise, context: KernelContext) -> Iterator[Choice]:
    nest = sketch.nest
    widest = max(item_bytes(t) for t in (nest.out.dtype, nest.result.dtype))
    lanes = [n for n in (1, 2, 4, 8) if n * widest <= 2 * context.gpu.vector_bytes]
    spans = [[n for n in lanes if n <= extent(a)] for a in sketch.tiled]
    if nest.reducer is not None:
        spans = [[n for n in (1, 2, 4) if n <= extent(a)] for a in sketch.tiled]
    yield from itertools.product(*spans)


def _elementwise_default(
    sketch: Elementwise, knobs: dict[str, tuple[Choice, ...]], gpu: Gpu
) -> dict[str, Choice]:
    nest = sketch.nest
    chosen: dict[str, Choice] = {}
    if "tile" in knobs:
        wanted = [1] * len(sketch.tiled)
        fast = sketch.tiled[-1]
        bytes_ = max(item_bytes(t) for t in (nest.out.dtype, nest.result.dtype))
        for width in (8, 4, 2):
            fits = width * bytes_ <= gpu.vector_bytes and extent(fast) % width == 0
            enough = nest.size >= width * gpu.multiprocessors * gpu.sm_threads // 4
            if nest.reducer is None and fits and enough:
                wanted[-1] = width
                break
        if len(wanted) == 2 and _reads_again(nest, sketch.tiled[0]):
            # Neighbours along this axis read the same, but enough threads are needed first.
            each = nest.size // (gpu.multiprocessors * gpu.sm_threads // 2)
            wanted[0] = max(
                n for n in (1, 2, 4) if n <= max(1, min(each, extent(sketch.tiled[0])))
            )
        chosen["tile"] = tuple(wanted)
    tiles = nest.size // math.prod(chosen.get("tile", ()))
    choices = [c for c in knobs["threads"] if c[0] <= 256]
    filling = [c for c in choices if tiles >= 2 * c[0] * gpu.multiprocessors]
    chosen["threads"] = filling[-1] if filling else choices[min(1, len(choices) - 1)]
    if "unroll" in knobs:
        small = [c for c in knobs["unroll"] if math.prod(c) <= GPU.unroll_iterations]
        chosen["unroll"] = max(small, key=math.prod)
    return chosen


def _teams(sketch: RowReduction, gpu: Gpu) -> Iterator[Choice]:
    """Rows of a block, whose own results fit its shared memory, and threads of a row."""
    rows = math.prod(map(extent, sketch.rows))
    row = sum(map(tensor_bytes, sketch.group.scratch))
    for many in (1, 2, 4, 8, 16, 32):
        for threads in (1, 2, 4, 8, 16, *_THREADS):
            whole = gpu.warp <= many * threads <= gpu.most_threads
            if whole and many <= max(rows, 1) and (many == 1 or many * row <= gpu.shared_bytes):
                yield many, threads


def _usual_team(sketch: RowReduction, choices: tuple[Choice, ...]) -> Choice:
    """Four elements or more of the longest nest a thread; at least four warps a block."""
    work = max(_row_work(n, sketch.rows) for n in sketch.group.nests)

    def cost(choice: Choice) -> tuple[float, float]:
        many, threads = choice
        wanted = min(max(work / 8, 1), 256)
        return abs(math.log2(threads / wanted)), abs(math.log2(many * threads / 128))

    return min(choices, key=cost)


def _row_work(nest: Nest, rows: tuple[Index, ...]) -> int:
    inner = math.prod(extent(a) for a in nest.axes if a not in rows)
    steps = math.prod(map(extent, nest.reduce))
    return max(inner, steps)
