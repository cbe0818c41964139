"""Lowering of flat kernels: each thread computes a small tile of the result, alone.

    for block < ⌈tiles / threads⌉:                block
      for thread < threads:                       thread
        tile = min(threads·block + thread, tiles - 1)
        base = min(R·(tile's number along each axis), E - R)
        acc[…] = 0;  for the reduction loops: acc[…] ⊕= body;  out[base + …] = epilogue(acc[…])

Neighbouring threads are neighbours along the last axis, so that a warp reads and writes whole
lines; the last tiles overlap, as on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loopwright.dsl.elements import COMBINE
from loopwright.dsl.expr import Binary, Expr, IndexValue, Read
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import walk
from loopwright.schedule.gpu.context import KernelLowering, accesses, extents_of, linear, nothing
from loopwright.schedule.loops.statements import identity, wrapped
from loopwright.schedule.program.nest import Nest, extent, leaves
from loopwright.schedule.sketch.kernel import Elementwise
from loopwright.schedule.tree import grammar as g

Values = Mapping[str, tuple[g.Column, ...]]


def lower_elementwise(sketch: Elementwise, values: Values, kernel: KernelLowering) -> list[g.Stmt]:
    """The kernel of a nest on its own."""
    sizes: dict[Index, g.Column] = dict.fromkeys(sketch.axes, 1)
    sizes |= dict(zip(sketch.tiled, values.get("tile", ()), strict=True))
    (threads,) = values["threads"]
    total: g.Column = 1
    counts = []
    for axis in sketch.axes:
        tiles = g.ceildiv(extent(axis), sizes[axis])
        counts.append((f"{axis.name}.tile", tiles))
        total = total * tiles
    blocks = g.ceildiv(total, threads)
    block, thread = kernel.var("block", blocks), kernel.var("thread", threads)
    clip, tile = kernel.let("tile", linear((block, threads), (thread, 1)), total - 1)
    lets, numbers = kernel.decode(tile, counts)
    at: dict[Index, g.Linear] = {}
    for axis, number in zip(sketch.axes, numbers, strict=True):
        at[axis] = number
        if axis in sketch.tiled:
            size = sizes[axis]
            let, at[axis] = kernel.let(f"{axis.name}.base", number * size, extent(axis) - size)
            lets.append(let)
    tiled = [(axis, sizes[axis]) for axis in sketch.tiled]
    body = [clip, *lets, *ThreadTile(sketch.nest, kernel, at, tiled).elements(values)]
    return wrapped(body, [(block, blocks, "block"), (thread, threads, "thread")])


@dataclass(frozen=True, eq=False)
class ThreadTile:
    """The elements of one thread: `tiled` axes, so many of each, from `at` on."""

    nest: Nest
    kernel: KernelLowering
    at: Mapping[Index, g.Linear]
    tiled: Sequence[tuple[Index, g.Column]]

    def elements(self, values: Values) -> list[g.Stmt]:
        """Statements that compute and write them."""
        nest, kernel, at, tiled = self.nest, self.kernel, self.at, self.tiled
        if nest.reducer is None:
            return self._writes()
        acc = kernel.own("acc", tuple(size for _, size in tiled) or (1,), nest.result.dtype)
        start = identity(nest.reducer, acc.dtype)

        def where(inside: Mapping[Index, g.Linear]) -> tuple[g.Linear, ...]:
            return tuple(inside.values()) or (g.Linear(),)

        def init(inside: Mapping[Index, g.Linear]) -> list[g.Stmt]:
            return [g.Store(acc, where(inside), start)]

        stmts: list[g.Stmt] = [g.Allocate(acc), *kernel.nest_loops(tiled, "init", init)]
        stmts += self._reduction(values, acc)
        extents = extents_of(nest, at)
        lanes = self.lanes([(nest.out, nest.index), *accesses(nest, nest.epilogue)], nest.epilogue)

        def write(inside: Mapping[Index, g.Linear]) -> list[g.Stmt]:
            return [kernel.finish(nest, _moved(at, inside), extents, g.Load(acc, where(inside)))]

        return stmts + kernel.nest_loops(tiled, "out", write, lanes)

    def _reduction(self, values: Values, acc: g.Buffer) -> list[g.Stmt]:
        """The reduction loops, the last ones unrolled by the "unroll" knob."""
        nest, kernel = self.nest, self.kernel
        factors = dict(zip(unrolled_axes(nest), values.get("unroll", ()), strict=False))
        outer: list[tuple[g.Var, g.Column, str]] = []
        inner: list[tuple[g.Var, g.Column, str]] = []
        place = dict(self.at)
        for k in nest.reduce:
            factor = factors.get(k, 1)
            count = extent(k) // factor
            step, within = kernel.var(k.name, count), kernel.var(f"{k.name}.in", factor)
            outer.append((step, count, "serial"))
            inner.append((within, factor, "unrolled"))
            place[k] = linear((step, factor), (within, 1))
        extents = extents_of(nest, self.at)
        combine = COMBINE[nest.reducer or "sum"]

        def update(inside: Mapping[Index, g.Linear]) -> list[g.Stmt]:
            where = tuple(inside.values()) or (g.Linear(),)
            value = kernel.value(nest.body, _moved(place, inside), extents, nothing)
            return [g.Store(acc, where, Binary(combine, g.Load(acc, where), value))]

        lanes = replace(self, at=place).lanes(accesses(nest, nest.body))
        return wrapped(kernel.nest_loops(self.tiled, "at", update, lanes), outer + inner)

    def _writes(self) -> list[g.Stmt]:
        """The elements of an element-wise nest."""
        nest, kernel, stmts = self.nest, self.kernel, list[g.Stmt]()
        extents = extents_of(nest, self.at)
        for index, body in ((nest.index, nest.body), *nest.also):
            lanes = self.lanes([(nest.out, index), *accesses(nest, body)], body)

            def write(
                inside: Mapping[Index, g.Linear],
                index: tuple[Affine, ...] = index,
                body: Expr = body,
            ) -> list[g.Stmt]:
                place = _moved(self.at, inside)
                value = kernel.value(body, place, extents, nothing)
                return [kernel.store(nest.out, index, place, value)]

            stmts += kernel.nest_loops(self.tiled, "el", write, lanes)
        return stmts

    def lanes(
        self, touched: Sequence[tuple[Tensor, tuple[Affine, ...]]], value: Expr | None = None
    ) -> g.Column:
        """The width of vectors along the last tiled axis; 1 without tiled axes."""
        if not self.tiled:
            return 1
        axis, size = self.tiled[-1]
        extents = extents_of(self.nest, self.at)
        if any(leaves(Read(t, i), extents) for t, i in touched):
            return 1
        if value is not None and any(
            isinstance(x, IndexValue) and axis in x.value.indices() for x in walk(value)
        ):
            return 1
        return self.kernel.lanes(size, touched, axis, self.at)


def unrolled_axes(nest: Nest) -> tuple[Index, ...]:
    """The reduction loops that the "unroll" knob is about: the last two."""
    return nest.reduce[-2:]


def _moved(
    at: Mapping[Index, g.Linear], inside: Mapping[Index, g.Linear]
) -> dict[Index, g.Linear]:
    return {**at, **{axis: at[axis] + more for axis, more in inside.items()}}
