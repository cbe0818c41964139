"""Lowering of row kernels: a team of threads for each row, one nest after another.

    for block < ⌈rows / R⌉:                        block
      for r < R, for lane < T:                     thread
        row = min(R·block + r, rows - 1)
        element-wise nests: each thread takes every T-th vector of the row's elements
        reductions: each thread reduces every T-th vector; the T results are halved in shared
          memory until one is left; the epilogue follows
        a barrier after each nest

What only the group's nests read is kept in shared memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from loopwright.dsl.elements import COMBINE
from loopwright.dsl.expr import Binary
from loopwright.dsl.index import Index
from loopwright.schedule.gpu.context import (
    KernelLowering,
    accesses,
    contiguous_axis,
    extents_of,
    linear,
    nothing,
)
from loopwright.schedule.gpu.lower_elementwise import ThreadTile
from loopwright.schedule.loops.statements import identity, to_linear, wrapped
from loopwright.schedule.program.nest import Nest, extent, stride
from loopwright.schedule.sketch.kernel import RowReduction
from loopwright.schedule.tree import grammar as g

Values = Mapping[str, tuple[g.Column, ...]]
_HALVINGS = 10  # threads of a team: at most 2**10


def lower_row_reduction(
    sketch: RowReduction, values: Values, kernel: KernelLowering
) -> list[g.Stmt]:
    """The kernel of a group, or of a nest on its own."""
    many, threads = values["team"]
    total = _count(sketch.rows)
    blocks = g.ceildiv(total, many)
    block = kernel.var("block", blocks)
    team, lane = kernel.var("team", many), kernel.var("lane", threads)
    clip, row = kernel.let("row", linear((block, many), (team, 1)), total - 1)
    body: list[g.Stmt] = [clip]
    lets, numbers = kernel.decode(row, [(a.name, extent(a)) for a in sketch.rows])
    body += lets
    at = dict(zip(sketch.rows, numbers, strict=True))
    for base in sketch.group.tile_origins:
        limit = extent(base.index) - 1
        begin = to_linear(base.number, at) * base.size
        let, at[base.index] = kernel.let(base.index.name, begin, limit)
        body.append(let)
    kernel.rows, kernel.row = many, linear((team, 1))
    for tensor in sketch.group.scratch:
        shape = (many, *(tensor.shape or ()))
        kernel.local[tensor.name] = kernel.own(tensor.name + "_row", shape, tensor.dtype, "shared")
        body.append(g.Allocate(kernel.local[tensor.name]))
    rows = _RowLowering(kernel, at, team, many, lane, threads)
    for nest in sketch.group.nests:
        inner = tuple(a for a in nest.axes if a not in sketch.rows)
        body += rows.nest(nest, inner)
    loops = [(block, blocks, "block"), (team, many, "thread"), (lane, threads, "thread")]
    return wrapped(body, loops)


class _RowLowering:
    def __init__(
        self,
        kernel: KernelLowering,
        at: Mapping[Index, g.Linear],
        team: g.Var,
        many: g.Column,
        lane: g.Var,
        threads: g.Column,
    ) -> None:
        self.kernel, self.at, self.team, self.many = kernel, at, team, many
        self.lane, self.threads = lane, threads
        self.partial: dict[str, g.Buffer] = {}

    def nest(self, nest: Nest, inner: tuple[Index, ...]) -> list[g.Stmt]:
        """One nest over a row; `inner` are its axes besides the row's."""
        if nest.reducer is None or _count(nest.reduce) <= _count(inner):
            return [*self._elements(nest, inner), g.Barrier()]
        return self._shared_reductions(nest, inner)

    def _elements(self, nest: Nest, inner: tuple[Index, ...]) -> list[g.Stmt]:
        """Each thread computes elements of its own."""
        axis = contiguous_axis(nest)
        last = (axis,) if axis in inner and axis is not None else ()
        order = (*(a for a in inner if a not in last), *last)
        tiled: list[tuple[Index, g.Column]] = []
        if last and nest.reducer is None:
            start = {a: linear((self.kernel.var(f"{a.name}.any", extent(a)), 1)) for a in order}
            start[last[0]] = g.Linear()
            widths = []
            for index, body in ((nest.index, nest.body), *nest.also):
                touched = [(nest.out, index), *accesses(nest, body)]
                here = {**self.at, **start}
                size = [(last[0], extent(last[0]))]
                widths.append(ThreadTile(nest, self.kernel, here, size).lanes(touched, body))
            tiled = [(last[0], functools.reduce(np.gcd, widths))]
        sizes = dict(tiled)
        counts = [(f"{a.name}.at", extent(a) // sizes.get(a, 1)) for a in order]
        total = math.prod(count for _, count in counts)
        rounds = g.ceildiv(total, self.threads)
        this_round = self.kernel.var("turn", rounds)
        clip, number = self.kernel.let(
            "element", linear((this_round, self.threads), (self.lane, 1)), total - 1
        )
        lets, numbers = self.kernel.decode(number, counts)
        at = dict(self.at)
        for a, place in zip(order, numbers, strict=True):
            at[a] = place * sizes.get(a, 1)
        elements = ThreadTile(nest, self.kernel, at, tiled).elements({})
        return wrapped([clip, *lets, *elements], [(this_round, rounds, "serial")])

    def _shared_reductions(self, nest: Nest, inner: tuple[Index, ...]) -> list[g.Stmt]:
        """All threads of the team reduce one element after another."""
        loops: list[tuple[g.Var, g.Column, str]] = []
        at = dict(self.at)
        for axis in inner:
            var = self.kernel.var(axis.name, extent(axis))
            loops.append((var, extent(axis), "serial"))
            at[axis] = linear((var, 1))
        partial = self._partial(nest.result.dtype)
        allocate = [] if partial in self.partial.values() else [g.Allocate(partial)]
        self.partial[partial.dtype] = partial
        body = [*self._own_part(nest, at, partial), *self._halvings(nest, partial)]
        body += [*self._write(nest, at, partial), g.Barrier()]
        return [*allocate, *wrapped(body, loops)]

    def _partial(self, dtype: str) -> g.Buffer:
        if dtype in self.partial:
            return self.partial[dtype]
        return self.kernel.own(f"partial_{dtype}", (self.many, self.threads), dtype, "shared")

    def _own_part(
        self, nest: Nest, at: Mapping[Index, g.Linear], partial: g.Buffer
    ) -> list[g.Stmt]:
        """Partial reduction of one thread, in vectors along the contiguous reduction axis."""
        kernel = self.kernel
        order = sorted(nest.reduce, key=lambda k: _contiguous(nest, k))
        last = order[-1]
        start = {k: linear((kernel.var(f"{k.name}.any", extent(k)), 1)) for k in order}
        start[last] = g.Linear()
        touched = accesses(nest, nest.body)
        size: g.Column = extent(last)
        tile = ThreadTile(nest, kernel, {**at, **start}, [(last, size)])
        width = tile.lanes(touched, nest.body)
        counts: list[tuple[str, g.Column]] = [(f"{k.name}.at", extent(k)) for k in order[:-1]]
        counts.append((f"{last.name}.at", extent(last) // width))
        total = math.prod(count for _, count in counts)
        rounds = g.ceildiv(total, self.threads)
        this_round = kernel.var("turn", rounds)
        position = linear((this_round, self.threads), (self.lane, 1))
        clip, number = kernel.let("step", position, total - 1)
        lets, numbers = kernel.decode(number, counts)
        place = {**at, **dict(zip(order, numbers, strict=True))}
        place[last] = place[last] * width
        acc = kernel.own("acc", (width,), nest.result.dtype)
        combine, extents = COMBINE[nest.reducer or "sum"], extents_of(nest, at)
        zero = identity(nest.reducer, acc.dtype)

        def init(inside: Mapping[Index, g.Linear]) -> list[g.Stmt]:
            return [g.Store(acc, tuple(inside.values()), zero)]

        def update(inside: Mapping[Index, g.Linear]) -> list[g.Stmt]:
            where = tuple(inside.values())
            here = {**place, last: place[last] + inside[last]}
            value = kernel.value(nest.body, here, extents, nothing)
            return [g.Store(acc, where, Binary(combine, g.Load(acc, where), value))]

        first = [*kernel.nest_loops([(last, width)], "init", init)]
        guarded = [clip, *lets, *kernel.nest_loops([(last, width)], "at", update, width)]
        guard = kernel.var("guard", 1)
        inside = g.Loop(
            guard, 1, "serial", tuple(guarded), g.Linear(position.terms, 0) * -1 + total
        )
        more = kernel.var(f"{last.name}.more", width - 1)
        one, other = (g.Linear(),), (linear((more, 1)) + 1,)
        fold = g.Store(acc, one, Binary(combine, g.Load(acc, one), g.Load(acc, other)))
        return [
            g.Allocate(acc),
            *first,
            *wrapped([inside], [(this_round, rounds, "serial")]),
            *wrapped([fold], [(more, width - 1, "unrolled")]),
            g.Store(partial, self._mine(), g.Load(acc, one)),
            g.Barrier(),
        ]

    def _mine(self) -> tuple[g.Linear, ...]:
        return (linear((self.team, 1)), linear((self.lane, 1)))

    def _halvings(self, nest: Nest, partial: g.Buffer) -> list[g.Stmt]:
        """`partial[lane] ⊕= partial[lane + half]` for lane < half, for ever smaller halves."""
        stmts: list[g.Stmt] = []
        combine = COMBINE[nest.reducer or "sum"]
        for step in range(1, _HALVINGS + 1):
            half = self.threads >> step
            mine = self._mine()
            other = (mine[0], mine[1] + half)
            near = g.Linear(((self.lane, -1),), half)
            clip, clipped = self.kernel.let("other", other[1], self.threads - 1)
            value = Binary(combine, g.Load(partial, mine), g.Load(partial, (mine[0], clipped)))
            fold = g.Loop(
                self.kernel.var("near", 1), 1, "serial", (g.Store(partial, mine, value),), near
            )
            some = np.minimum(half, 1)
            guard = self.kernel.var("half", some)
            stmts.append(g.Loop(guard, some, "serial", (clip, fold, g.Barrier())))
        return stmts

    def _write(self, nest: Nest, at: Mapping[Index, g.Linear], partial: g.Buffer) -> list[g.Stmt]:
        """The team's first thread writes the element."""
        held = g.Load(partial, (linear((self.team, 1)), g.Linear()))
        write = self.kernel.finish(nest, at, extents_of(nest, at), held)
        first = g.Linear(((self.lane, -1),), 1)
        return [g.Loop(self.kernel.var("first", 1), 1, "serial", (write,), first)]


def _contiguous(nest: Nest, k: Index) -> tuple[int, int]:
    """Number of reads that walk contiguously along a reduction axis."""
    steps = [stride(r.tensor, r.index, k) for r in nest.reads()]
    return sum(step == 1 for step in steps), nest.reduce.index(k)


def _count(axes: Sequence[Index]) -> int:
    return math.prod(map(extent, axes))
