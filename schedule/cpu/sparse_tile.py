"""Register tiles of sums that leave out steps in which a factor is 0 (`sparsity`).

A step is left out where that factor is 0 for every row of the tile, so tiles have one row or a
few; with one, each multiply-add loads its weights, and a block of them must stay in the
first-level cache. No element may be in two tiles: sums begin with what an earlier block came to.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.program.footprint import NestContext
from loopwright.schedule.program.nest import extent
from loopwright.schedule.sketch.sketch import Choice, NestSketch


def sparse_tiles(sketch: NestSketch, context: NestContext) -> Iterator[Choice]:
    """Tiles that fit the registers, and whose weights fit the nearest cache."""
    nest, target, lanes = sketch.nest, context.target, context.lanes(sketch.nest)
    assert sketch.vector is not None
    near = (
        CPU.sparse_block_l1_share
        * target.l1_bytes
        / (_depth(sketch) * lanes * item_bytes(nest.result.dtype))
    )
    most = (
        max(near, 1) if sketch.tiled else CPU.sparse_row_vectors
    )  # what one row uses need not stay there
    spans = [
        [n for n in range(1, CPU.sparse_tile_rows + 1) if extent(a) % n == 0] for a in sketch.tiled
    ]
    counts = [
        c for c in range(1, CPU.sparse_row_vectors + 1) if extent(sketch.vector) % (c * lanes) == 0
    ]
    for sizes in itertools.product(*spans):
        rows = math.prod(sizes)
        for count in counts:
            used = rows * count + (count if rows > 1 else 0) + 1
            if rows <= CPU.sparse_tile_rows and used <= target.vector_registers and count <= most:
                yield (*sizes, count * lanes)


def sparse_score(tile: Choice, sketch: NestSketch, context: NestContext) -> float:
    """The share of the peak that a tile may reach, where half of the elements are 0, be it where
    it may: multiply-adds or loads, two a cycle, and for each block of weights the loads and stores
    of the sums."""
    *sizes, width = tile
    rows, columns = math.prod(sizes), width // context.lanes(sketch.nest)
    steps = _depth(sketch) * (1 - CPU.relu_zeros**rows)
    loads = columns + rows
    step = max(rows * columns, loads) / 2 / min(1.0, rows * columns / CPU.sparse_accumulators)
    cycles = (
        steps * step + CPU.sparse_switch_cycles + (1.5 * rows * columns if sketch.tiled else 0)
    )
    share = _depth(sketch) * rows * columns / 2 / cycles
    if sketch.tiled:
        return share
    assert sketch.vector is not None
    tiles, threads = extent(sketch.vector) // width, context.target.threads
    return share * tiles / (-(-tiles // threads) * threads)


def _depth(sketch: NestSketch) -> int:
    """Depth of a block of steps that has a bit for each."""
    return extent(sketch.reduce[-1])
