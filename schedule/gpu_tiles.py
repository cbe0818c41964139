"""Sizes of tiled kernels: the choices of their knobs, and which ones a rule of thumb takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.schedule.gpu_sketch import Tiled
from loopwright.schedule.nest import Nest, extent
from loopwright.schedule.sketch import Choice, Knob
from loopwright.schedule.target import Gpu

_REGISTERS = (1, 2, 4, 8)
_THREADS = (1, 2, 4, 8, 16, 32, 64)
_MOST_TILE = 64  # register tile of one virtual thread
_LEAST_BLOCK, _MOST_BLOCK = 32, 512  # threads
_FULL_WARPS = 0.85  # share of the lanes of a block's warps that have work
_CHUNKS = (1, 2, 4, 8, 16, 32, 64)
_UNROLLS = (1, 2, 4, 8, 16)
_MOST_STEPS = 64  # of a chunk with its windows, unrolled

# Of a multiprocessor: a multiply-add needs at most so many elements from shared memory, and so
# many bytes from the cache behind it, to run at full speed (128 multiply-adds, 128 bytes of shared
# memory and about 24 bytes of the second-level cache a cycle).
_SHARED_ELEMENTS, _CACHE_BYTES = 0.25, 0.19
_USUAL_WARPS = 8  # on a multiprocessor, each with a few independent multiply-adds
_SPARE = 40  # registers for addresses, counters and what is on its way
_USUAL_CHUNK = 16 << 10  # bytes of shared memory for one chunk

Array = np.ndarray[Any, np.dtype[np.float64]]


def tiled_knobs(sketch: Tiled, gpu: Gpu) -> Iterator[Knob]:
    """The knobs "tile", "threads" and "virtual" of the tiled axes, "chunk" and "unroll" of the
    reduction, and "slots" of asynchronous copies."""
    extents = [extent(a) for a in sketch.tiled]
    yield Knob("tile", tuple(_tiles(extents)))
    yield Knob("threads", tuple(_teams(extents, gpu)))
    yield Knob("virtual", tuple(_virtuals(extents)))
    yield Knob("chunk", tuple(_chunks(sketch)))
    yield Knob("unroll", tuple((u,) for u in _UNROLLS if u <= extent(sketch.chunked)))
    if sketch.pipeline == "async":
        yield Knob("slots", ((2,), (3,), (4,)))


def tiled_default(
    sketch: Tiled, knobs: dict[str, tuple[Choice, ...]], gpu: Gpu
) -> dict[str, Choice]:
    """The block and thread tiles that a model of the multiprocessor rates best, then a chunk that
    leaves room for more blocks."""
    names = ("tile", "threads", "virtual")
    tables = [np.array(knobs[name], np.int64) for name in names]
    grid = np.indices([len(t) for t in tables]).reshape(len(tables), -1)
    r, t, v = (table[at] for table, at in zip(tables, grid, strict=True))
    best = int(np.argmax(_scores(sketch, r, t, v, gpu)))
    chosen = {name: knobs[name][int(grid[d, best])] for d, name in enumerate(names)}
    sizes = dict(
        zip(
            sketch.tiled,
            (
                min(extent(a), int(r[best, d] * t[best, d] * v[best, d]))
                for d, a in enumerate(sketch.tiled)
            ),
            strict=True,
        )
    )
    chosen["chunk"] = _usual_chunk(sketch, knobs["chunk"], sizes)
    window = math.prod(chosen["chunk"][1:])
    wanted = [u for u in knobs["unroll"] if u[0] * window <= 8 and chosen["chunk"][0] % u[0] == 0]
    chosen["unroll"] = wanted[-1] if wanted else knobs["unroll"][0]
    if "slots" in knobs:
        chosen["slots"] = (3,)
    return chosen


def _tiles(extents: Sequence[int]) -> Iterator[Choice]:
    """Register tiles: powers of two, and small divisors."""
    spans = []
    for n in extents:
        small = [d for d in (3, 5, 6, 7) if n % d == 0]
        spans.append([s for s in sorted({*_REGISTERS, *small}) if s <= n])
    for sizes in itertools.product(*spans):
        if math.prod(sizes) <= _MOST_TILE:
            yield sizes


def _teams(extents: Sequence[int], gpu: Gpu) -> Iterator[Choice]:
    """Threads along every axis: powers of two, and what divides the axis."""
    least = min(_LEAST_BLOCK, math.prod(extents))
    most = min(_MOST_BLOCK, gpu.most_threads)
    spans = []
    for n in extents:
        odd = [d for d in (3, 5, 6, 7, 9, 10, 12, 14, 28) if n % d == 0]
        spans.append([t for t in sorted({*_THREADS, *odd}) if t <= n])
    for counts in itertools.product(*spans):
        total = math.prod(counts)
        full = total / (-(-total // gpu.warp) * gpu.warp)
        if least <= total <= most and (full >= _FULL_WARPS or total < gpu.warp):
            yield counts


def _virtuals(extents: Sequence[int]) -> Iterator[Choice]:
    for counts in itertools.product(*([1, 2, 4] for _ in extents)):
        if math.prod(counts) <= 4 and all(v <= n for v, n in zip(counts, extents, strict=True)):
            yield counts


def _chunks(sketch: Tiled) -> Iterator[Choice]:
    """The chunk of the reduction, and windows whole or one step at a time."""
    longest = extent(sketch.chunked)
    sizes = sorted({*(c for c in _CHUNKS if c <= longest), *([longest] if longest <= 64 else [])})
    windows = [extent(k) for k in sketch.windows]
    shapes = list(dict.fromkeys([tuple(windows), (1,) * len(windows)]))
    for size, shape in itertools.product(sizes, shapes):
        if math.prod(shape) * size <= max(_MOST_STEPS * 4, math.prod(shape)):
            yield (size, *shape)


def _scores(sketch: Tiled, r: Array, t: Array, v: Array, gpu: Gpu) -> Array:
    """The share of the GPU's peak that tiles may reach, roughly: what tiles compute in vain,
    multiprocessors without work, loads from shared memory and from the cache behind it, and too
    few threads to hide their latency all cost."""
    extents = np.array([extent(a) for a in sketch.tiled])
    span = r * t
    v = np.minimum(v, np.maximum(extents // span, 1))
    whole = span * v
    blocks_of = -(-extents // whole)
    rest = math.prod(extent(a) for a in sketch.axes if a not in sketch.tiled)
    blocks = blocks_of.prod(1) * rest
    useful = (extents / (blocks_of * whole)).prod(1)
    threads = t.prod(1)
    warps = -(-threads // gpu.warp)
    full = threads / (warps * gpu.warp)
    own = r * v
    accumulators = own.prod(1)
    loads, bytes_ = _loads(sketch, own), _loads(sketch, np.minimum(whole, extents))
    registers = accumulators + loads * accumulators + _SPARE
    resident = np.minimum(
        gpu.sm_registers / (registers * warps * gpu.warp), gpu.sm_threads / threads
    )
    resident = np.maximum(np.floor(resident), 0.25)
    each = blocks / gpu.multiprocessors
    busy = each / np.ceil(each)
    active = np.minimum(np.maximum(np.ceil(each), 1), resident) * warps
    hidden = np.minimum(1, active * np.minimum(accumulators, 16) / (_USUAL_WARPS * 16)) ** 0.5
    widest = max(item_bytes(x.dtype) for x in sketch.nest.reads())
    fed = np.minimum(1, _SHARED_ELEMENTS / loads)
    fed = np.minimum(fed, _CACHE_BYTES / (bytes_ * widest))
    fast = np.minimum(t[:, -1] * r[:, -1], 32) / 32  # whole lines are written
    illegal = (accumulators > 128) | (registers > gpu.registers - 20)
    score = useful * full * busy * hidden * fed * (0.9 + 0.1 * fast)
    score *= 1 + 0.02 * (r[:, -1] % 4 == 0) - 0.005 * np.log2(accumulators)
    return np.where(illegal, -1.0, score)


def _loads(sketch: Tiled, sizes: Array) -> Array:
    """Elements of the operands for one multiply-add of a tile of these sizes."""
    total = np.zeros(len(sizes))
    for read in sketch.staged:
        used = _indices(read)
        total += np.prod(
            [sizes[:, d] for d, a in enumerate(sketch.tiled) if a in used]
            or [np.ones(len(sizes))],
            axis=0,
        )
    return np.maximum(total, 1) / sizes.prod(1)


def _usual_chunk(sketch: Tiled, choices: tuple[Choice, ...], sizes: dict[Index, int]) -> Choice:
    """The largest chunk whose stages are small, at most 32 steps, with whole windows."""

    def cost(choice: Choice) -> tuple[bool, bool, int, int]:
        names = (sketch.chunked, *sketch.windows)
        chunk = dict(zip(names, choice, strict=True))
        large = _stage_bytes(sketch, {**sizes, **chunk}) > _USUAL_CHUNK
        whole = all(chunk[k] == extent(k) for k in sketch.windows)
        steps = math.prod(choice)
        divides = extent(sketch.chunked) % choice[0] == 0
        return large, not (divides or choice[0] == 1), abs(steps - 24), not whole

    return min(choices, key=cost)


def _stage_bytes(sketch: Tiled, sizes: dict[Index, int]) -> int:
    total = 0
    for read in sketch.staged:
        count = item_bytes(read.dtype)
        for p in read.index:
            count *= 1 + sum(
                abs(c) * (sizes.get(i, 1) - 1) for i, c in p.terms if isinstance(i, Index)
            )
        total += count
    return total


def tiled_axes(nest: Nest, order: tuple[Index, ...]) -> tuple[Index, ...]:
    """Axes along which some operand is used again: the last three."""
    reads = [_indices(r) for r in nest.reads() if r.tensor is not nest.result]
    inside = [u for u in reads if u & set(nest.reduce)]
    return tuple(a for a in order if extent(a) > 1 and any(a not in u for u in inside))[-3:]


def _indices(read: Read) -> set[Index]:
    return {i for p in read.index for i in p.indices()}
