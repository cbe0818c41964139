"""Sizes of tiled kernels: the choices of their knobs, and which ones a rule of thumb takes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.nest import Nest, extent
from loopwright.schedule.sketch.kernel import Tiled
from loopwright.schedule.sketch.sketch import Choice, Knob
from loopwright.schedule.target import Gpu

_REGISTERS = (1, 2, 4, 8)
_THREADS = (1, 2, 4, 8, 16, 32, 64)
_CHUNKS = (1, 2, 4, 8, 16, 32, 64)
_UNROLLS = (1, 2, 4, 8, 16)

# Of a multiprocessor: a multiply-add needs at most so many elements from shared memory, and so
# many bytes from the cache behind it, to run at full speed (128 multiply-adds, 128 bytes of shared
# memory and about 24 bytes of the second-level cache a cycle).
_SHARED_ELEMENTS, _CACHE_BYTES = 0.25, 0.19

Array = np.ndarray[Any, np.dtype[Any]]


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
    found = _best(sketch.nest, sketch.axes, sketch.tiled, sketch.shared_reads, gpu)
    chosen = dict(zip(("tile", "threads", "virtual"), found, strict=True))
    spans = (math.prod(levels) for levels in zip(*found, strict=True))
    sizes = {a: min(extent(a), n) for a, n in zip(sketch.tiled, spans, strict=True)}
    chosen["chunk"] = _usual_chunk(sketch, knobs["chunk"], sizes, gpu)
    window = math.prod(chosen["chunk"][1:])
    wanted = [u for u in knobs["unroll"] if u[0] * window <= 8 and chosen["chunk"][0] % u[0] == 0]
    chosen["unroll"] = wanted[-1] if wanted else knobs["unroll"][0]
    if "slots" in knobs:
        chosen["slots"] = (3,)
    return chosen


@functools.lru_cache(maxsize=256)
def _best(
    nest: Nest,
    axes: tuple[Index, ...],
    tiled: tuple[Index, ...],
    operands: tuple[Read, ...],
    gpu: Gpu,
) -> tuple[Choice, Choice, Choice]:
    """The best register tile, threads and virtual threads."""
    extents = [extent(a) for a in tiled]
    choices = (tuple(_tiles(extents)), tuple(_teams(extents, gpu)), tuple(_virtuals(extents)))
    grid: Array = np.indices([len(c) for c in choices]).reshape(3, -1)
    r, t, v = (np.array(c, np.int64)[at] for c, at in zip(choices, grid, strict=True))
    scores = _scores(axes, tiled, operands, (r, t, v), gpu)
    best = int(np.argmax(scores))
    tile, threads, virtual = (c[int(at)] for c, at in zip(choices, grid[:, best], strict=True))
    return tile, threads, virtual


def _tiles(extents: Sequence[int]) -> Iterator[Choice]:
    """Register tiles: powers of two, and small divisors."""
    spans = []
    for n in extents:
        small = [d for d in (3, 5, 6, 7) if n % d == 0]
        spans.append([s for s in sorted({*_REGISTERS, *small}) if s <= n])
    for sizes in itertools.product(*spans):
        if math.prod(sizes) <= GPU.register_tile_elements:
            yield sizes


def _teams(extents: Sequence[int], gpu: Gpu) -> Iterator[Choice]:
    """Threads along every axis: powers of two, and what divides the axis; warps that are full, as
    far as there are such blocks."""
    spans = []
    for n in extents:
        odd = [d for d in (3, 5, 6, 7, 9, 10, 12, 14, 28) if n % d == 0]
        spans.append([t for t in sorted({*_THREADS, *odd}) if t <= n])
    most = min(GPU.block_threads, gpu.most_threads)
    counts = [c for c in itertools.product(*spans) if math.prod(c) <= most]
    full = {c: math.prod(c) / (-(-math.prod(c) // gpu.warp) * gpu.warp) for c in counts}
    least = min(GPU.full_warp_share, max(full.values()))
    yield from (c for c in counts if full[c] >= least)


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
        if math.prod(shape) * size <= max(GPU.unrolled_chunk_steps * 4, math.prod(shape)):
            yield (size, *shape)


def _scores(
    axes: tuple[Index, ...],
    tiled: tuple[Index, ...],
    operands: tuple[Read, ...],
    sizes: tuple[Array, Array, Array],
    gpu: Gpu,
) -> Array:
    """The share of the GPU's peak that register tiles, threads and virtual threads may reach,
    roughly. Beside its multiply-adds, a tile costs loads from shared memory and from the cache
    behind it; lost is what tiles compute in vain, multiprocessors without work, and waiting where
    there are too few warps to hide it."""
    r, t, v = sizes
    extents = np.array([extent(a) for a in tiled])
    v = np.minimum(v, np.maximum(extents // (r * t), 1))
    whole = r * t * v
    counts = -(-extents // whole)
    blocks = counts.prod(1) * math.prod(extent(a) for a in axes if a not in tiled)
    useful = (extents / (counts * whole)).prod(1)
    threads = t.prod(1)
    warps = -(-threads // gpu.warp)
    own, block = r * v, np.minimum(whole, extents)
    accumulators = own.prod(1)
    elements = np.zeros(len(r))  # for one step of a thread's tile
    instructions = np.zeros(len(r))
    bytes_ = np.zeros(len(r))
    for read in operands:
        used = np.array([a in indices(read) for a in tiled])
        count = own[:, used].prod(1)
        fast = int(np.flatnonzero(used)[-1]) if used.any() else 0
        width = np.ones(len(r))
        # Neighbours along an axis that is a subscript alone are neighbours in the tile.
        if any(p.plain() == tiled[fast] for p in read.index):
            width = np.gcd(r[:, fast], GPU.shared_load_elements)
        elements += count
        instructions += (
            count / width * (1 + (r[:, fast] > GPU.shared_load_elements))
        )  # conflicts of banks
        bytes_ += block[:, used].prod(1) / block.prod(1) * item_bytes(read.dtype)
    shared = elements / accumulators / _SHARED_ELEMENTS
    cache = bytes_ / _CACHE_BYTES
    cost = np.maximum(1, np.maximum(shared, cache)) + 0.2 * shared + 0.25 * cache
    cost += instructions / accumulators
    registers = accumulators + elements + GPU.spare_registers
    fitting = np.minimum(
        gpu.sm_registers / (registers * warps * gpu.warp), gpu.sm_threads / threads
    )
    each = blocks / gpu.multiprocessors
    active = np.minimum(np.maximum(each, 1), np.maximum(np.floor(fitting), 1)) * warps
    hidden = np.minimum(1, active / 4) * np.minimum(1, active / GPU.usual_warps) ** 0.5
    lines = np.minimum(t[:, -1] * r[:, -1], 32) / 32  # of the result, written as a whole
    usual = 1 - 0.04 * np.abs(np.log2(threads / GPU.usual_threads))
    score = useful * threads / (warps * gpu.warp) * each / np.ceil(each) * hidden / cost
    score *= (0.8 + 0.2 * lines) * usual
    illegal = (accumulators > 64) | (registers > gpu.registers - 20) | (fitting < 1)
    return np.where(illegal, -1.0, score)


def _usual_chunk(
    sketch: Tiled, choices: tuple[Choice, ...], sizes: dict[Index, int], gpu: Gpu
) -> Choice:
    """A chunk of usual length with whole windows, whose shared-memory tiles are small."""
    most = min(GPU.usual_chunk_bytes, gpu.shared_bytes // 3)

    def cost(choice: Choice) -> tuple[bool, float]:
        chunk = dict(zip((sketch.chunked, *sketch.windows), choice, strict=True))
        large = _shared_bytes(sketch, {**sizes, **chunk}) > most
        whole = all(chunk[k] == extent(k) for k in sketch.windows)
        divides = extent(sketch.chunked) % choice[0] == 0
        far = abs(math.log2(math.prod(choice) / GPU.usual_chunk_steps))
        return large, far + 0.5 * (not divides) + 0.3 * (not whole)

    return min(choices, key=cost)


def _shared_bytes(sketch: Tiled, sizes: dict[Index, int]) -> int:
    total = 0
    for read in sketch.shared_reads:
        count = item_bytes(read.dtype)
        for p in read.index:
            count *= 1 + sum(
                abs(c) * (sizes.get(i, 1) - 1) for i, c in p.terms if isinstance(i, Index)
            )
        total += count
    return total


def tiled_axes(nest: Nest, order: tuple[Index, ...]) -> tuple[Index, ...]:
    """Axes along which some operand is used again: the last three."""
    reads = [indices(r) for r in nest.reads() if r.tensor is not nest.result]
    inside = [u for u in reads if u & set(nest.reduce)]
    return tuple(a for a in order if extent(a) > 1 and any(a not in u for u in inside))[-3:]
