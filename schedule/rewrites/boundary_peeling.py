"""Edges: a window over a padded tensor, without the padding.

    P[u] = where((u >= 1) & (u < 9), X[u - 1], 0);  O[y] = sum over r < 3 of P[y + r] * W[r]
     ↦  O[0] = sum over r < 2 of X[r] * W[r + 1];
        O[y + 1] = sum over r < 3 of X[y + r] * W[r]    for y < 6;
        O[7] = sum over r < 2 of X[r + 6] * W[r]

Each part of the result that meets other taps of the window is a nest of its own. That pays where a
padded copy is a good part of the work: where each channel, or plane, is a sum of its own.

With channels last, common loops go over the rows of the result, all channels of a row together,
and the columns alone are in parts: which taps a row meets is a condition on the terms of the sum,
tested once for all of a register tile (`predicates`). Where rows are too few for the threads, the
loops go over slices of the channels too.

A maximum needs no parts there: at the edges the window reads the nearest element, which it reads
anyway (`clamped`).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import is_float, largest, limits
from loopwright.dsl.expr import Const, Expr, Read, Select
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import Program, drop_units, substitute_axes
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.fusion import inline
from loopwright.schedule.program.nest import Nest, extent, lanes, predicated_reads
from loopwright.schedule.program.padding import Span, box
from loopwright.schedule.program.plan import FusionGroup, finished, grouped, under, with_groups
from loopwright.schedule.program.polyphase import factors
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target


def peel_boundaries(source: Source, target: Target) -> tuple[FusionGroup, ...] | None:
    """The groups of a workload with each window over a padded plane in parts that need no
    padding; None if there is none for which that may pay."""
    program = source.program
    made, gone = in_parts(program, source.outputs, target)
    return with_groups(program, made, gone, source.outputs) if made else None


def in_parts(
    program: Program, outputs: tuple[Tensor, ...], target: Target
) -> tuple[dict[int, list[FusionGroup]], set[Tensor]]:
    """Groups of each window for which parts may pay, by `id` of its nest; padded tensors that
    go."""
    split = [w for w in padded_windows(program, outputs) if w.pays(target)]
    return {id(w.nest): [w.group(target)] for w in split}, {w.producer.out for w in split}


def clamp_padding(source: Source) -> tuple[FusionGroup, ...] | None:
    """The groups of a workload with each maximum, or minimum, over a padded image with channels
    last reading the image itself; None if there is none."""
    program = source.program
    found = False
    for window in padded_windows(program, source.outputs):
        if window.repeats:
            found = True
            producer = next(n for n in program if n.out is window.producer.out)
            assert isinstance(producer.body, Select)
            copy = replace(producer, body=producer.body.x)
            program = inline(tuple(copy if n is producer else n for n in program), copy)
    return grouped(program, program, source.outputs) if found else None


def padded_windows(program: Program, outputs: tuple[Tensor, ...]) -> Iterator[PaddedWindow]:
    """The windows over padded tensors of a program."""
    for nest in program:
        window = PaddedWindow.of(nest, program, outputs)
        if window is not None:
            yield window


@dataclass(frozen=True)
class _Part:
    """Neighbouring elements of one axis that meet the same taps, from `start` and `tap` on."""

    start: int
    count: int
    tap: int
    taps: int


@dataclass(frozen=True)
class PaddedWindow:
    """A reduction `nest` with a `read` of a padded tensor, which `producer` makes. `walks` has the
    index of the tap and the parts of each axis that meets padding."""

    producer: Nest
    nest: Nest
    read: Read
    walks: Mapping[Index, tuple[Index, tuple[_Part, ...]]]

    @staticmethod
    def of(nest: Nest, program: Program, outputs: tuple[Tensor, ...]) -> PaddedWindow | None:
        """The window of a nest, if it has one."""
        made = {n.out: n for n in program if n.out not in outputs}
        padded = [r for r in nest.reads() if r.tensor in made and _fills(made[r.tensor], nest)]
        # A factor 0 leaves a product out of a sum; the least number times something may be any.
        parts = list(factors(nest.body)) if nest.reducer == "sum" else [nest.body]
        if len(padded) != 1 or not any(f is padded[0] for f in parts):
            return None
        (read,) = padded
        uses = [r for n in program for r in n.reads() if r.tensor is read.tensor]
        if len(uses) != 1 or sum(n.out is read.tensor for n in program) != 1:
            return None
        found = PaddedWindow(made[read.tensor], nest, read, {})
        walks = found._walked()
        return replace(found, walks=walks) if walks else None

    @property
    def planes(self) -> list[Index]:
        """The axes that no window walks: each of their elements has a sum of its own."""
        return [axis for axis in self.nest.axes if axis not in self.walks]

    @property
    def rows(self) -> list[Index]:
        """The padded axes that common loops count, where the terms of a sum with channels last may
        be tested: all but the columns."""
        inner = self._inner if self.nest.reducer == "sum" else ()
        return [axis for axis in self.walks if inner and axis not in inner]

    @property
    def common(self) -> list[Index]:
        """Rows and planes that common loops count; no columns, nor channels if these are last."""
        counted = {*self.planes, *self.rows}.difference(self._inner)
        return [axis for axis in self.nest.axes if axis in counted]

    @property
    def _inner(self) -> tuple[Index, ...]:
        """Columns and channels of a row with channels last; else nothing."""
        if self.nest.index[-1].plain() not in self.planes:
            return ()
        placed = (p.plain() for p in self.nest.index)
        return tuple(a for a in placed if a in self.nest.axes)[-2:]

    def parts(self) -> list[Nest]:
        """The nests that write a part of the result each, the largest first."""
        choices = [
            [(axis, tap, p) for p in parts]
            for axis, (tap, parts) in self.walks.items()
            if axis not in self.rows
        ]
        parts = [self._part(chosen) for chosen in itertools.product(*choices)]
        # Nothing but zeros stands before and after its rows.
        copy = replace(self.producer, body=self.tested(self.rows))
        return sorted(inline((copy, *parts), copy), key=lambda n: -n.steps)

    def group(self, target: Target) -> FusionGroup:
        """The parts in the common loops, and in loops over slices of channels that are last."""
        run, common = self.parts(), self.common
        if self._inner:
            high, run = sliced(run, self._inner[-1], self._slice(target))
            common.append(high)
        shared, inner = under(run, [[axis] * len(run) for axis in common if extent(axis) > 1])
        return finished(FusionGroup(shared, tuple(drop_units(n) for n in inner)))

    def tested(self, walked: Collection[Index]) -> Expr:
        """An element of what is padded, or 0 outside of it: one test for each end."""
        body = self.producer.body
        assert isinstance(body, Select)
        spans, value = box(body.cond, self.producer), body.x
        assert spans is not None
        for where, position in zip(self.producer.index, self.read.index, strict=True):
            axis = where.plain()
            if axis is not None and not set(walked).isdisjoint(position.indices()):
                value = spans[axis].where(axis.affine(), extent(axis), value, body.y)
        return value

    def _part(self, chosen: tuple[tuple[Index, Index, _Part], ...]) -> Nest:
        values: dict[Index, IndexExpr] = {}
        loops: dict[Index, Index] = {}
        for axis, tap, part in chosen:
            loops[axis], loops[tap] = Index(axis.name, part.count), Index(tap.name, part.taps)
            values[axis], values[tap] = loops[axis] + part.start, loops[tap] + part.tap
        axes = tuple(loops.get(i, i) for i in self.nest.axes)
        reduce = tuple(loops.get(i, i) for i in self.nest.reduce)
        return substitute_axes(self.nest, axes, reduce, values)

    def _walked(self) -> dict[Index, tuple[Index, tuple[_Part, ...]]] | None:
        """Walk of each padded axis; None if one is not by a plain window."""
        assert isinstance(self.producer.body, Select)
        spans = box(self.producer.body.cond, self.producer)
        walks: dict[Index, tuple[Index, tuple[_Part, ...]]] = {}
        for where, position in zip(self.producer.index, self.read.index, strict=True):
            padded = where.plain()
            if padded is None or not spans or spans[padded] == Span(0, extent(padded)):
                continue
            terms = dict(position.terms)
            axes = [i for i in self.nest.axes if i in terms]
            taps = [i for i in self.nest.reduce if i in terms]
            others = [p for p in self.read.index if p is not position]
            if len(axes) != 1 or len(taps) != 1 or len(terms) != 2 or min(terms.values()) < 1:
                return None
            if any(i in (*axes, *taps) for p in others for i in p.indices()):
                return None
            parts = tuple(_parts(spans[padded], position, axes[0], taps[0]))
            if spans[padded].step != 1 or any(part.taps < 1 for part in parts):
                return None
            walks[axes[0]] = (taps[0], parts)
        return walks

    @property
    def repeats(self) -> bool:
        """Return whether the nearest element of the image, in place of any of the padding, changes
        nothing, and vectors stand along another axis."""
        steps = [dict(p.terms) for p in self.read.index]
        whole = all(
            taps[tap] == 1 for tap, _ in self.walks.values() for taps in steps if tap in taps
        )
        last = self.nest.index[-1].plain()
        if self.nest.reducer not in ("max", "min") or not whole or last not in self.planes:
            return False
        return self._ends_with_image()

    def _ends_with_image(self) -> bool:
        """Return whether what is not padding is all of the image, axis by axis."""
        assert isinstance(self.producer.body, Select)
        image = self.producer.body.x
        spans = box(self.producer.body.cond, self.producer)
        assert isinstance(image, Read)
        assert spans is not None
        ends = set()
        for p, size in zip(image.index, tensor_shape(image.tensor), strict=True):
            axis = (p - p.const).plain()
            if axis is not None and spans[axis] == Span(-p.const, size - p.const):
                ends.add(axis)
        padded = {a for a in self.producer.axes if spans[a] != Span(0, extent(a))}
        inside = [i for p in image.index for i in p.indices()]
        return padded <= ends and all(inside.count(a) == 1 for a in padded)

    def pays(self, target: Target) -> bool:
        """Return whether planes are sums of their own, rows are long, and parts are few."""
        planes = set(self.planes)
        others = [r for r, _ in predicated_reads(self.nest.body) if r is not self.read]
        return (
            bool(planes)
            and planes <= indices(self.read)
            and all(
                math.prod(map(extent, indices(r) - planes)) <= REWRITE.peeling_window_elements
                for r in others
            )
            and math.prod(len(parts) for a, (_, parts) in self.walks.items() if a not in self.rows)
            <= REWRITE.peeling_parts
            and self._row() >= lanes(self.nest, target)
        )

    def _row(self) -> int:
        """Neighbouring elements of the result that one part writes; half as many count where they
        are of a walked axis, along which parts are shorter than the result."""
        last = self.nest.index[-1].plain()
        if last is None:
            return 0
        if last in self.walks:
            return max(part.count for part in self.walks[last][1]) // 2
        return extent(last)

    def _slice(self, target: Target) -> int:
        """Channels that the common loops take at once where they are last: all, or as many whole
        vectors as leave all threads about the same work."""
        size, vector = extent(self._inner[-1]), lanes(self.nest, target)
        others = math.prod(map(extent, self.common))

        def balance(part: int) -> float:
            loops = others * size // part
            return loops / (target.threads * -(-loops // target.threads))

        parts = [n * vector for n in range(size // vector, 0, -1) if size % (n * vector) == 0]
        even = (part for part in (size, *parts) if balance(part) >= REWRITE.peeling_busy_share)
        return next(even, max((size, *parts), key=balance))


def sliced(run: list[Nest], axis: Index, size: int) -> tuple[Index, list[Nest]]:
    """The nests over slices of an axis, and the loop over the slices."""
    high, low = Index(f"{axis.name}.high", extent(axis) // size), Index(f"{axis.name}.low", size)

    def divided(nest: Nest) -> Nest:
        axes = tuple(i for a in nest.axes for i in ((high, low) if a == axis else (a,)))
        return substitute_axes(nest, axes, nest.reduce, {axis: high * size + low})

    return high, [divided(nest) for nest in run]


def _fills(producer: Nest, nest: Nest) -> bool:
    """Return whether a nest copies something into a box and fills the rest with the identity of a
    reduction. That is zeros of a sum, the least number of a maximum. That may be the least finite
    one, as models have it: only among nothing but infinities it is another."""
    body = producer.body
    if producer.reducer is not None or producer.also or not isinstance(body, Select):
        return False
    if not isinstance(body.x, Read) or not isinstance(body.y, Const):
        return False
    dtype = nest.result.dtype
    lowest, highest = limits(dtype)
    finite = (largest(dtype),) if is_float(dtype) else ()
    neutral = {"sum": (0,), "max": (lowest, *(-x for x in finite)), "min": (highest, *finite)}
    return nest.reducer in neutral and body.y.value in neutral[nest.reducer]


def _parts(span: Span, position: Affine, axis: Index, tap: Index) -> Iterator[_Part]:
    """Runs of an axis whose elements meet the same taps within a span."""
    steps, places = dict(position.terms), range(extent(axis))

    def minus_taps(y: int) -> tuple[int, int]:
        """The first tap and the end of them, negative: neither falls along the axis."""
        first = position.const + steps[axis] * y
        low, high = (-(-(at - first) // steps[tap]) for at in (span.start, span.stop))
        return -max(0, low), -min(extent(tap), high)

    at = 0
    while at < len(places):
        here = minus_taps(at)
        end = bisect.bisect_right(places, here, at, key=minus_taps)
        yield _Part(at, end - at, -here[0], here[0] - here[1])
        at = end


class BoundaryPeeling(Rewrite):
    """`O[0] += X[r] * W[r + 1]; O[y + 1] += X[y + r] * W[r]; O[7] += …`: no padded copy."""

    name = "boundary_peeling"
    needs = "a window over a padded tensor in which every channel is a sum of its own"
    numerics = Numerics.STANDARD
    prior = 0.6  # it spares the nearest caches, whose time no estimate has
    minor = 0.3

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = peel_boundaries(base.source, target)
        return None if groups is None else Rewritten(groups, numerics=Numerics.STANDARD)


class ClampedPadding(Rewrite):
    """`O[y] max= X[clip(y + r - 1)]`: a maximum over the edge reads the nearest element again."""

    name = "clamped_padding"
    needs = "a maximum or minimum over a padded image with channels last"

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        groups = clamp_padding(base.source)
        return None if groups is None else Rewritten(groups, numerics=base.source.numerics)
