"""Blocks of rows: padding made where it is used.

    P[u, x] = where((u >= 1) & (u < 57) & …, X[u - 1, x - 1], 0)
    O[y, x] = sum over r, s of P[2*y + r, 2*x + s] * W[r, s]
     ↦  for each block of 4 rows from b on:
            L[v, x] = P[2*b + v, x]    for v < 9;
            O[b + y, x] = sum over r, s of L[2*y + r, 2*x + s] * W[r, s]    for y < 4

Of a padded copy of the whole image, each thread writes lines that lie in the other's cache, and
reads lines that the other wrote: at the speed of what is between the caches, which is that of
memory. The copy of a block stays with the thread that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Const, Read, Select
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program import plan
from loopwright.schedule.program.canonical import Program, substitute_axes
from loopwright.schedule.program.fusion import can_inline
from loopwright.schedule.program.nest import Nest, extent, fresh
from loopwright.schedule.program.padding import Span, box
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


def pad_at_blocks(source: Source, rows: int) -> tuple[plan.FusionGroup, ...] | None:
    """The groups of a workload with each sum over a padded image in blocks of so many rows, each
    with its own padding; None if there is none with more rows."""
    program = source.program
    found = {id(p.nest): p for p in _padded(program, source) if p.count > rows}
    if not found:
        return None
    names = source.names()
    made = {key: [padded.group(rows, names)] for key, padded in found.items()}
    gone = {padded.padding.out for padded in found.values()}
    return plan.with_groups(program, made, gone, source.outputs)


def block_row_choices(source: Source, target: Target) -> tuple[int, ...]:
    """Numbers of rows at a time for which `pad_at_blocks` may pay. They are the fewest that copy
    not much twice, and the most that fit a cache, all threads being as busy as with single
    rows."""
    found = list(_padded(source.program, source))
    if not found or target.threads == 1:  # one core's caches hold the whole image as well
        return ()
    largest = max(found, key=lambda padded: padded.nest.steps)
    images = math.prod(map(extent, largest.batch))
    fitting = [
        rows
        for rows in plan.even_blocks(images, largest.count, target.threads)
        if rows < largest.count
        and largest.span(rows) * largest.row_bytes <= REWRITE.padding_l2_share * target.l2_bytes
    ]
    few = [
        rows
        for rows in fitting
        if largest.span(rows) <= REWRITE.padding_copied_ratio * rows * largest.step
    ]
    return tuple(sorted({*few[:1], *fitting[-1:]}))


def _padded(program: Program, source: Source) -> Iterator[_Padded]:
    for nest in program:
        if nest.reducer == "sum" and plan.has_reuse(nest):
            for padding in program:
                found = _Padded.of(nest, padding, program, source)
                if found is not None:
                    yield found


@dataclass(frozen=True)
class _Padded:
    """A sum over what another nest pads, by a `read`. `spans` of each axis are no padding. Rows
    lie along axis `at`; the sum's axis `row` counts those of the result, `step` rows apart."""

    nest: Nest
    padding: Nest
    read: Read
    spans: Mapping[Index, Span]
    at: int
    row: Index
    step: int

    @staticmethod
    def of(nest: Nest, padding: Nest, program: Program, source: Source) -> _Padded | None:
        body = padding.body
        if padding.also or padding.out in source.outputs or not can_inline(program, padding):
            return None
        if not isinstance(body, Select) or not isinstance(body.y, Const):
            return None
        reads = [(n, r) for n in program for r in n.reads() if r.tensor is padding.out]
        spans = box(body.cond, padding)
        if len(reads) != 1 or reads[0][0] is not nest or spans is None:
            return None
        if any(span.step != 1 or not span.count for span in spans.values()):
            return None
        ((_, read),) = reads
        every = [i for p in read.index for i in p.indices()]
        for at, p in enumerate(read.index):
            own = [(i, c) for i, c in p.terms if i in nest.axes]
            axis = padding.index[at].plain()
            if p.plain() is None and len(own) == 1 and axis is not None:
                (row, step) = own[0]
                if isinstance(row, Index) and step > 0 and every.count(row) == 1:
                    return _Padded(nest, padding, read, spans, at, row, step)
        return None

    @property
    def count(self) -> int:
        """Rows of the result."""
        return extent(self.row)

    @property
    def batch(self) -> list[Index]:
        """The axes that count whole images."""
        return list(dict.fromkeys(self._images.values()))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the padded tensor, of one image."""
        shape = tensor_shape(self.padding.out)
        kept = [n for d, n in enumerate(shape) if d != self.at and d not in self._images]
        return math.prod(kept) * item_bytes(self.padding.out.dtype)

    @property
    def _images(self) -> dict[int, Index]:
        """The axes of the padded tensor along which whole images lie, none of them padding."""
        found: dict[int, Index] = {}
        for d, p in enumerate(self.read.index[: self.at]):
            axis, own = p.plain(), self.padding.index[d].plain()
            if axis in self.nest.axes and own is not None:
                if self.spans[own] == Span(0, extent(own)):
                    found[d] = axis
        return found

    def span(self, rows: int) -> int:
        """Rows of the padded tensor that so many of the result read."""
        others = {i: extent(i) for i in self.read.index[self.at].indices()} | {self.row: rows}
        return self.read.index[self.at].bounds(others)[1] + 1

    def group(self, rows: int, names: set[str]) -> plan.FusionGroup:
        """The padding and the sum of one block, in the loop over blocks."""
        block, base = plan.TileOrigin.of_blocks(self.row.name, self.count, rows)
        begin, within = base.index, Index(f"{self.row.name}.within", rows)
        shape = list(tensor_shape(self.padding.out))
        shape[self.at] = self.span(rows)
        kept = [d for d in range(len(shape)) if d not in self._images]
        local = Tensor(
            fresh(f"{self.padding.out.name}_rows", names),
            tuple(shape[d] for d in kept),
            self.padding.out.dtype,
        )
        axes = (within if a == self.row else a for a in self.nest.axes if a not in self.batch)
        moved = {self.row: begin + within}
        nest = substitute_axes(self.nest, tuple(axes), self.nest.reduce, moved)

        def place(t: Tensor, index: tuple[Affine, ...]) -> tuple[Tensor, tuple[Affine, ...]]:
            if t is not self.padding.out:
                return t, index
            moved = (p - begin * self.step if d == self.at else p for d, p in enumerate(index))
            return local, tuple(p for d, p in enumerate(moved) if d in kept)

        parts = (*self._filled(local, begin, kept), nest.relocated(place))
        return plan.finished(plan.FusionGroup((*self.batch, block), parts, (local,), (base,)))

    def _filled(self, local: Tensor, begin: Index, kept: list[int]) -> Iterator[Nest]:
        """The padding's constant, and over it what is padded: all of it but for the rows, of which
        a block may have some that are padding."""
        padding, body = self.padding, self.padding.body
        assert isinstance(body, Select)
        whole = tuple(Index(f"{local.name}.{d}", n) for d, n in enumerate(tensor_shape(local)))
        source: dict[Index, IndexExpr] = {}
        axes: list[Index] = []
        index: list[Affine] = []
        for d, p in enumerate(padding.index):
            axis = p.plain()
            if d in self._images:
                assert axis is not None
                source[axis] = self._images[d]
            elif axis is None:
                index.append(p)
            elif d == self.at:
                axes.append(whole[kept.index(d)])
                index.append(axes[-1].affine())
                source[axis] = begin * self.step + axes[-1]
            else:
                span = self.spans[axis]
                axes.append(Index(whole[kept.index(d)].name, span.count))
                index.append(axes[-1] + span.start)
                source[axis] = index[-1]
        nest = substitute_axes(replace(padding, body=body.x), tuple(axes), (), source)
        row = padding.index[self.at].plain()
        assert row is not None
        at = source[row].affine()
        value = self.spans[row].where(at, extent(row), nest.body, body.y)
        if nest.size < math.prod(tensor_shape(local)):
            places = tuple(a.affine() for a in whole)
            yield Nest(local, places, whole, (), None, body.y, local)
        yield replace(nest, out=local, index=tuple(index), body=value, result=local)


class PaddingAtBlocks(Rewrite):
    """`for b: L[v] = P[b + v] for v < R + 2; O[b + y] += L[y + r] * W[r]` for blocks of R rows."""

    name = "padding_at_blocks"
    needs = "several threads, and a sum with reuse over a padded image of several rows"
    prior = 0.8  # the simplest and the most exact of all beside the definition's own loops

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for rows in block_row_choices(base.source, target):
            yield {"rows": rows}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = pad_at_blocks(base.source, parameters["rows"])
        return None if groups is None else Rewritten(groups, numerics=base.source.numerics)
