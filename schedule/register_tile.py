"""Register tiles of a CPU: which sizes fit the registers, and how good each may be.

A tile is judged by the share of the peak that it may reach: as many multiply-adds as its loads can
feed, enough accumulators, registers for what stays in them, and what comes from beyond the nearest
cache.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.context import LINE, NestContext, indices, touched
from loopwright.schedule.nest import extent, guarded_reads, in_place, sliding, stride
from loopwright.schedule.sketch import Choice, NestSketch

USUAL_UNROLL = 3
"""Iterations that are unrolled by default, and that the compiler unrolls of a tap's loop."""
TURNED = 4
"""Vectors that are transposed at a time."""
PARTIAL = 8
"""Vectors of partial results that a reduction keeps at most, a power of two: they are halved until
one element is left."""
_IN_FLIGHT = 10  # accumulators: 4 cycles of latency, 2 multiply-adds a cycle, and some slack
_MANY = 32  # vector registers, with which tiles of 5 and 7 vectors have rows enough
_NEAR_RATE = 24  # bytes a cycle from the second-level cache, while two multiply-adds start in it


def best_tile(sketch: NestSketch, context: NestContext) -> Choice:
    """The register tile of a structure that has a vector axis by which it may be the fastest."""
    return _best(replace(sketch, order=()), context)[0]


def best_tile_score(sketch: NestSketch, context: NestContext) -> float:
    """The best share of the peak that a register tile of a structure may reach."""
    if sketch.vector is None:
        return 1 / context.lanes(sketch.nest)
    return _best(replace(sketch, order=()), context)[1]


@functools.lru_cache(maxsize=1024)
def _best(sketch: NestSketch, context: NestContext) -> tuple[Choice, float]:
    """The best tile and its score; many structures of a space differ in the order of their middle
    loops alone, which says nothing of it."""
    tiles = list(register_tiles(sketch, context))
    scores = [_tile_score(sketch, tile, context) for tile in tiles]
    best = scores.index(max(scores))
    return tiles[best], scores[best]


