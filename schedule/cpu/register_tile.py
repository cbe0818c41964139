"""Register tiles of a CPU: which sizes fit the registers, and how good each may be.

A tile is judged by the share of the peak that it may reach: as many multiply-adds as its loads can
feed, enough accumulators, registers for what stays in them, and what comes from beyond the nearest
cache.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.cpu.sparse_tile import sparse_score, sparse_tiles
from loopwright.schedule.program.footprint import LINE, NestContext, indices, touched
from loopwright.schedule.program.nest import (
    extent,
    in_place,
    operations,
    predicated_reads,
    sliding,
    stride,
    terms,
)
from loopwright.schedule.sketch.sketch import Choice, NestSketch

_BETWEEN = 61  # sizes that stand for all between two

_Tiles = np.ndarray[Any, np.dtype[np.int64]]
"""Register tiles, of shape (tiles, axes), the vector axis last."""

_Numbers = np.ndarray[Any, np.dtype[Any]]
"""A number for each of them."""


def best_tile(sketch: NestSketch, context: NestContext) -> Choice:
    """The register tile of a structure that has a vector axis by which it may be the fastest."""
    if sketch.scan is not None:
        lanes = 1 if sketch.vector is None else context.lanes(sketch.nest)
        return max(t for t in _scan_tiles(sketch, context) if t[0] <= CPU.scanned_rows * lanes)
    return _best(replace(sketch, order=()), context)[0]


def best_tile_score(sketch: NestSketch, context: NestContext) -> float:
    """The best share of the peak that a register tile of a structure may reach."""
    if sketch.vector is None or sketch.scan is not None:
        return 1 / context.lanes(sketch.nest)
    return _best(replace(sketch, order=()), context)[1]


def best_tile_between(sketch: NestSketch, smaller: NestSketch, context: NestContext) -> Choice:
    """The register tile that is the best on average at the sizes between those of two sketches of
    one structure: a wide one computes many elements twice at most of them. Of sums of any length
    it leaves room for the vectors of another step: LLVM interleaves two, and would keep
    accumulators in memory."""
    less = set(register_tiles(smaller, context))
    tiles = [tile for tile in register_tiles(sketch, context) if tile in less]
    if any(extent(a) != extent(b) for a, b in zip(sketch.reduce, smaller.reduce, strict=True)):
        lanes = context.lanes(sketch.nest)
        tiles = [t for t in tiles if free_registers(t, sketch, context) >= -(-t[-1] // lanes)]
    if not tiles or sketch.scan is not None or sketch.nest.sparse is not None:
        return best_tile(sketch, context)
    judge = _Judge.of(replace(sketch, order=()), context)
    total = np.zeros(len(tiles))
    for share in np.linspace(0, 1, _BETWEEN):
        axes = tuple(
            (round(least + share * (most - least)), reduced)
            for (most, reduced), least in zip(judge.axes, map(extent, smaller.tile), strict=True)
        )
        total += replace(judge, axes=axes).scores(np.array(tiles, np.int64))
    return tiles[int(total.argmax())]


@functools.lru_cache(maxsize=1024)
def _best(sketch: NestSketch, context: NestContext) -> tuple[Choice, float]:
    """The best tile and its score; many structures of a space differ in the order of their middle
    loops alone, which says nothing of it."""
    tiles = list(register_tiles(sketch, context))
    if sketch.nest.sparse is not None:
        scores = [sparse_score(tile, sketch, context) for tile in tiles]
    else:
        scores = _Judge.of(sketch, context).scores(np.array(tiles, np.int64)).tolist()
    best = scores.index(max(scores))
    return tiles[best], scores[best]


def register_tiles(sketch: NestSketch, context: NestContext) -> Iterator[Choice]:
    """Register tiles that fit the vector registers."""
    if sketch.nest.sparse is not None:
        yield from sparse_tiles(sketch, context)
        return
    if sketch.scan is not None:
        yield from _scan_tiles(sketch, context)
        return
    widths = _widths(sketch, context)
    registers = context.target.vector_registers
    spans = [range(1, min(extent(a), registers) + 1) for a in sketch.tiled]
    if sketch.nest.reducer is None:
        spans = [
            range(CPU.transposed_rows, min(extent(a), registers) + 1, CPU.transposed_rows)
            for a in sketch.tiled
        ]
    if len(spans) == 2:
        spans[0] = range(1, min(4, len(spans[0])) + 1)
    lanes, products = context.lanes(sketch.nest), len(terms(sketch.nest.body))
    for sizes in itertools.product(*spans):
        rows = math.prod(sizes)
        for width in widths:
            least = rows == 1 and width == widths[0]
            if least or registers >= _needed(rows, -(-width // lanes), products):
                yield (*sizes, width)


def _scan_tiles(sketch: NestSketch, context: NestContext) -> Iterator[Choice]:
    """Rows of a running result at once, the most last."""
    (axis,) = sketch.tile
    lanes = 1 if sketch.vector is None else context.lanes(sketch.nest)
    sizes = [lanes << e for e in range(4) if lanes << e <= extent(axis)]
    yield from ((size,) for size in sizes or [1 << (extent(axis).bit_length() - 1)])


def free_registers(tile: Choice, sketch: NestSketch, context: NestContext) -> int:
    """Vector registers that a tile leaves."""
    columns, rows = -(-tile[-1] // context.lanes(sketch.nest)), math.prod(tile[:-1])
    needed = _needed(rows, columns, len(terms(sketch.nest.body)))
    return context.target.vector_registers - needed


def _needed(rows: int, columns: int, products: int) -> int:
    """Vector registers for accumulators, one row of vector operands and a broadcast: of several
    products in one step as many operands, where other rows use them again."""
    return rows * columns + columns * (products if rows > 1 else 1) + 1


def _widths(sketch: NestSketch, context: NestContext) -> list[int]:
    """Sizes of the tile along the vector axis: whole vectors, or a power of two below one."""
    vector, nest, lanes = sketch.vector, sketch.nest, context.lanes(sketch.nest)
    assert vector is not None
    size = extent(vector)
    many = context.target.vector_registers >= CPU.many_registers
    counts = [1, 2, 3, 4, 5, 6, 7, 8] if many else [1, 2, 3, 4, 6, 8]
    if vector in nest.reduce:
        counts = [c for c in counts if c <= CPU.partial_sums and c & c - 1 == 0]
    if nest.also:  # its many stores are independent already
        counts = [1]
    whole = [c * lanes for c in counts if c * lanes <= size]
    if in_place(nest):  # no element may be in two tiles
        return [w for w in whole if size % w == 0] or [min(size & -size, lanes)]
    return whole or [1 << (size.bit_length() - 1)]


@dataclass(frozen=True)
class _Operand:
    """Operand of the sum of a structure; axes are places in its tile.

    Attributes
    ----------
    moves: the axes of the tile that it moves with.
    vector: whether the vector axis is one of them.
    item: bytes of an element.
    apart: of those in `moves` that are no reductions, bytes of lines from one place to the next.
    taps: iterations of the reductions that it moves with.
    tap_lines: cache lines that these touch.
    kept: whether neighbours in the tile read the same elements in other taps, which the compiler
        keeps in vector registers.
    """

    moves: tuple[int, ...]
    vector: bool
    item: int
    apart: tuple[tuple[int, int], ...]
    taps: int
    tap_lines: int
    kept: bool

    def places(self, tiles: _Tiles) -> _Numbers:
        """Places of each tile that it moves with, along the vector axis too."""
        return _product(tiles, self.moves)

    def near_bytes(self, tiles: _Tiles) -> _Numbers:
        """Bytes that all steps of a tile read: elements of vectors, lines of others."""
        axes, each = [a for a, _ in self.apart], [size for _, size in self.apart]
        if self.vector:
            return _product(tiles, axes) * self.taps * self.item
        lines = -(-tiles[:, axes] * np.array(each, np.int64) // LINE)
        return _product(lines, range(len(axes))) * self.tap_lines * LINE


@dataclass(frozen=True)
class _Judge:
    """Judge of the tiles of a structure: what their scores have in common.

    Attributes
    ----------
    lanes, registers: of a vector, and vector registers.
    near: bytes of the nearest cache that a tile may fill.
    axes: the extents of the tile's axes, and whether they are reductions.
    sums: whether it reduces.
    work: operations of a step on each vector, those that are one with a sum's not counted.
    slides: whether a window slides along the tile; `window`: its taps, 1 without one.
    operands: what it sums up.
    sparse: for every operand that does not stay in the second-level cache and of which a step
        reads single elements, each from a cache line of its own: the axes that it moves with.
    """

    lanes: int
    registers: int
    near: int
    axes: tuple[tuple[int, bool], ...]
    sums: bool
    work: float
    slides: bool
    window: int
    operands: tuple[_Operand, ...]
    sparse: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(sketch: NestSketch, context: NestContext) -> _Judge:
        """The judge of a structure's tiles."""
        nest, target = sketch.nest, context.target
        slides = sliding(nest, sketch.vector, sketch.tiled)[-1:]
        reads = dict.fromkeys(r for r, _ in predicated_reads(nest.body))
        return _Judge(
            context.lanes(nest),
            target.vector_registers,
            target.l1_bytes * 7 // 8,
            tuple((extent(axis), axis in nest.reduce) for axis in sketch.tile),
            nest.reducer is not None,
            max(1.0, operations(nest.body)),
            bool(slides),
            math.prod(extent(k) for k in slides),
            tuple(_operand(sketch, read) for read in reads),
            tuple(_sparse(sketch, context)),
        )

    def scores(self, tiles: _Tiles) -> _Numbers:
        """The share of the peak that each register tile may reach: as many multiply-adds as loads
        can start at once, enough accumulators hide the latency, and what tiles compute twice is
        lost."""
        width, rows = tiles[:, -1], _product(tiles, range(tiles.shape[1] - 1))
        columns = -(-width // self.lanes)
        vectors = rows * columns
        useful = np.minimum(1.0, width / self.lanes)
        for (size, reduced), step in zip(self.axes, tiles.T, strict=True):
            whole, rest = np.divmod(size, step)
            if reduced:  # what is left of it is added element by element
                useful *= size / (whole * step + rest * self.lanes)
            else:
                useful *= size / (-(-size // step) * step)
        if not self.sums:
            return useful * (0.9 + 0.025 * np.minimum(columns, 4))
        if self.slides:
            # Beside the accumulators, the rows of one window and its weights are at hand.
            at_hand = sum(self.window * (columns if x.vector else 1) for x in self.operands)
            useful[vectors + at_hand > self.registers] *= 0.5
        kept = sum((x.places(tiles) for x in self.operands if x.kept), np.zeros_like(rows))
        few = kept <= self.registers // 4  # which are no matter
        useful[~few & (vectors + columns + kept > self.registers)] *= 0.5
        useful -= 0.01 * sum(_product(tiles, moves) for moves in self.sparse)
        loads = self._loads(tiles, columns) if tiles.shape[1] > 2 else columns + rows
        per_load = vectors / loads
        share = np.minimum(1.0, vectors / CPU.accumulators_in_flight) * np.minimum(1.0, per_load)
        far = self._far_bytes(tiles)
        fed = vectors * self.work / 2 * CPU.l2_bytes_per_cycle / np.maximum(far, 1)
        share = np.where(far > 0, np.minimum(share, fed), share)
        scores: _Numbers = useful * share + 0.05 * np.minimum(per_load, 2.0)
        return scores

    def _far_bytes(self, tiles: _Tiles) -> _Numbers:
        """Bytes of the vector operands that a step of a register tile reads from beyond the
        nearest cache, where all that a tile reads is too much for it."""
        near = sum(x.near_bytes(tiles) for x in self.operands) <= self.near
        return np.where(near, 0, tiles[:, -1] * sum(x.item for x in self.operands if x.vector))

    def _loads(self, tiles: _Tiles, columns: _Numbers) -> _Numbers:
        """Loads in one step of a register tile: of each operand a vector, or a single element, for
        every place of the tile that it moves with; of a sliding window one row for all of its
        taps."""
        total = np.zeros(len(tiles))
        for x in self.operands:
            places = _product(tiles, [a for a in x.moves if a < tiles.shape[1] - 1])
            shared = (places + self.window - 1) / self.window * columns
            total += shared if x.vector else places
        return total


def _product(tiles: _Tiles, axes: Sequence[int]) -> _Numbers:
    """The product of each tile's sizes along some axes."""
    found: _Numbers = tiles[:, list(axes)].prod(1)
    return found


def _operand(sketch: NestSketch, read: Read) -> _Operand:
    nest, used, item = sketch.nest, indices(read), item_bytes(read.dtype)

    def apart(axis: Index) -> int:
        step = stride(read.tensor, read.index, axis)
        return LINE if step is None else min(abs(step) * item, LINE)

    taps = [k for k in nest.reduce if k in used]
    moves = tuple(a for a, axis in enumerate(sketch.tile) if axis in used)
    free = ((a, sketch.tile[a]) for a in moves if sketch.tile[a] not in nest.reduce)
    return _Operand(
        moves,
        sketch.vector in used,
        item,
        tuple((a, apart(axis)) for a, axis in free),
        math.prod(map(extent, taps)),
        math.prod(-(-extent(k) * apart(k) // LINE) for k in taps),
        _kept(sketch, read),
    )


def _kept(sketch: NestSketch, read: Read) -> bool:
    """Return whether several places of the tile read elements of an operand in other taps."""
    if not sketch.reduce or extent(sketch.reduce[-1]) > CPU.unroll_iterations:
        return False  # a loop that the compiler does not unroll
    tap = sketch.reduce[-1]
    steps = [dict(p.terms) for p in read.index if tap in p.indices()]
    near = any(
        0 < abs(step[a]) < extent(tap) * abs(step.get(tap, 0))
        for step in steps
        for a in set(sketch.tile) & step.keys()
    )
    return near and sketch.vector not in indices(read)


def _sparse(sketch: NestSketch, context: NestContext) -> Iterator[tuple[int, ...]]:
    """The axes that operands which do not stay in the second-level cache move with, single
    elements of which come from cache lines of their own: neighbours share one, and so do steps
    along a row."""
    for read in dict.fromkeys(sketch.nest.reads()):
        packed = any((p.tensor, p.index) == (read.tensor, read.index) for p in sketch.packed)
        large = touched(sketch.nest, read) > context.target.l2_bytes // 2
        near = any(stride(read.tensor, read.index, k) == 1 for k in sketch.nest.reduce)
        if not (packed or near or not large or sketch.vector in indices(read)):
            steps = [stride(read.tensor, read.index, a) for a in sketch.tiled]
            yield tuple(a for a, step in enumerate(steps) if step not in (0, 1))
