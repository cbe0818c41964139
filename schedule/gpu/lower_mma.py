"""Lowering of matrix kernels: tiled matrix products on tensor cores.

A block has Wm × Wn warps, and each warp Fm × Fn accumulators of 16×16 elements. The factors are
copied to shared memory as they lie in memory: rows or columns of either are contiguous. There rows
are padded by 16 bytes, so that the lanes of a warp read from different banks.

    acc[Fm, Fn] = 0
    for chunk of k:
      copy both factors' tiles to shared memory;  barrier
      for step of 16 in the chunk:
        left[Fm], right[Fn] = tiles of the shared-memory tiles
        acc[i, j] += left[i] · right[j]
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
from loopwright.schedule.tree import grammar as g

_PAD = 4  # elements of float32 between the rows of the results on their way


class MmaLowering(SoftwarePipeline):
    """Lowers a product of matrices in float16 or bfloat16."""

    least: g.Column = g.MATRIX

    def __init__(self, sketch: Mma, values: Values, kernel: KernelLowering) -> None:
        self.sketch = sketch
        wm, wn, fm, fn = values["tile"]
        self.warps: dict[Index, g.Column] = {sketch.m: wm, sketch.n: wn}
        self.tiles: dict[Index, g.Column] = {sketch.m: fm, sketch.n: fn}
        super().__init__(sketch.nest, (sketch.k,), sketch.pipeline, values, kernel)
        self.own: dict[Index, g.Linear] = {}
        self.warp: dict[Index, g.Linear] = {}
        dtype = sketch.left.dtype
        self.left = self._fragments("left", (fm,), dtype, "matrix_a")
        self.right = self._fragments("right", (fn,), dtype, "matrix_b")
        self.acc = self._fragments("acc", (fm, fn), "float32", "accumulator")

    def _fragments(
        self, name: str, shape: tuple[g.Column, ...], dtype: str, scope: str
    ) -> g.Buffer:
        return self.kernel.own(name, (*shape, g.MATRIX, g.MATRIX), dtype, scope)

    def _block(self, axis: Index) -> g.Column:
        if axis not in self.warps:
            return 1
        return self.warps[axis] * self.tiles[axis] * g.MATRIX

    def sizes_of(self, chunk: Mapping[Index, g.Column]) -> dict[Index, g.Column]:
        """A tile of the block along m and n, one element along every other axis."""
        return {**{a: self._block(a) for a in self.nest.axes}, **chunk}

    def shared_tiles_of(
        self, chunk: Mapping[Index, g.Column], kernel: KernelLowering
    ) -> dict[Read, SharedTile]:
        """Both factors, as they lie in memory."""
        sizes = self.sizes_of(chunk)
        reads = (self.sketch.left, self.sketch.right)
        return {
            r: SharedTile(kernel, r, self.nest, sizes, (), self.slots, None, True) for r in reads
        }

    def spare(self) -> g.Column:
        """Shared bytes of the results on their way."""
        rows = self.warps[self.sketch.m] * self.warps[self.sketch.n] * g.MATRIX
        return rows * (self.tiles[self.sketch.n] * g.MATRIX + _PAD) * item_bytes("float32")

    def lower(self) -> list[g.Stmt]:
        """Blocks, warps and lanes, and what a warp does."""
        kernel, sketch = self.kernel, self.sketch
        blocks: list[tuple[g.Var, g.Column, str]] = []
        outer: list[g.Stmt] = []
        for axis in self.nest.axes:
            size = self._block(axis)
            count = g.ceildiv(extent(axis), size)
            block = kernel.var(f"{axis.name}.block", count)
            blocks.append((block, count, "block"))
            let, self.bases[axis] = kernel.let(
                f"{axis.name}.base", linear((block, size)), extent(axis) - size
            )
            outer.append(let)
        threads: list[tuple[g.Var, g.Column, str]] = []
        for axis in (sketch.m, sketch.n):
            warp = kernel.var(f"{axis.name}.warp", self.warps[axis])
            threads.append((warp, self.warps[axis], "thread"))
            self.warp[axis] = linear((warp, 1))
            self.own[axis] = self.warp[axis] * (self.tiles[axis] * g.MATRIX)
            self.thread = self.thread * self.warps[axis] + self.warp[axis]
        width = kernel.gpu.warp
        lane = kernel.var("lane", width)
        threads.append((lane, width, "thread"))
        self.lane = linear((lane, 1))
        self.thread = self.thread * width + self.lane
        self.threads = self.warps[sketch.m] * self.warps[sketch.n] * width
        return wrapped([*outer, *wrapped(self._warp(), threads)], blocks)

    def _warp(self) -> list[g.Stmt]:
        buffers = [self.acc, *(shared_tile.buffer for shared_tile in self.shared_tiles.values())]
        init = self._each("init", lambda i, j: [g.MatrixFill(self.acc, (i, j), 0.0)])
        return [*map(g.Allocate, buffers), *init, *self.chunks(), *self._results()]

    def _each(self, name: str, make: Callable[[g.Linear, g.Linear], list[g.Stmt]]) -> list[g.Stmt]:
        """Unrolled loops over a warp's accumulators."""
        loops = []
        for axis in (self.sketch.m, self.sketch.n):
            var = self.kernel.var(f"{axis.name}.{name}", self.tiles[axis])
            loops.append((var, self.tiles[axis], "unrolled"))
        (i, _, _), (j, _, _) = loops
        return wrapped(make(linear((i, 1)), linear((j, 1))), loops)

    def compute(
        self, chunk: Mapping[Index, g.Column], bases: Mapping[Index, g.Linear], slot: g.Linear
    ) -> list[g.Stmt]:
        """The steps of one chunk: tiles of both factors, and their products."""
        m, n, k = self.sketch.m, self.sketch.n, self.sketch.k
        steps = chunk[k] // g.MATRIX
        step = self.kernel.var(f"{k.name}.step", steps)
        at = {k: linear((step, g.MATRIX))}
        body: list[g.Stmt] = [g.Allocate(self.left), g.Allocate(self.right)]
        for read, tile, rows, columns in (
            (self.sketch.left, self.left, m, k),
            (self.sketch.right, self.right, k, n),
        ):
            axis = m if rows == m else n
            shared_tile = self.shared_tiles[read]
            f = self.kernel.var(f"{axis.name}.load", self.tiles[axis])
            place = {**at, axis: self.own[axis] + linear((f, g.MATRIX))}
            load = g.MatrixLoad(
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
            lambda i, j: [g.MatrixMultiply(self.acc, (i, j), self.left, (i,), self.right, (j,))],
        )
        return wrapped(body, [(step, steps, "unrolled")])

    def _results(self) -> list[g.Stmt]:
        """A row of tiles at a time: to shared memory, and from there, finished, to the result."""
        kernel, (m, n) = self.kernel, (self.sketch.m, self.sketch.n)
        width = self.tiles[n] * g.MATRIX
        shape = (self.warps[m], self.warps[n], g.MATRIX, width + _PAD)
        moved = kernel.own("moved", shape, "float32", "shared")
        mine = (self.warp[m], self.warp[n])
        row = kernel.var(f"{m.name}.row", self.tiles[m])
        tile = kernel.var(f"{n.name}.tile", self.tiles[n])
        store = g.MatrixStore(
            moved,
            (*mine, g.Linear(), linear((tile, g.MATRIX))),
            2,
            3,
            self.acc,
            (linear((row, 1)), linear((tile, 1))),
        )
        body = [
            *wrapped([store], [(tile, self.tiles[n], "unrolled")]),
            g.Barrier(),
            *self._elements(moved, mine, linear((row, g.MATRIX)), width),
            g.Barrier(),
        ]
        return [g.Allocate(moved), *wrapped(body, [(row, self.tiles[m], "unrolled")])]

    def _elements(
        self, moved: g.Buffer, mine: tuple[g.Linear, ...], down: g.Linear, width: g.Column
    ) -> list[g.Stmt]:
        """Each lane finishes and writes vectors of a row of tiles."""
        kernel, nest, (m, n) = self.kernel, self.nest, (self.sketch.m, self.sketch.n)
        start = {**self.bases, m: self.bases[m] + self.own[m] + down}
        start[n] = self.bases[n] + self.own[n]
        extents = extents_of(nest, {})
        touched = [(nest.out, nest.index), *accesses(nest, nest.epilogue)]
        lanes: g.Column = 1
        if not any(leaves(Read(t, i), extents) for t, i in touched):
            any_row = linear((kernel.var("any", g.MATRIX), 1))
            place = {**start, m: start[m] + any_row}
            lanes = kernel.lanes(g.MATRIX, touched, n, place, 4)
        total = g.MATRIX * (width // lanes)
        rounds = g.ceildiv(total, kernel.gpu.warp)
        this_round = kernel.var("turn", rounds)
        clip, element = kernel.let(
            "element", linear((this_round, kernel.gpu.warp)) + self.lane, total - 1
        )
        lets, (r, c) = kernel.decode(element, [("r", g.MATRIX), ("c", width // lanes)])
        lane = kernel.var("vector", lanes)
        column = c * lanes + linear((lane, 1))
        at = {**start, m: start[m] + r, n: start[n] + column}
        write = kernel.finish(nest, at, extents, g.Load(moved, (*mine, r, column)))
        body: list[g.Stmt] = [clip, *lets, *wrapped([write], [(lane, lanes, "vectorized")])]
        return wrapped(body, [(this_round, rounds, "unrolled")])
