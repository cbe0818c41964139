"""Padding and joining as rewrites: predicated copies become copies without a predicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.expr import Binary, Const, Expr, IndexValue, Select
from loopwright.dsl.index import Affine, Index, IndexExpr, Remainder
from loopwright.dsl.ranges import always, gap
from loopwright.schedule.program.canonical import Program, substitute_axes
from loopwright.schedule.program.nest import Nest, extent


def is_padding(nest: Nest) -> bool:
    """Return whether a nest copies something into a box and fills the rest with a number."""
    body = nest.body
    if nest.reducer is not None or not isinstance(body, Select):
        return False
    return isinstance(body.y, Const) and box(body.cond, nest) is not None


def pads_some(program: Program) -> bool:
    """Return whether one padding has elements and another has none. At other sizes it may be the
    other way round, as where each of two tensors is padded to the longer one."""
    found = (box(n.body.cond, n) for n in program if is_padding(n) and isinstance(n.body, Select))
    whole = {
        all(span.count == extent(axis) for axis, span in spans.items()) for spans in found if spans
    }
    return len(whole) > 1


def split_fill(nest: Nest, frame: bool = False, fills: bool = False) -> Program:
    """A predicated copy becomes a fill and a copy of the box that the predicate describes.

    `for i < 9: P[i] = where((i >= 1) & (i < 8), X[i - 1], 0)
     ↦  for i < 9: P[i] = 0;  for i < 7: P[i + 1] = X[i]`

    With `frame`, only what the copy leaves out is filled, where that is a frame around it: less
    work, but more loops. With `fills`, what a copy of all overwrites is filled, too.
    """
    body = nest.body
    if nest.reducer is not None or not isinstance(body, Select) or nest.also:
        return (nest,)
    spans = box(body.cond, nest)
    if spans is None:
        return (nest,)
    if not isinstance(body.y, Const):
        return _joined(nest, body, spans)
    values: dict[Index, IndexExpr] = {}
    axes = []
    for axis in nest.axes:
        span = spans[axis]
        inner = Index(axis.name, span.count)
        values[axis] = inner * span.step + span.start
        axes.append(inner)
    fill = replace(nest, body=body.y)
    if any(span.count <= 0 for span in spans.values()):
        return (fill,)
    inside = substitute_axes(replace(nest, body=body.x), tuple(axes), (), values)
    if inside.size == nest.size and not fills:
        return (inside,)
    if frame and all(span.step == 1 for span in spans.values()):
        return (*_frame(fill, spans), inside)
    return (fill, inside)


def _joined(nest: Nest, body: Select, spans: Mapping[Index, Span]) -> Program:
    """A choice between two arrays along one axis, in two parts.

    `for i < 9: C[i] = where(i < 4, A[i], B[i - 4])
     ↦  for i < 4: C[i] = A[i];  for i < 5: C[i + 4] = B[i]`
    """
    cut = [(axis, span) for axis, span in spans.items() if span.count != extent(axis)]
    if len(cut) != 1 or cut[0][1].step != 1 or cut[0][1].count == 0:
        return (nest,)
    axis, span = cut[0]
    if span.start and span.stop != extent(axis):
        return (nest,)
    starts, sizes = dict.fromkeys(nest.axes, 0), nest.extents
    other, rest = (0 if span.start else span.stop), extent(axis) - span.count
    first = _part(
        replace(nest, body=body.x), starts | {axis: span.start}, sizes | {axis: span.count}
    )
    second = _part(replace(nest, body=body.y), starts | {axis: other}, sizes | {axis: rest})
    return (*split_fill(first), *split_fill(second))


def _frame(fill: Nest, spans: Mapping[Index, Span]) -> Iterator[Nest]:
    """Fills around a box: before and after it along each axis, in one nest if both are as wide."""
    starts, sizes = dict.fromkeys(fill.axes, 0), fill.extents
    for axis, span in spans.items():
        before, after = span.start, extent(axis) - span.stop
        parts = [
            _part(fill, starts | {axis: start}, sizes | {axis: width})
            for start, width in ((0, before), (span.stop, after))
            if width
        ]
        if before == after and parts:
            first, last = parts
            parts = [replace(first, also=((last.index, last.body),))]
        yield from parts
        starts[axis], sizes[axis] = span.start, span.count


def _part(nest: Nest, starts: Mapping[Index, int], sizes: Mapping[Index, int]) -> Nest:
    """The nest over a box of its axes."""
    axes = {axis: Index(axis.name, sizes[axis]) for axis in nest.axes}
    values: dict[Index, IndexExpr] = {axis: axes[axis] + starts[axis] for axis in nest.axes}
    return substitute_axes(nest, tuple(axes.values()), (), values)


@dataclass(frozen=True)
class Span:
    """The values start, start + step, … below stop that an axis takes where a predicate holds."""

    start: int
    stop: int
    step: int = 1

    @property
    def count(self) -> int:
        """Values in the span."""
        return max(0, -(-(self.stop - self.start) // self.step))

    def where(self, at: Affine, size: int, x: Expr, y: Expr) -> Expr:
        """`x` where a place along an axis of some size is in the span, else `y`: one test for each
        end of the span, which has no gaps, that is not the axis's own."""
        assert self.step == 1
        if self.start:
            x = Select(Binary("ge", IndexValue(at), Const(self.start, "int32")), x, y)
        if self.stop < size:
            x = Select(Binary("lt", IndexValue(at), Const(self.stop, "int32")), x, y)
        return x

    def meet(self, other: Span) -> Span | None:
        """Both conditions; None for two different strides."""
        if self.step != 1 and other.step != 1:
            return None
        if self.step == 1:
            self, other = other, self
        start = self.start
        if start < other.start:
            start += -(-(other.start - start) // self.step) * self.step
        return Span(start, min(self.stop, other.stop), self.step)


def box(cond: Expr, nest: Nest) -> dict[Index, Span] | None:
    """Box where a condition holds, as a span of every axis; None if that is no box."""
    spans = {axis: Span(0, extent(axis)) for axis in nest.axes}
    tests = [cond]
    while tests:
        test = tests.pop()
        if isinstance(test, Binary) and test.op == "and":
            tests += [test.x, test.y]
            continue
        if always(test, nest.extents):
            continue
        found = _span(test, nest.extents)
        both = found and spans[found[0]].meet(found[1])
        if not found or not both:
            return None
        spans[found[0]] = both
    return spans


def _span(test: Expr, extents: dict[Index, int]) -> tuple[Index, Span] | None:
    """The axis and the span that one comparison describes: `i >= 1`, `(i - p) % s == 0`."""
    between = gap(test)
    if not isinstance(test, Binary) or between is None or len(between.terms) != 1:
        return None
    atom, sign = between.terms[0]
    if isinstance(atom, Index) and abs(sign) == 1 and atom in extents:
        span = _comparison(test.op, sign, between.const, extents[atom])
        return None if span is None else (atom, span)
    if isinstance(atom, Remainder) and test.op == "eq":
        axis = Affine(atom.value.terms, 0).plain()
        wanted = -between.const * sign
        if axis in extents and abs(sign) == 1:
            if not 0 <= wanted < atom.divisor:
                return axis, Span(0, 0)
            start = (-between.const * sign - atom.value.const) % atom.divisor
            return axis, Span(start, extents[axis], atom.divisor)
    return None


def _comparison(op: str, sign: int, const: int, size: int) -> Span | None:
    """The span where  sign·i + const  op  0  holds."""
    if sign < 0:
        op = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(op, op)
        const = -const
    edges = {
        "lt": (0, -const),
        "le": (0, 1 - const),
        "gt": (1 - const, size),
        "ge": (-const, size),
    }
    edges["eq"] = (-const, 1 - const)
    if op not in edges:
        return None
    start, stop = edges[op]
    return Span(max(0, start), min(size, stop))