def register_tiles(sketch: NestSketch, context: NestContext) -> Iterator[Choice]:
    """Register tiles: accumulators, one row of vector operands and a broadcast fit the vector
    registers."""
    lanes = context.lanes(sketch.nest)
    widths = _widths(sketch, context)
    registers = context.target.vector_registers
    spans = [range(1, min(extent(a), registers) + 1) for a in sketch.tiled]
    if sketch.nest.reducer is None:
        spans = [range(TURNED, min(extent(a), registers) + 1, TURNED) for a in sketch.tiled]
    if len(spans) == 2:
        spans[0] = range(1, min(4, len(spans[0])) + 1)
    for sizes in itertools.product(*spans):
        for width in widths:
            columns = -(-width // lanes)
            if math.prod(sizes) * columns + columns + 1 <= registers or _least(
                sizes, width, widths
            ):
                yield (*sizes, width)


def _least(sizes: Choice, width: int, widths: list[int]) -> bool:
    return math.prod(sizes) == 1 and width == widths[0]


def _widths(sketch: NestSketch, context: NestContext) -> list[int]:
    """Sizes of the tile along the vector axis: whole vectors, or a power of two below one."""
    vector, nest, lanes = sketch.vector, sketch.nest, context.lanes(sketch.nest)
    assert vector is not None
    size = extent(vector)
    many = context.target.vector_registers >= _MANY
    counts = [1, 2, 3, 4, 5, 6, 7, 8] if many else [1, 2, 3, 4, 6, 8]
    if vector in nest.reduce:
        counts = [c for c in counts if c <= PARTIAL and c & c - 1 == 0]
    if nest.also:  # its many stores are independent already
        counts = [1]
    whole = [c * lanes for c in counts if c * lanes <= size]
    if in_place(nest):  # no element may be in two tiles
        return [w for w in whole if size % w == 0] or [min(size & -size, lanes)]
    return whole or [1 << (size.bit_length() - 1)]


def _tile_score(sketch: NestSketch, tile: Choice, context: NestContext) -> float:
    """The share of the peak that a register tile may reach: as many multiply-adds as loads can
    start at once, enough accumulators hide the latency, and what tiles compute twice is lost."""
    lanes = context.lanes(sketch.nest)
    *rows, width = tile
    columns = -(-width // lanes)
    vectors = math.prod(rows) * columns
    useful = min(1.0, width / lanes)
    for axis, size in zip(sketch.tile, tile, strict=True):
        whole, rest = divmod(extent(axis), size)
        if axis in sketch.nest.reduce:  # what is left of it is added element by element
            useful *= extent(axis) / (whole * size + rest * lanes)
        else:
            useful *= extent(axis) / (-(-extent(axis) // size) * size)
    if sketch.nest.reducer is None:
        return useful * (0.9 + 0.025 * min(columns, 4))
    slides = sliding(sketch.nest, sketch.vector, sketch.tiled)[-1:]
    window = math.prod(extent(k) for k in slides)
    if slides:
        # Beside the accumulators, the rows of one window and its weights are at hand.
        at_hand = sum(
            window * (columns if sketch.vector in indices(r) else 1)
            for r in {r for r, _ in guarded_reads(sketch.nest.body)}
        )
        if vectors + at_hand > context.target.vector_registers:
            useful *= 0.5
    kept = _kept(sketch, tile)
    if kept > context.target.vector_registers // 4:  # a few are no matter
        useful *= 1.0 if vectors + columns + kept <= context.target.vector_registers else 0.5
    useful -= 0.01 * _lines(sketch, tile, context)
    loads = _loads(sketch, tile, columns, window) if len(rows) > 1 else columns + math.prod(rows)
    per_load = vectors / loads
    share = min(1.0, vectors / _IN_FLIGHT) * min(1.0, per_load)
    far = _far_bytes(sketch, tile, context)
    if far:
        share = min(share, vectors / 2 * _NEAR_RATE / far)
    return useful * share + 0.05 * min(per_load, 2.0)


def _kept(sketch: NestSketch, tile: Choice) -> int:
    """Single elements of a window's operand that the compiler keeps in vector registers from one
    tap to the next, where a tile reads the same ones for several of its places."""
    if not sketch.reduce or extent(sketch.reduce[-1]) > USUAL_UNROLL:
        return 0  # a loop that the compiler does not unroll
    tap, sizes = sketch.reduce[-1], dict(zip(sketch.tile, tile, strict=True))
    total = 0
    for read in {r for r, _ in guarded_reads(sketch.nest.body)}:
        used = indices(read)
        steps = [dict(p.terms) for p in read.index if tap in p.indices()]
        near = any(
            0 < abs(step[a]) < extent(tap) * abs(step.get(tap, 0))
            for step in steps
            for a in sizes.keys() & step.keys()
        )
        if near and sketch.vector not in used:
            total += math.prod(n for a, n in sizes.items() if a in used)
    return total


def _far_bytes(sketch: NestSketch, tile: Choice, context: NestContext) -> int:
    """Bytes of the vector operands that a step of a register tile reads from beyond the nearest
    cache, where all that a tile reads is too much for it."""
    nest, sizes = sketch.nest, dict(zip(sketch.tile, tile, strict=True))
    panels = step = lines = 0
    for read in {r for r, _ in guarded_reads(nest.body)}:
        used, item = indices(read), item_bytes(read.dtype)
        places = {i: sizes[i] for i in sketch.tile if i in used}
        places |= {k: extent(k) for k in nest.reduce if k in used}
        if sketch.vector in used:
            step += tile[-1] * item
            panels += math.prod(places.values()) * item
            continue
        count = 1
        for i, size in places.items():
            apart = stride(read.tensor, read.index, i)
            each = LINE if apart is None else min(abs(apart) * item, LINE)
            count *= -(-size * each // LINE)
        lines += count * LINE
    return step if panels + lines > context.target.l1_bytes * 7 // 8 else 0


def _loads(sketch: NestSketch, tile: Choice, columns: int, window: int) -> float:
    """Loads in one step of a register tile: of each operand a vector, or a single element, for
    every place of the tile that it moves with; of a sliding window one row for all of its taps."""
    sizes = list(zip(sketch.tiled, tile[:-1], strict=True))
    total = 0.0
    for read in {r for r, _ in guarded_reads(sketch.nest.body)}:
        used = indices(read)
        places = math.prod(n for a, n in sizes if a in used)
        total += (places + window - 1) / window * columns if sketch.vector in used else places
    return total


def _lines(sketch: NestSketch, tile: Choice, context: NestContext) -> int:
    """Cache lines that a step of the tile reads single elements from, of operands that do not
    stay in the second-level cache: neighbours share one, and so do steps along a row."""
    total = 0
    for read in dict.fromkeys(sketch.nest.reads()):
        packed = any((p.tensor, p.index) == (read.tensor, read.index) for p in sketch.packed)
        large = touched(sketch.nest, read) > context.target.l2_bytes // 2
        near = any(stride(read.tensor, read.index, k) == 1 for k in sketch.nest.reduce)
        if packed or near or not large or sketch.vector in indices(read):
            continue
        sizes = dict(zip(sketch.tile, tile, strict=True))
        steps = {a: stride(read.tensor, read.index, a) for a in sketch.tiled}
        total += math.prod(n for a, n in sizes.items() if steps.get(a, 0) not in (0, 1))
    return total
