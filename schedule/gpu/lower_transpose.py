"""Lowering of transpose kernels: element-wise nests that read along one axis and write along
another.

A block copies a tile of each operand that lies the other way into shared memory, in the order in
which memory holds it; then its threads compute the tile's elements in the order of the result. So
both sides of a transposition move whole lines.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loopwright.dsl.expr import Expr, IndexValue, Read
from loopwright.dsl.index import Index
from loopwright.dsl.traversal import walk
from loopwright.schedule.gpu.context import KernelLowering, accesses, extents_of, linear
from loopwright.schedule.gpu.shared_tile import SharedTile
from loopwright.schedule.gpu.software_pipeline import Values
from loopwright.schedule.loops.statements import wrapped
from loopwright.schedule.program.nest import extent, leaves
from loopwright.schedule.sketch.kernel import Transpose
from loopwright.schedule.tree import grammar as g


def lower_transpose(sketch: Transpose, values: Values, kernel: KernelLowering) -> list[g.Stmt]:
    """The kernel of an element-wise nest."""
    nest, (slow, fast) = sketch.nest, sketch.tiled
    (threads,) = values["threads"]
    sizes: dict[Index, g.Column] = dict.fromkeys(nest.axes, 1)
    for axis, size in zip(sketch.tiled, values["tile"], strict=True):
        sizes[axis] = np.minimum(size, extent(axis))
    blocks: list[tuple[g.Var, g.Column, str]] = []
    bases: dict[Index, g.Linear] = {}
    outer: list[g.Stmt] = []
    for axis in nest.axes:
        count = g.ceildiv(extent(axis), sizes[axis])
        block = kernel.var(f"{axis.name}.block", count)
        blocks.append((block, count, "block"))
        limit = extent(axis) - sizes[axis]
        let, bases[axis] = kernel.let(f"{axis.name}.base", linear((block, sizes[axis])), limit)
        outer.append(let)
    thread = kernel.var("thread", threads)
    mine = linear((thread, 1))
    shared_tiles = {
        r: SharedTile(kernel, r, nest, sizes, sketch.tiled, 1, None) for r in sketch.shared_reads
    }
    body: list[g.Stmt] = []
    for shared_tile in shared_tiles.values():
        body += [
            g.Allocate(shared_tile.buffer),
            *shared_tile.copy(sizes, bases, (mine, threads), g.Linear()),
        ]
    width = _width(sketch, kernel, bases, sizes, shared_tiles)
    counts = [(f"{slow.name}.at", sizes[slow]), (f"{fast.name}.at", sizes[fast] // width)]
    total = sizes[slow] * (sizes[fast] // width)
    rounds = g.ceildiv(total, threads)
    this_round = kernel.var("turn", rounds)
    clip, number = kernel.let("element", linear((this_round, threads)) + mine, total - 1)
    lets, (down, across) = kernel.decode(number, counts)
    lane = kernel.var("lane", width)
    local = {slow: down, fast: across * width + linear((lane, 1))}
    at = {axis: base + local.get(axis, g.Linear()) for axis, base in bases.items()}

    def held(read: Read) -> Expr | None:
        shared_tile = shared_tiles.get(read)
        return (
            None
            if shared_tile is None
            else g.Load(shared_tile.buffer, shared_tile.place(local, g.Linear()))
        )

    value = kernel.value(nest.body, at, extents_of(nest, {}), held)
    write = kernel.store(nest.out, nest.index, at, value)
    element = [clip, *lets, *wrapped([write], [(lane, width, "vectorized")])]
    body += [g.Barrier(), *wrapped(element, [(this_round, rounds, "unrolled")])]
    return wrapped([*outer, *wrapped(body, [(thread, threads, "thread")])], blocks)


def _width(
    sketch: Transpose,
    kernel: KernelLowering,
    bases: Mapping[Index, g.Linear],
    sizes: Mapping[Index, g.Column],
    shared_tiles: Mapping[Read, SharedTile],
) -> g.Column:
    """Neighbours along the result that are computed at once."""
    nest, (slow, fast) = sketch.nest, sketch.tiled
    others = [(t, i) for t, i in accesses(nest, nest.body) if Read(t, i) not in shared_tiles]
    extents = extents_of(nest, {})
    counts = any(isinstance(x, IndexValue) and fast in x.value.indices() for x in walk(nest.body))
    if counts or any(leaves(Read(t, i), extents) for t, i in others):
        return 1
    row = linear((kernel.var("any", sizes[slow]), 1))
    at = {**bases, slow: bases[slow] + row}
    width = kernel.lanes(sizes[fast], [(nest.out, nest.index), *others], fast, at, 4)
    for shared_tile in shared_tiles.values():
        place = shared_tile.place({slow: row, fast: g.Linear()}, g.Linear())
        width = np.gcd(width, kernel.analysis.step(g.flat(shared_tile.buffer, place)))
        width = np.gcd(width, shared_tile.aligned)
    return width
