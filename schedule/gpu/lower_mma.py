"""Lowering of matrix kernels: tiled matrix products on tensor cores.

A block has Wm × Wn warps, and each warp Fm × Fn accumulators of 16×16 elements. The factors are
copied to shared memory as they lie in memory: rows or columns of either are contiguous. There rows
are padded by 16 bytes, so that the lanes of a warp read from different banks.

    acc[Fm, Fn] = 0
    for chunk of k:
      copy both factors' tiles to shared memory;  barrier
      for step of 16 in the chunk:
        left[Fm], right[Fn] = tiles of the shared-memory tiles
        acc[f, g] += left[f] · right[g]
    results go through shared memory, one row of tiles at a time, so that the epilogue is computed
    on elements and whole lines are written

What a chunk leaves of k is filled up to 16 with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Read
from loopwright.dsl.index import Index
from loopwright.schedule.gpu.context import KernelLowering, accesses, extents_of, linear
from loopwright.schedule.gpu.shared_tile import SharedTile
from loopwright.schedule.gpu.software_pipeline import SoftwarePipeline, Values
from loopwright.schedule.loops.statements import wrapped
from loopwright.schedule.program.nest import extent, leaves
from loopwright.schedule.sketch.kernel import Mma
from loopwright.schedule.tree.grammar import (
    MATRIX,
    Allocate,
    Barrier,
    Buffer,
    Column,
    Linear,
    Load,
    MatrixFill,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    Stmt,
    Var,
    ceildiv,
)

_PAD = 4  # elements of float32 between the rows of the results on their way


class MmaLowering(SoftwarePipeline):
    """Lowers a product of matrices in float16 or bfloat16."""

    least: Column = MATRIX

    def __init__(self, sketch: Mma, values: Values, kernel: KernelLowering) -> None:
        self.sketch = sketch
        wm, wn, fm, fn = values["tile"]
        self.warps: dict[Index, Column] = {sketch.m: wm, sketch.n: wn}
        self.tiles: dict[Index, Column] = {sketch.m: fm, sketch.n: fn}
        super().__init__(sketch.nest, (sketch.k,), sketch.pipeline, values, kernel)
        self.own: dict[Index, Linear] = {}
        self.warp: dict[Index, Linear] = {}
        dtype = sketch.left.dtype
        self.left = self._fragments("left", (fm,), dtype, "matrix_a")
        self.right = self._fragments("right", (fn,), dtype, "matrix_b")
        self.acc = self._fragments("acc", (fm, fn), "float32", "accumulator")

    def _fragments(self, name: str, shape: tuple[Column, ...], dtype: str, scope: str) -> Buffer:
        return self.kernel.own(name, (*shape, MATRIX, MATRIX), dtype, scope)

    def _block(self, axis: Index) -> Column:
        if axis not in self.warps:
            return 1
        return self.warps[axis] * self.tiles[axis] * MATRIX

    def sizes_of(self, chunk: Mapping[Index, Column]) -> dict[Index, Column]:
        """A tile of the block along m and n, one element along every other axis."""
        return {**{a: self._block(a) for a in self.nest.axes}, **chunk}

    def shared_tiles_of(
        self, chunk: Mapping[Index, Column], kernel: KernelLowering
    ) -> dict[Read, SharedTile]:
        """Both factors, as they lie in memory."""
        sizes = self.sizes_of(chunk)
        reads = (self.sketch.left, self.sketch.right)
        return {
            r: SharedTile(kernel, r, self.nest, sizes, (), self.slots, None, True) for r in reads
        }

    def spare(self) -> Column:
        """Shared bytes of the results on their way."""
        rows = self.warps[self.sketch.m] * self.warps[self.sketch.n] * MATRIX
        return rows * (self.tiles[self.sketch.n] * MATRIX + _PAD) * item_bytes("float32")

    def lower(self) -> list[Stmt]:
        """Blocks, warps and lanes, and what a warp does."""
        kernel, sketch = self.kernel, self.sketch
        blocks: list[tuple[Var, Column, str]] = []
        outer: list[Stmt] = []
        for axis in self.nest.axes:
            size = self._block(axis)
            count = ceildiv(extent(axis), size)
            block = kernel.var(f"{axis.name}.block", count)
            blocks.append((block, count, "block"))
            let, self.bases[axis] = kernel.let(
                f"{axis.name}.base", linear((block, size)), extent(axis) - size
            )
            outer.append(let)
        threads: list[tuple[Var, Column, str]] = []
        for axis in (sketch.m, sketch.n):
            warp = kernel.var(f"{axis.name}.warp", self.warps[axis])
            threads.append((warp, self.warps[axis], "thread"))
            self.warp[axis] = linear((warp, 1))
            self.own[axis] = self.warp[axis] * (self.tiles[axis] * MATRIX)
            self.thread = self.thread * self.warps[axis] + self.warp[axis]
        width = kernel.gpu.warp
        lane = kernel.var("lane", width)
        threads.append((lane, width, "thread"))
        self.lane = linear((lane, 1))
        self.thread = self.thread * width + self.lane
        self.threads = self.warps[sketch.m] * self.warps[sketch.n] * width
        return wrapped([*outer, *wrapped(self._warp(), threads)], blocks)

    def _warp(self) -> list[Stmt]:
        buffers = [self.acc, *(shared_tile.buffer for shared_tile in self.shared_tiles.values())]
        init = self._each("init", lambda f, g: [MatrixFill(self.acc, (f, g), 0.0)])
        return [*map(Allocate, buffers), *init, *self.chunks(), *self._results()]

    def _each(self, name: str, make: Callable[[Linear, Linear], list[Stmt]]) -> list[Stmt]:
        """Unrolled loops over a warp's accumulators."""
        loops = []
        for axis in (self.sketch.m, self.sketch.n):
            var = self.kernel.var(f"{axis.name}.{name}", self.tiles[axis])
            loops.append((var, self.tiles[axis], "unrolled"))
        (f, _, _), (g, _, _) = loops
        return wrapped(make(linear((f, 1)), linear((g, 1))), loops)

    def compute(
        self, chunk: Mapping[Index, Column], bases: Mapping[Index, Linear], slot: Linear
    ) -> list[Stmt]:
        """The steps of one chunk: tiles of both factors, and their products."""
        m, n, k = self.sketch.m, self.sketch.n, self.sketch.k
        steps = chunk[k] // MATRIX
        step = self.kernel.var(f"{k.name}.step", steps)
        at = {k: linear((step, MATRIX))}
        body: list[Stmt] = [Allocate(self.left), Allocate(self.right)]
        for read, tile, rows, columns in (
            (self.sketch.left, self.left, m, k),
            (self.sketch.right, self.right, k, n),
        ):
            axis = m if rows == m else n
            shared_tile = self.shared_tiles[read]
            f = self.kernel.var(f"{axis.name}.load", self.tiles[axis])
            place = {**at, axis: self.own[axis] + linear((f, MATRIX))}
            load = MatrixLoad(
                tile,
                (linear((f, 1)),),
                shared_tile.buffer,
                shared_tile.place(place, slot),
                shared_tile.axis_of(rows),
                shared_tile.axis_of(columns),
            )
            body += wrapped([load], [(f, self.tiles[axis], "unrolled")])
        body += self._each(
            "at",
            lambda f, g: [MatrixMultiply(self.acc, (f, g), self.left, (f,), self.right, (g,))],
        )
        return wrapped(body, [(step, steps, "unrolled")])

    def _results(self) -> list[Stmt]:
        """A row of tiles at a time: to shared memory, and from there, finished, to the result."""
        kernel, (m, n) = self.kernel, (self.sketch.m, self.sketch.n)
        width = self.tiles[n] * MATRIX
        shape = (self.warps[m], self.warps[n], MATRIX, width + _PAD)
        moved = kernel.own("moved", shape, "float32", "shared")
        mine = (self.warp[m], self.warp[n])
        row = kernel.var(f"{m.name}.row", self.tiles[m])
        g = kernel.var(f"{n.name}.tile", self.tiles[n])
        store = MatrixStore(
            moved,
            (*mine, Linear(), linear((g, MATRIX))),
            2,
            3,
            self.acc,
            (linear((row, 1)), linear((g, 1))),
        )
        body = [
            *wrapped([store], [(g, self.tiles[n], "unrolled")]),
            Barrier(),
            *self._elements(moved, mine, linear((row, MATRIX)), width),
            Barrier(),
        ]
        return [Allocate(moved), *wrapped(body, [(row, self.tiles[m], "unrolled")])]

    def _elements(
        self, moved: Buffer, mine: tuple[Linear, ...], down: Linear, width: Column
    ) -> list[Stmt]:
        """Each lane finishes and writes vectors of a row of tiles."""
        kernel, nest, (m, n) = self.kernel, self.nest, (self.sketch.m, self.sketch.n)
        start = {**self.bases, m: self.bases[m] + self.own[m] + down}
        start[n] = self.bases[n] + self.own[n]
        extents = extents_of(nest, {})
        touched = [(nest.out, nest.index), *accesses(nest, nest.epilogue)]
        lanes: Column = 1
        if not any(leaves(Read(t, i), extents) for t, i in touched):
            any_row = linear((kernel.var("any", MATRIX), 1))
            place = {**start, m: start[m] + any_row}
            lanes = kernel.lanes(MATRIX, touched, n, place, 4)
        total = MATRIX * (width // lanes)
        rounds = ceildiv(total, kernel.gpu.warp)
        this_round = kernel.var("turn", rounds)
        clip, element = kernel.let(
            "element", linear((this_round, kernel.gpu.warp)) + self.lane, total - 1
        )
        lets, (r, c) = kernel.decode(element, [("r", MATRIX), ("c", width // lanes)])
        lane = kernel.var("vector", lanes)
        column = c * lanes + linear((lane, 1))
        at = {**start, m: start[m] + r, n: start[n] + column}
        write = kernel.finish(nest, at, extents, Load(moved, (*mine, r, column)))
        body: list[Stmt] = [clip, *lets, *wrapped([write], [(lane, lanes, "vectorized")])]
        return wrapped(body, [(this_round, rounds, "unrolled")])
