"""Zero-skipping: a sum of products over a tensor that is mostly zeros, as one nest for each phase.

    S[u] = where(u % s == a, X[u // s], 0);  O[y] += S[y + r] * W[r]
     ↦  O[s*y + p] += X[y + r + (p + q - a) / s] * W[s*r + q]        p < s,  q = (a - p) mod s

An element of the result meets the same taps of the window as the one s further on does; the other
taps meet zeros. So each of the s phases of y is a shorter window over what is not zero in S. With
two such axes there are s² phases, each with 1/s² of the products. Transposed convolutions by steps
of s are of this kind.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Binary, Cast, Const, Expr, Read, Select
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import map_reads
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import Program, drop_units, substitute_axes
from loopwright.schedule.program.fusion import can_inline, inline
from loopwright.schedule.program.heuristics import PROGRAM
from loopwright.schedule.program.nest import Nest, extent, fresh
from loopwright.schedule.program.padding import Span, box


def decompose(program: Program, outputs: tuple[Tensor, ...], taken: set[str]) -> Program:
    """The program with every sum of products over a spread tensor in phases.

    `S[u] = where(u % 2 == 0, X[u // 2], 0);  O[y] = sum over r < 4 of S[y + r] * W[r]
     ↦  O[2*y] = sum over r < 2 of X[y + r] * W[2*r];
        O[2*y + 1] = sum over r < 2 of X[y + r + 1] * W[2*r + 1]`

    `taken` are the names that no new tensor may have.
    """
    taken = set(taken)
    for spread in [n.out for n in program if isinstance(n.body, Select)]:
        found = None if spread in outputs else _Spread.of(spread, program)
        if found is None:
            continue
        dense, phases = found.split(fresh(f"{spread.name}_dense", taken))
        program = tuple(
            part
            for n in program
            for part in (dense if n is found.producer else phases if n is found.nest else (n,))
        )
        for nest in dense:
            if isinstance(nest.body, Read) and can_inline(program, nest):
                program = inline(program, nest)
    return program


def is_spread(nest: Nest) -> bool:
    """Return whether a nest writes zeros between the elements of something."""
    spans = spans_of(nest)
    return spans is not None and any(span.step > 1 for span in spans)


@dataclass(frozen=True)
class _Spread:
    """A tensor that is zero outside of a strided box (`spans`), its `producer`, and the one `nest`
    that sums over it, by a `read`."""

    producer: Nest
    spans: tuple[Span, ...]
    nest: Nest
    read: Read

    @staticmethod
    def of(tensor: Tensor, program: Program) -> _Spread | None:
        """A tensor with the sum over it; None if it is not of this kind."""
        writers = [n for n in program if n.out is tensor]
        uses = [(n, r) for n in program for r in n.reads() if r.tensor is tensor]
        if len(writers) != 1 or len(uses) != 1:
            return None
        (producer,), ((nest, read),) = writers, uses
        spans = spans_of(producer)
        if spans is None or nest.reducer != "sum":
            return None
        if not any(factor is read for factor in factors(nest.body)):
            return None
        found = _Spread(producer, spans, nest, read)
        return found if found._splits() else None

    def split(self, name: str) -> tuple[Program, Program]:
        """Nests of the elements that are not zero, if any are read, and the components."""
        chosen = itertools.product(*(walk.phases() for walk in self._walks()))
        parts = [drop_units(self._part(phases)) for phases in chosen]
        own = self.read.tensor
        uses = [(part, r) for part in parts for r in part.reads() if r.tensor is own]
        reads = [(part, self._dense_index(r)) for part, r in uses]
        if not reads:
            return (), tuple(parts)
        bounds = [[p.bounds(part.extents) for p in index] for part, index in reads]
        reach = [(min(low), max(high)) for low, high in (zip(*axis) for axis in zip(*bounds))]
        dense = self._dense(name, reach)
        lows = [low if span.step > 1 else 0 for (low, _), span in zip(reach, self.spans)]

        def read(r: Read) -> Expr:
            if r.tensor is not self.read.tensor:
                return r
            moved = zip(self._dense_index(r), lows, strict=True)
            return Read(dense.out, tuple(p - low for p, low in moved))

        return (dense,), tuple(n.with_reads(read) for n in parts)

    def _splits(self) -> bool:
        """Return whether one result index and one tap at most decide what each axis meets."""
        walks = list(self._walks())
        used = [i for walk in walks for i in (walk.axis, walk.tap) if i is not None]
        return (
            0 < len(walks) == sum(span.step > 1 for span in self.spans)
            and len(set(used)) == len(used)
            and math.prod(walk.count for walk in walks) <= PROGRAM.phases
        )

    def _walks(self) -> Iterator[_Walk]:
        for span, position in zip(self.spans, self.read.index, strict=True):
            if span.step == 1:
                continue
            steps = {i: c for i, c in position.terms if c % span.step}
            axes = [i for i in steps if i in self.nest.axes]
            taps = [i for i in steps if i in self.nest.reduce]
            decided = len(axes) <= 1 and len(taps) <= 1 and len(axes) + len(taps) == len(steps)
            if decided and all(math.gcd(steps[i], span.step) == 1 for i in taps):
                axis, tap = (found[0] if found else None for found in (axes, taps))
                yield _Walk(span, position, axis, tap)

    def _part(self, phases: tuple[_Phase, ...]) -> Nest:
        """One phase of the sum; where nothing but zeros is met, the value of an empty sum."""
        nest = self.nest
        loops = {old: new for phase in phases for old, new in phase.loops.items()}
        values = {old: new for phase in phases for old, new in phase.values.items()}
        if not all(phase.meets for phase in phases):
            nest = _empty(nest)
        axes, reduce = (
            tuple(loops.get(i, i) for i in indices) for indices in (nest.axes, nest.reduce)
        )
        return substitute_axes(nest, axes, reduce, values)

    def _dense_index(self, read: Read) -> tuple[Affine, ...]:
        """Element that is not zero which a phase reads: `S[s*y + s*r + a]  ↦  y + r`."""
        places = zip(read.index, self.spans, strict=True)
        return tuple((p - s.start) // s.step if s.step > 1 else p for p, s in places)

    def _dense(self, name: str, reach: list[tuple[int, int]]) -> Nest:
        """Every s-th element, with as many zeros around them as the phases read.

        `S[u] = where((u >= 3) & (u < 10) & ((u - 3) % 2 == 0), X[(u - 3) // 2], 0)
         ↦  D[u] = where((u >= 1) & (u < 5), X[u - 1], 0)`  if they read from -1 on.
        """
        values: dict[Index, IndexExpr] = {}
        axes, index, shape = [], [], []
        tests: list[Expr] = []
        old = zip(self.producer.index, tensor_shape(self.producer.out), strict=True)
        for (where, size), span, (low, high) in zip(old, self.spans, reach, strict=True):
            axis, start, stop = where.plain(), span.start, span.stop
            if axis is not None and span.step > 1:
                size = high - low + 1
                start, stop = -low, span.count - low
                values[axis] = Index(axis.name, size) * span.step + low * span.step + span.start
            if axis is not None:
                axis = Index(axis.name, size)
                axes.append(axis)
                tests += [axis >= start] if start > 0 else []
                tests += [axis < stop] if stop < size else []
            index.append(where if axis is None else axis.affine())
            shape.append(size)
        out = Tensor(name, tuple(shape), self.producer.out.dtype)
        assert isinstance(self.producer.body, Select)
        inside = replace(self.producer, body=self.producer.body.x)
        body = substitute_axes(inside, tuple(axes), (), values).body
        if tests:
            body = Select(functools.reduce(operator.and_, tests), body, self.producer.body.y)
        return Nest(out, tuple(index), tuple(axes), (), None, body, out)


@dataclass(frozen=True)
class _Phase:
    """Every s-th value of the indices that walk a strided axis: these in terms of the phase's own
    `loops`, and whether the phase `meets` anything but zeros."""

    values: Mapping[Index, IndexExpr]
    loops: Mapping[Index, Index]
    meets: bool


@dataclass(frozen=True)
class _Walk:
    """Walk of the sum along a strided axis, which may be other than zero in a `span`, by the
    subscript `position`. The index `axis` of the result and the `tap` of the sum, or None, decide
    whether it meets zeros: all others move it by multiples of the stride."""

    span: Span
    position: Affine
    axis: Index | None
    tap: Index | None

    @property
    def count(self) -> int:
        """Phases, those included that have no element of the result."""
        return 1 if self.axis is None else self.span.step

    def phases(self) -> Iterator[_Phase]:
        """`y ↦ 2*y, r ↦ 2*r` and `y ↦ 2*y + 1, r ↦ 2*r + 1`, for a stride of 2."""
        step = self.span.step
        for place in range(self.count):
            tap = self._tap(place)
            starts = {self.axis: place, self.tap: tap or 0}
            counts = {i: -(-(extent(i) - at) // step) for i, at in starts.items() if i is not None}
            if self.axis is not None and counts[self.axis] < 1:
                continue
            meets = tap is not None and (self.tap is None or counts[self.tap] > 0)
            loops = {i: Index(i.name, max(n, 1)) for i, n in counts.items()}
            yield _Phase({i: new * step + starts[i] for i, new in loops.items()}, loops, meets)

    def _tap(self, place: int) -> int | None:
        """The first tap with which this place of the result meets something, if any does."""
        for tap in range(1 if self.tap is None else self.span.step):
            first = {self.axis: place, self.tap: tap}
            moved = sum(step * first[i] for i, step in self.position.terms if i in first)
            if (self.position.const + moved - self.span.start) % self.span.step == 0:
                return tap
        return None


def spans_of(producer: Nest) -> tuple[Span, ...] | None:
    """Spans where an element-wise nest writes other than zeros, axis by axis; or None."""
    body = producer.body
    if producer.reducer is not None or not isinstance(body, Select):
        return None
    if not isinstance(body.y, Const) or body.y.value != 0:
        return None
    found = box(body.cond, producer)
    if found is None or any(span.count < 1 for span in found.values()):
        return None
    plain = [p.plain() for p in producer.index]
    if any(axis is None and p.terms for axis, p in zip(plain, producer.index, strict=True)):
        return None
    return tuple(Span(0, 1) if axis is None else found[axis] for axis in plain)


def _empty(nest: Nest) -> Nest:
    """A sum over nothing: `O[y] = sum over r of … then relu  ↦  O[y] = relu(0)`."""
    zero = Const(0.0 if is_float(nest.result.dtype) else 0, nest.result.dtype)

    def read(r: Read) -> Expr:
        return zero if r.tensor is nest.result else r

    body = zero if nest.epilogue is None else map_reads(nest.epilogue, read)
    return Nest(nest.out, nest.index, nest.axes, (), None, body, nest.out)


def factors(x: Expr) -> Iterator[Expr]:
    """Factors of an expression."""
    if isinstance(x, Binary) and x.op == "mul":
        yield from factors(x.x)
        yield from factors(x.y)
    elif isinstance(x, Cast):
        yield from factors(x.x)
    else:
        yield x
