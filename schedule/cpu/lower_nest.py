"""Lowering of one nest: register tiles, reductions, write-back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopwright.dsl.elements import COMBINE
from loopwright.dsl.expr import Binary, Cast, Const, Expr, IndexValue, Read, Select, Table
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.scans import Scan
from loopwright.dsl.traversal import rebuild
from loopwright.dsl.workload import tensor_bytes
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.cpu.lower_pack import lower_panel
from loopwright.schedule.cpu.lower_reduce import ReductionLoops, combined_lanes, reduction_loops
from loopwright.schedule.cpu.prefetch import prefetches
from loopwright.schedule.cpu.tile_loops import TileLoops
from loopwright.schedule.loops.statements import identity, to_linear, wrapped
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.nest import (
    extent,
    is_order,
    lanes,
    leaves,
    predicated_reads,
    stride,
    terms,
)
from loopwright.schedule.program.plan import Prefetch
from loopwright.schedule.sketch.sketch import NestSketch, Packed
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g


class NestLowering:
    """Lowers one nest for a batch of knob values.

    Inside the shared rows of a group (`rows` is not empty) nothing is parallel: the rows are.
    What their next iteration reads is `prefetch`.
    """

    def __init__(
        self,
        sketch: NestSketch,
        values: Mapping[str, tuple[g.Column, ...]],
        storage: Storage,
        part: str,
        target: Target,
        rows: Mapping[Index, g.Linear],
        number: int,
        prefetch: Sequence[Prefetch] = (),
    ) -> None:
        self.prefetch = prefetch
        self.sketch, self.nest, self.values = sketch, sketch.nest, values
        self.storage, self.part, self.rows, self.number = storage, part, rows, number
        self.target, self.tiles = target, TileLoops(sketch, values, target, rows, number)
        self.sizes, self.axes = self.tiles.sizes, self.tiles.levels
        self.var, self.place = self.tiles.var, self.tiles.place
        self.packed = {(p.tensor, p.index): p for p in sketch.packed}
        self.tests = itertools.count()
        self.extents = self.nest.extents | {row: extent(row) for row in rows}

    def lower(self) -> list[g.Stmt]:
        """Blocks, tiles of a block, and the register tile inside."""
        body = tuple(self._innermost())
        order = self.sketch.order
        for axis in reversed(order):
            for packed in self.sketch.packed:
                if packed.local and axis == max((packed.axis, *packed.outer), key=order.index):
                    buffer = self.storage.packed[packed, self.number]
                    source = self.storage.touch(packed.tensor, self.part)
                    body = (*lower_panel(packed, buffer, source, self.tiles), *body)
            body = self.tiles.around(axis, body)
        kind = "serial" if self.rows or self.part == "prepare" else "parallel"
        for axis in (a for a in reversed(self.nest.axes) if a in order):
            body = (g.Loop(self.axes[axis].block, self.axes[axis].blocks, kind, body),)
        return list(body)

    def _innermost(self) -> list[g.Stmt]:
        if is_order(self.nest):
            return self._row()
        return self._register_tile() if self.sketch.scan is None else self._scan(self.sketch.scan)

    def _scan(self, scan: Scan) -> list[g.Stmt]:
        """The running results of a register tile, each written behind its step, or before it."""
        tile, step, count = self.sketch.tile, self.var(scan.axis.name), extent(scan.axis)
        along = g.Linear(((step, -1),), count - 1) if scan.backward else g.Linear(((step, 1),))
        place = dict.fromkeys((scan.axis, *self.nest.reduce), along)
        acc = self._accumulator()

        def update(at: dict[Index, g.Linear]) -> g.Stmt:
            return self._update(acc, tuple(at.values()), at, place, scan.body)

        add = self.tiles.inside(tile, update, "at")
        write = self.tiles.inside(tile, lambda at: self._write(at, acc, place), "out")
        body = (*write, *add) if scan.exclusive else (*add, *write)
        start = self.tiles.inside(tile, lambda at: self._start(acc, at), "init")
        return [g.Allocate(acc), *start, g.Loop(step, count, "serial", body)]

    def _accumulator(self) -> g.Buffer:
        """The results of a register tile."""
        shape = tuple(self.sizes[a] for a in self.sketch.tile)
        name = self.storage.unused(f"acc{self.number or ''}")
        return g.Buffer(name, shape, self.nest.result.dtype, "register")

    def _row(self) -> list[g.Stmt]:
        """One row of an order: the loop over ranks around that over places."""
        nest, place = self.nest, self.tiles.place({})
        ranks = tuple(a for a in nest.axes if a not in self.sketch.order)
        assert nest.reducer is not None
        loops: list[tuple[g.Var, g.Column, str]] = []
        for axes, name, kind in ((ranks, "rank", nest.reducer), (nest.reduce, "place", "serial")):
            var = self.var(axes[0].name if axes else name)
            loops.append((var, math.prod(map(extent, axes)), kind))
            place |= {a: g.Linear(((var, 1),)) for a in axes}
        value = Cast(self._value(nest.body, place, {}, None), "int32")
        return wrapped([self._store(nest.index, value, place)], loops)

    def _register_tile(self) -> list[g.Stmt]:
        if self.nest.reducer is None:
            return self._writes()
        tile = self.sketch.tile
        across = self.sketch.vector if self.sketch.vector in self.nest.reduce else None
        acc = self._accumulator()
        loops = reduction_loops(self.sketch, self.values, self.sizes, across, self.var)
        stmts: list[g.Stmt] = [g.Allocate(acc)]
        held = acc
        if loops.blocked:
            held = replace(acc, name=self.storage.unused(f"{acc.name}_sum"), scope="heap")
            stmts.append(g.Allocate(held))
        stmts += self.tiles.inside(tile, lambda at: self._start(held, at), "init")
        stmts += self._reduction(acc, held, loops)
        if across is None:
            across = self._contiguous()
            return stmts + self.tiles.inside(tile, lambda at: self._write(at, held), "out", across)
        stmts += self._tail(acc, across)
        most = CPU.partial_sums * lanes(self.nest, self.target)
        stmts += combined_lanes(self.tiles, acc, across, most)
        spatial = self.sketch.tiled
        return stmts + self.tiles.inside(spatial, lambda at: self._write(at, acc), "out")

    def _writes(self) -> list[g.Stmt]:
        """The elements of an element-wise nest."""
        stmts: list[g.Stmt] = []
        writes = ((self.nest.index, self.nest.body), *self.nest.also)
        for number, (index, body) in enumerate(writes):

            def write(
                at: dict[Index, g.Linear], index: tuple[Affine, ...] = index, body: Expr = body
            ) -> g.Stmt:
                place = self.place(at)
                return self._store(index, self._value(body, place, at, None), place)

            stmts += self.tiles.inside(self.sketch.tile, write, str(number or ""))
        return stmts

    def _contiguous(self) -> Index | None:
        """The axis of the tile along which the result is contiguous, if that is not the vector
        axis and something else lies like the result: along that one, what would be single elements
        are short vectors. (Of the result alone, whole vectors are transposed: `emit`.)"""
        nest, vector = self.nest, self.sketch.vector
        reads = [] if nest.epilogue is None else [r for r, _ in predicated_reads(nest.epilogue)]
        others = [r for r in reads if r.tensor is not nest.result]
        alone = vector is not None and all(
            stride(r.tensor, r.index, vector) in (0, 1) and r.tensor is not nest.out
            for r in others
        )
        if alone and nest.out.dtype == nest.result.dtype == "float32":
            return None
        for axis in self.sketch.tiled:
            if stride(nest.out, nest.index, axis) == 1:
                return axis
        return None

    def _start(self, acc: g.Buffer, at: dict[Index, g.Linear]) -> g.Stmt:
        value: Expr = identity(self.nest.reducer, acc.dtype)
        if self.nest.start is not None:
            value = self._load(self.nest.start, self.place(at), at)
        return g.Store(acc, tuple(at.values()), value)

    def _reduction(self, acc: g.Buffer, held: g.Buffer, loops: ReductionLoops) -> list[g.Stmt]:
        """The reduction loops around the register tile; `held` has the sum of finished blocks."""
        predicates = self.sketch.predicates

        def update(at: dict[Index, g.Linear]) -> g.Stmt:
            return self._update(acc, tuple(at.values()), at, loops.place, predicates.body)

        def vectors(body: list[g.Stmt], at: dict[Index, g.Linear]) -> list[g.Stmt]:
            return self._where(predicates.places, at, loops, wrapped(body, loops.inside))

        body = self.tiles.inside(self.sketch.tile, update, "at", around=vectors)
        if self.nest.sparse is not None:
            *around_it, last = loops.outer
            (loop,) = wrapped(body, [last])
            assert isinstance(loop, g.Loop)
            sparse = self._sparse(self.nest.sparse, loops.place)
            hints = self._hints(around_it)  # in each step they might not be reached
            return wrapped([*hints, replace(loop, sparse=sparse)], around_it)
        hints = self._hints(loops.outer)
        around = loops.depth(predicates.whole)
        every = [*loops.outer, *loops.unrolled]
        for depth in reversed(range(len(every) + 1)):
            if depth == around:  # as far outside as they can be tested
                body = self._where(predicates.whole, {}, loops, body)
            if depth == len(loops.outer):  # a step that a test leaves out asks for nothing
                body += hints
            if loops.blocked and depth == loops.blocked:
                body = self._block(acc, held, body)
            body = wrapped(body, every[depth - 1 : depth] if depth else [])
        return body

    def _block(self, acc: g.Buffer, held: g.Buffer, body: list[g.Stmt]) -> list[g.Stmt]:
        """A block of a long sum, from zero, and its addition to the blocks before it."""
        zero = identity(self.nest.reducer, acc.dtype)

        def add(at: dict[Index, g.Linear]) -> g.Stmt:
            here = tuple(at.values())
            return g.Store(held, here, Binary("add", g.Load(held, here), g.Load(acc, here)))

        tile = self.sketch.tile
        begin = self.tiles.inside(tile, lambda at: g.Store(acc, tuple(at.values()), zero), "zero")
        return [*begin, *body, *self.tiles.inside(tile, add, "add")]

    def _sparse(self, read: Read, reduce: Mapping[Index, g.Linear]) -> g.Sparse:
        """Operands that must be 0 at all places of a register tile for a step to be skipped."""
        rows = {a: self.var(f"{a.name}.any") for a in self.sketch.tiled if a in indices(read)}
        at = {axis: g.Linear(((var, 1),)) for axis, var in rows.items()}
        load = self._load(read, {**self.place(at), **reduce}, at)
        return g.Sparse(load, tuple((var, self.sizes[axis]) for axis, var in rows.items()))

    def _where(
        self,
        tests: Sequence[Affine],
        at: dict[Index, g.Linear],
        loops: ReductionLoops,
        body: list[g.Stmt],
    ) -> list[g.Stmt]:
        """Statements where each of these is more than 0, by loops of one iteration at most."""
        place = {**self.place(at), **loops.place}
        for test in tests:
            guard = self.var(f"guard{next(self.tests)}")
            body = [g.Loop(guard, 1, "serial", tuple(body), to_linear(test, place))]
        return body

    def _hints(self, steps: Sequence[tuple[g.Var, g.Column, str]]) -> list[g.Stmt]:
        """Hints in every step of the reduction: about what the next iteration of common loops
        reads, and about the next panels of large operands, where all register tiles along the
        other axes go over one panel first."""
        vector, order = self.sketch.vector, self.sketch.order
        passes = [(g.Linear(((self.axes[a].inner, 1),)), self.axes[a].within) for a in order]
        inner = [(g.Linear(((var, 1),)), count) for var, count, _ in steps]
        hints: list[g.Stmt] = []
        for rows in self.prefetch:
            buffer = self.storage.touch(rows.tensor, self.part)
            number = to_linear(rows.number, self.rows)
            hints += prefetches(buffer, rows.size, number, passes, inner, rows.tensor.name)
        if not self.sketch.tiled or vector not in order:
            return hints
        outside = order.index(vector) + 1
        within = order[outside:]
        if not set(self.sketch.tiled) <= set(within):
            return hints
        for panel in self.sketch.packed:
            mine = panel.axis == vector and not panel.local and not set(panel.outer) & set(within)
            if mine and tensor_bytes(panel.tensor) > self.target.l2_bytes // 16:
                buffer, number = self.storage.packed[panel, self.number], self._number(panel)
                size = self.axes[vector].tile * math.prod(map(extent, panel.inner))
                hints += prefetches(buffer, size, number, passes[outside:], inner, panel.name)
        return hints

    def _number(self, panel: Packed) -> g.Linear:
        """Number of the panel of an operand that is in use, among all."""
        number, place = g.Linear(), self.place({})
        for axis in panel.outer:
            number = number * extent(axis) + place[axis]
        level = self.axes[panel.axis]
        return number * level.tiles + g.Linear(((level.number, 1),))

    def _update(
        self,
        acc: g.Buffer,
        where: tuple[g.Linear, ...],
        at: dict[Index, g.Linear],
        reduce: Mapping[Index, g.Linear],
        body: Expr,
        new: Expr | None = None,
    ) -> g.Stmt:
        place = self.place(at)
        for axis, linear in reduce.items():
            place[axis] = linear + at[axis] if axis in at else linear
        value = self._value(body, place, at, None)
        combine = COMBINE[self.nest.reducer or "sum"]
        if new is not None and combine not in ("max", "min"):
            value = Select(new, value, identity(self.nest.reducer, value.dtype))
        result: Expr = g.Load(acc, where)
        for term in terms(value) if combine == "add" else (value,):
            result = Binary(combine, result, term)
        return g.Store(acc, where, result)

    def _tail(self, acc: g.Buffer, across: Index) -> list[g.Stmt]:
        """Rest of a reduction axis that is not a multiple of its tile, in vectors. The last one
        overlaps the one before it, and leaves out what that has; an extreme may have it twice."""
        size, count = extent(across), self.tiles.lanes
        rest, over = size % self.sizes[across], size % count
        tail, last = self.var(f"{across.name}.tail"), self.var(f"{across.name}.last")
        whole = self._vector(acc, across, "tail", g.Linear(((tail, count),), size - rest))
        part = self._vector(acc, across, "last", g.Linear((), size - count), over - count)
        return [
            *wrapped(whole, [(tail, rest // count, "serial")]),
            g.Loop(last, 1, "serial", tuple(part), g.Linear((), over)),
        ]

    def _vector(
        self, acc: g.Buffer, across: Index, name: str, begin: g.Linear, out: g.Column | None = None
    ) -> list[g.Stmt]:
        """One vector of a reduction axis, but for the lanes that are less than 0 with `out`."""
        lane, body = self.var(f"{across.name}.{name}lane"), self.sketch.predicates.body
        inner = {a: self.var(f"{a.name}.{name}") for a in self.sketch.reduce if a is not across}
        place = {a: g.Linear(((var, 1),)) for a, var in inner.items()}
        place[across] = begin + g.Linear(((lane, 1),))
        new = None
        if out is not None:
            new = Binary("ge", g.Position(g.Linear(((lane, 1),), out)), Const(0, "int32"))

        def update(at: dict[Index, g.Linear]) -> g.Stmt:
            where = (*at.values(), g.Linear(((lane, 1),)))
            made = self._update(acc, where, at, place, body, new)
            return g.Loop(lane, self.tiles.lanes, "vectorized", (made,))

        made = self.tiles.inside(self.sketch.tiled, update, f"{name}at")
        return wrapped(made, [(var, extent(a), "serial") for a, var in inner.items()])

    def _write(
        self,
        at: dict[Index, g.Linear],
        acc: g.Buffer,
        along: Mapping[Index, g.Linear] | None = None,
    ) -> g.Stmt:
        """Stores that a reduction writes back; a scan's are `along` its axis."""
        place = {**self.place(at), **(along or {})}
        missing = len(acc.shape) - len(at)
        held = g.Load(acc, (*at.values(), *(g.Linear() for _ in range(missing))))
        after = self.nest.epilogue
        value = held if after is None else self._value(after, place, at, held)
        return self._store(self.nest.index, value, place)

    def _store(
        self, index: tuple[Affine, ...], value: Expr, place: Mapping[Index, g.Linear]
    ) -> g.Stmt:
        buffer = self.storage.touch(self.nest.out, self.part)
        return g.Store(buffer, tuple(to_linear(p, place) for p in index), value)

    def _value(
        self,
        x: Expr,
        place: Mapping[Index, g.Linear],
        at: Mapping[Index, g.Linear],
        held: g.Load | None,
    ) -> Expr:
        """An element expression of the notation over the loops."""
        if isinstance(x, IndexValue):
            return g.Position(to_linear(x.value, place))
        if isinstance(x, Read):
            if held is not None and x.tensor is self.nest.result:
                return held
            return self._load(x, place, at)
        return rebuild(x, lambda child: self._value(child, place, at, held))

    def _load(
        self, read: Read, place: Mapping[Index, g.Linear], at: Mapping[Index, g.Linear]
    ) -> g.Load:
        packed = self.packed.get((read.tensor, read.index))
        if packed is not None and not isinstance(read, Table):
            buffer = self.storage.packed[packed, self.number]
            inside = (*(place[a] for a in packed.inner), at.get(packed.axis, g.Linear()))
            if packed.local:
                return g.Load(buffer, inside)
            tile = g.Linear(((self.axes[packed.axis].number, 1),))
            return g.Load(buffer, (*(place[a] for a in packed.outer), tile, *inside))
        index = tuple(to_linear(p, place) for p in read.index)
        return g.Load(
            self.storage.touch(read.tensor, self.part), index, leaves(read, self.extents)
        )
