"""Lowering of tiled kernels: a block computes a tile of the result out of operands in shared
memory.

An axis of extent E has register tiles of R elements, T threads, and V places V·T·R apart (virtual
threads): a block has B = V·T·R elements of it, or all.

    for the blocks of all axes:                       block
      base = min(B·block, E - B)
      for the threads of all axes:                    thread
        own = min(R·thread, T·R - R)
        acc[V·R, …] = 0
        for chunk of the reduction:
          copy the operands' boxes to shared memory;  barrier
          for the steps of the chunk:
            registers = elements of the shared-memory tiles at own + T·R·v + r
            acc[v, r, …] ⊕= body                      unrolled
          barrier
        out[base + own + T·R·v + r, …] = epilogue(acc[v, r, …])

What the chunks leave of a reduction follows as a shorter chunk, in code of its own. "double" and
"async" pipelines load the next chunks while one is used (see `gpu_sketch.Tiled`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from loopwright.dsl.elements import COMBINE
from loopwright.dsl.expr import Binary, Expr, Read
from loopwright.dsl.index import Index
from loopwright.schedule.gpu.context import KernelLowering, accesses, extents_of, linear
from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.gpu.shared_tile import SharedTile
from loopwright.schedule.gpu.software_pipeline import SoftwarePipeline, Values
from loopwright.schedule.loops.statements import identity, wrapped
from loopwright.schedule.program.nest import extent, leaves
from loopwright.schedule.sketch.kernel import Tiled
from loopwright.schedule.tree import grammar as g

MOST_ACCUMULATORS = 128


@dataclass(frozen=True)
class Level:
    """The levels of one axis: R elements of a thread, V times, T threads."""

    axis: Index
    register: g.Column
    virtual: g.Column
    threads: g.Column

    @property
    def span(self) -> g.Column:
        """Elements from one virtual thread to the next."""
        return self.threads * self.register

    @property
    def block(self) -> g.Column:
        """Elements of a block."""
        return np.minimum(self.virtual * self.span, extent(self.axis))

    @property
    def blocks(self) -> g.Column:
        return g.ceildiv(extent(self.axis), self.virtual * self.span)


def levels(sketch: Tiled, values: Values) -> dict[Index, Level]:
    """The levels of every axis, virtual threads left out where they would leave the axis, or
    need more accumulators than there are registers."""
    tile, threads = values["tile"], values["threads"]
    virtual = values.get("virtual", (1,) * len(tile))
    many = math.prod((*tile, *virtual))
    fits = np.less_equal(many, MOST_ACCUMULATORS) * 1
    found = {axis: Level(axis, 1, 1, 1) for axis in sketch.axes}
    for axis, r, t, v in zip(sketch.tiled, tile, threads, virtual, strict=True):
        most = np.maximum(extent(axis) // (r * t), 1)
        found[axis] = Level(axis, r, np.minimum(np.maximum(v * fits, 1), most), t)
    return found


class TiledLowering(SoftwarePipeline):
    """Lowers a reduction whose operands are used again."""

    def __init__(self, sketch: Tiled, values: Values, kernel: KernelLowering) -> None:
        self.sketch, self.levels = sketch, levels(sketch, values)
        names = (sketch.chunked, *sketch.windows)
        super().__init__(sketch.nest, names, sketch.pipeline, values, kernel)
        self.own: dict[Index, g.Linear] = {}
        shape = tuple(self.levels[a].virtual * self.levels[a].register for a in self.sketch.tiled)
        self.acc = kernel.own("acc", shape, self.nest.result.dtype)

    def lower(self) -> list[g.Stmt]:
        """Blocks, threads, and what a thread does."""
        kernel = self.kernel
        blocks: list[tuple[g.Var, g.Column, str]] = []
        threads: list[tuple[g.Var, g.Column, str]] = []
        outer: list[g.Stmt] = []
        inner: list[g.Stmt] = []
        for axis, level in self.levels.items():
            block = kernel.var(f"{axis.name}.block", level.blocks)
            blocks.append((block, level.blocks, "block"))
            whole = level.virtual * level.span
            let, self.bases[axis] = kernel.let(
                f"{axis.name}.base", linear((block, whole)), extent(axis) - level.block
            )
            outer.append(let)
            if axis not in self.sketch.tiled:
                self.own[axis] = g.Linear()
                continue
            thread = kernel.var(f"{axis.name}.thread", level.threads)
            threads.append((thread, level.threads, "thread"))
            span: g.Column = np.minimum(level.span, extent(axis))
            let, self.own[axis] = kernel.let(
                f"{axis.name}.own", linear((thread, level.register)), span - level.register
            )
            inner.append(let)
            self.thread = self.thread * level.threads + linear((thread, 1))
            self.threads = self.threads * level.threads
        body = [*inner, *self._thread()]
        return wrapped([*outer, *wrapped(body, threads)], blocks)

    def _thread(self) -> list[g.Stmt]:
        start = identity(self.nest.reducer, self.acc.dtype)
        init = self._tile("init", self.sketch.tiled, lambda at, to: [g.Store(self.acc, to, start)])
        allocate = [g.Allocate(s.buffer) for s in self.shared_tiles.values()]
        return [g.Allocate(self.acc), *allocate, *init, *self.chunks(), *self._write()]

    # The reduction

    def shared_tiles_of(
        self, chunk: Mapping[Index, g.Column], kernel: KernelLowering
    ) -> dict[Read, SharedTile]:
        sizes = self.sizes_of(chunk)
        sources = {n.out: n for n in self.sketch.sources}
        return {
            r: SharedTile(
                kernel, r, self.nest, sizes, self.sketch.tiled, self.slots, sources.get(r.tensor)
            )
            for r in self.sketch.shared_reads
        }

    def sizes_of(self, chunk: Mapping[Index, g.Column]) -> dict[Index, g.Column]:
        return {**{a: level.block for a, level in self.levels.items()}, **chunk}

    def compute(
        self, chunk: Mapping[Index, g.Column], bases: Mapping[Index, g.Linear], slot: g.Linear
    ) -> list[g.Stmt]:
        """The steps of one chunk: operands into registers, and the updates."""
        loops: list[tuple[g.Var, g.Column, str]] = []
        inner: list[tuple[g.Var, g.Column, str]] = []
        steps: dict[Index, g.Linear] = {}
        (wanted,) = self.values["unroll"]
        size = chunk[self.sketch.chunked]
        factor = np.gcd(wanted, size)
        few = math.prod(extent(k) for k in self.sketch.windows) <= GPU.unrolled_window_steps
        for k in (self.sketch.chunked, *self.sketch.windows):
            if k == self.sketch.chunked:
                var = self.kernel.var(k.name, size // factor)
                within = self.kernel.var(f"{k.name}.in", factor)
                loops.append((var, size // factor, "serial"))
                inner.append((within, factor, "unrolled"))
                steps[k] = linear((var, factor), (within, 1))
            else:
                var = self.kernel.var(k.name, chunk[k])
                inner.append((var, chunk[k], "unrolled" if few else "serial"))
                steps[k] = linear((var, 1))
        stmts: list[g.Stmt] = []
        registers: dict[Read, tuple[g.Buffer, tuple[Index, ...]]] = {}
        for read, shared_tile in self.shared_tiles.items():
            registers[read] = self._registers(read)
            held, used = registers[read]
            stmts += [g.Allocate(held), *self._load(shared_tile, held, used, steps, slot)]
        stmts += self._update(registers, steps, bases)
        return wrapped(stmts, loops + inner)

    def _registers(self, read: Read) -> tuple[g.Buffer, tuple[Index, ...]]:
        touched = {i for p in read.index for i in p.indices()}
        used = tuple(a for a in self.sketch.tiled if a in touched)
        shape = tuple(self.levels[a].virtual * self.levels[a].register for a in used)
        return self.kernel.own("own", shape or (1,), read.dtype), used

    def _load(
        self,
        shared_tile: SharedTile,
        held: g.Buffer,
        used: tuple[Index, ...],
        steps: Mapping[Index, g.Linear],
        slot: g.Linear,
    ) -> list[g.Stmt]:
        """The elements of a shared-memory tile that this thread needs, in vectors."""

        def load(at: Mapping[Index, g.Linear], to: tuple[g.Linear, ...]) -> list[g.Stmt]:
            place = shared_tile.place({**self._own(at), **steps}, slot)
            return [g.Store(held, to or (g.Linear(),), g.Load(shared_tile.buffer, place))]

        lanes: g.Column | None = None
        if used:
            fast = self.levels[used[-1]]
            start = self._own({a: self._virtual(a) for a in used})
            step = _slope(shared_tile, used[-1])
            lanes = 1
            if step == 1:
                place = shared_tile.place({**start, **steps}, slot)
                known = self.kernel.analysis.step(g.flat(shared_tile.buffer, place))
                lanes = np.gcd(np.gcd(fast.register, min(shared_tile.aligned, 8)), known)
        return self._tile("load", used, load, lanes)

    def _virtual(self, axis: Index) -> g.Linear:
        level = self.levels[axis]
        return linear((self.kernel.var("any", level.virtual), level.span))

    def _own(self, at: Mapping[Index, g.Linear]) -> dict[Index, g.Linear]:
        """Places within the block."""
        return {a: self.own[a] + at[a] if a in at else self.own[a] for a in self.levels}

    def _update(
        self,
        registers: Mapping[Read, tuple[g.Buffer, tuple[Index, ...]]],
        steps: Mapping[Index, g.Linear],
        bases: Mapping[Index, g.Linear],
    ) -> list[g.Stmt]:
        nest, tiled = self.nest, self.sketch.tiled
        extents = extents_of(nest, {})
        combine = COMBINE[nest.reducer or "sum"]

        def update(at: Mapping[Index, g.Linear], to: tuple[g.Linear, ...]) -> list[g.Stmt]:
            def held(read: Read) -> Expr | None:
                if read not in registers:
                    return None
                buffer, used = registers[read]
                where = tuple(to[tiled.index(a)] for a in used)
                return g.Load(buffer, where or (g.Linear(),))

            place = self._absolute(at)
            place |= {k: bases[k] + steps[k] for k in nest.reduce}
            value = self.kernel.value(nest.body, place, extents, held)
            return [g.Store(self.acc, to, Binary(combine, g.Load(self.acc, to), value))]

        return self._tile("at", tiled, update)

    def _absolute(self, at: Mapping[Index, g.Linear]) -> dict[Index, g.Linear]:
        return {a: self.bases[a] + own for a, own in self._own(at).items()}

    # The result

    def _write(self) -> list[g.Stmt]:
        nest, fast = self.nest, self.sketch.tiled[-1]
        extents = extents_of(nest, {})

        def write(at: Mapping[Index, g.Linear], to: tuple[g.Linear, ...]) -> list[g.Stmt]:
            return [self.kernel.finish(nest, self._absolute(at), extents, g.Load(self.acc, to))]

        touched = [(nest.out, nest.index), *accesses(nest, nest.epilogue)]
        lanes: g.Column = 1
        if not any(leaves(Read(t, i), extents) for t, i in touched):
            start = self._absolute({a: self._virtual(a) for a in self.sketch.tiled})
            register = self.levels[fast].register
            others = {
                a: start[a] + linear((self.kernel.var("any", self.levels[a].register), 1))
                for a in self.sketch.tiled
                if a != fast
            }
            lanes = self.kernel.lanes(register, touched, fast, {**start, **others})
        return self._tile("out", self.sketch.tiled, write, lanes)

    def _tile(
        self,
        name: str,
        axes: tuple[Index, ...],
        make: Callable[[Mapping[Index, g.Linear], tuple[g.Linear, ...]], list[g.Stmt]],
        lanes: g.Column | None = None,
    ) -> list[g.Stmt]:
        """Unrolled loops over a thread's elements along some axes: how far each is from the
        thread's first one, and its number; with `lanes`, the innermost loop is in vectors."""
        loops: list[tuple[g.Var, g.Column, str]] = []
        at: dict[Index, g.Linear] = {}
        to: list[g.Linear] = []
        for axis in axes:
            level = self.levels[axis]
            v = self.kernel.var(f"{axis.name}.{name}v", level.virtual)
            loops.append((v, level.virtual, "unrolled"))
            count = 1 if lanes is None or axis != axes[-1] else lanes
            r = self.kernel.var(f"{axis.name}.{name}", level.register // count)
            loops.append((r, level.register // count, "unrolled"))
            inside = linear((r, count))
            if lanes is not None and axis == axes[-1]:
                lane = self.kernel.var(f"{axis.name}.{name}lane", lanes)
                loops.append((lane, lanes, "vectorized"))
                inside = linear((r, lanes), (lane, 1))
            at[axis] = linear((v, level.span)) + inside
            to.append(linear((v, level.register)) + inside)
        return wrapped(make(at, tuple(to)), loops)


def _slope(shared_tile: SharedTile, axis: Index) -> int:
    """Elements of a shared-memory tile's rows by which one step along an axis moves; 0 if it moves
    along other axes too."""
    last = shared_tile.order[-1]
    slope = 0
    for d, subscript in enumerate(shared_tile.axes):
        for index, coefficient in subscript.terms:
            if index == axis:
                slope = coefficient if d == last else 0
    return slope
