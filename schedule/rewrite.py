"""Rewrites of nests: pure functions from a nest, or a program of nests, to an equivalent one.

A program is a tuple of nests, executed in order. Each docstring shows *before ↦ after*.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.expr import Binary, Const, Expr, IndexValue, Read, Select, map_leaves
from loopwright.dsl.index import Affine, Index, IndexExpr, Quotient, Remainder
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.nest import Nest, extent, positions

Program = tuple[Nest, ...]
ZERO = Affine((), 0)


def simplify(value: Affine, extents: dict[Index, int]) -> Affine:
    """Resolve quotients and remainders whose value is decided by the ranges.

    `(4*g + o) // 4 ↦ g`  for o < 4.
    """
    total = Affine((), value.const)
    for atom, coefficient in value.terms:
        new: IndexExpr = atom if isinstance(atom, Index) else _resolve(atom, extents)
        total = total + new * coefficient
    return total


def substitute_axes(
    nest: Nest,
    axes: tuple[Index, ...],
    reduce: tuple[Index, ...],
    values: Mapping[Index, IndexExpr],
) -> Nest:
    """The same nest over other loops, old indices expressed by new ones."""
    extents = {i: extent(i) for i in (*axes, *reduce)}

    def position(p: Affine) -> Affine:
        return simplify(p.replace(lambda i: values.get(i, i)), extents)

    def read(r: Read) -> Expr:
        return Read(r.tensor, tuple(position(p) for p in r.index))

    return nest.map(axes, reduce, read, position)


def drop_units(nest: Nest) -> Nest:
    """Loops that run once go: `for n < 1: for i < 8: C[n, i]  ↦  for i < 8: C[0, i]`."""
    units: dict[Index, IndexExpr] = {i: ZERO for i, n in nest.extents.items() if n == 1}
    axes = tuple(i for i in nest.axes if i not in units)
    reduce = tuple(i for i in nest.reduce if i not in units)
    return substitute_axes(nest, axes, reduce, units) if units else nest


def split_divisions(nest: Nest) -> Nest:
    """Split axes so that quotients and remainders become affine, where the divisor divides.

    `for o < 8: X[o // 4, …] W[o]  ↦  for g < 2: for l < 4: X[g, …] W[4*g + l]`
    """
    for axis, divisor in _divisions(nest):
        if extent(axis) % divisor == 0:
            loops = (*nest.axes, *nest.reduce)
            high = Index(_unused(f"{axis.name}_hi", loops), extent(axis) // divisor)
            low = Index(_unused(f"{axis.name}_lo", loops), divisor)
            axes = _replaced(nest.axes, axis, (high, low))
            reduce = _replaced(nest.reduce, axis, (high, low))
            new = substitute_axes(nest, axes, reduce, {axis: high * divisor + low})
            return split_divisions(drop_units(new))
    return nest


def merge_axes(nest: Nest) -> Nest:
    """Fuse neighbouring axes that every access walks contiguously, so that rows get long.

    `for y < 7: for x < 7: Y[c, y, x] = X[c, y, x]  ↦  for yx < 49: Y[c, yx] = X[c, yx]`
    """
    for loops in (nest.axes, nest.reduce):
        for first, second in itertools.pairwise(loops):
            merged = _merge(nest, first, second)
            if merged is not None:
                return merge_axes(merged)
    return nest


def inline(program: Program, producer: Nest) -> Program:
    """Compute an element-wise producer where it is read, and drop its nest.

    `P[i] = f(i); C[j] = g(P[h(j)])  ↦  C[j] = g(f(h(j)))`
    """

    def read(r: Read) -> Expr:
        if r.tensor is not producer.out:
            return r
        values = {
            axis: at
            for where, at in zip(producer.index, r.index, strict=True)
            if (axis := where.plain()) is not None
        }
        return _at(producer.body, values)

    consumers = [n for n in program if n is not producer]
    return tuple(n.map(n.axes, n.reduce, read, lambda p: p) for n in consumers)


def can_inline(program: Program, producer: Nest) -> bool:
    """Whether `inline` keeps the meaning: an element-wise producer, written by one nest over
    its whole tensor, whose readers never leave it."""
    if producer.reducer is not None or producer.epilogue is not None:
        return False
    if sum(n.out is producer.out for n in program) != 1:
        return False
    shape = tensor_shape(producer.out)
    for where, size in zip(producer.index, shape, strict=True):
        axis = where.plain()
        if (extent(axis) if axis else 1) != size:
            return False
    return all(
        _inside(r, nest.extents)
        for nest in program
        for r in nest.reads()
        if r.tensor is producer.out
    )


def fuse_epilogue(producer: Nest, consumer: Nest) -> Nest | None:
    """Compute an element-wise consumer where the reduction writes back; None if it does not fit.

    `C[i, j] += A[i, k] * B[k, j]; D[i, j] = relu(C[i, j])
     ↦  D[i, j] = relu(sum over k of A[i, k] * B[k, j])`
    """
    if producer.reducer is None or producer.epilogue is not None or consumer.reducer is not None:
        return None
    accesses = {r.index for r in consumer.reads() if r.tensor is producer.out}
    if len(accesses) != 1:
        return None
    match = _matching(producer, accesses.pop(), consumer)
    if match is None:
        return None
    extents = consumer.extents | {k: extent(k) for k in producer.reduce}
    fresh = {k: Index(_unused(k.name, consumer.axes), extents[k]) for k in producer.reduce}
    values: dict[Index, IndexExpr] = {**match, **fresh}
    moved = substitute_axes(producer, consumer.axes, tuple(fresh.values()), values)
    return replace(
        moved, out=consumer.out, index=consumer.index, result=producer.out, epilogue=consumer.body
    )


def split_fill(nest: Nest) -> Program:
    """A guarded copy becomes a fill and a copy of the box that the guard describes.

    `for i < 9: P[i] = where((i >= 1) & (i < 8), X[i - 1], 0)
     ↦  for i < 9: P[i] = 0;  for i < 7: P[i + 1] = X[i]`
    """
    body = nest.body
    if nest.reducer is not None or not isinstance(body, Select) or not isinstance(body.y, Const):
        return (nest,)
    spans = _box(body.cond, nest)
    if spans is None:
        return (nest,)
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
    box = substitute_axes(replace(nest, body=body.x), tuple(axes), (), values)
    return (box,) if box.size == nest.size else (fill, box)


@dataclass(frozen=True)
class _Span:
    """The values start, start + step, … below stop that an axis takes where a guard holds."""

    start: int
    stop: int
    step: int = 1

    @property
    def count(self) -> int:
        return max(0, -(-(self.stop - self.start) // self.step))

    def meet(self, other: _Span) -> _Span | None:
        """Both conditions; None for two different strides."""
        if self.step != 1 and other.step != 1:
            return None
        if self.step == 1:
            self, other = other, self
        start = self.start
        if start < other.start:
            start += -(-(other.start - start) // self.step) * self.step
        return _Span(start, min(self.stop, other.stop), self.step)


def _box(cond: Expr, nest: Nest) -> dict[Index, _Span] | None:
    spans = {axis: _Span(0, extent(axis)) for axis in nest.axes}
    tests = [cond]
    while tests:
        test = tests.pop()
        if isinstance(test, Binary) and test.op == "and":
            tests += [test.x, test.y]
            continue
        found = _span(test, nest.extents)
        both = found and spans[found[0]].meet(found[1])
        if not found or not both:
            return None
        spans[found[0]] = both
    return spans


def _span(test: Expr, extents: dict[Index, int]) -> tuple[Index, _Span] | None:
    """The axis and the span that one comparison describes: `i >= 1`, `(i - p) % s == 0`."""
    if not isinstance(test, Binary):
        return None
    sides = [_index_value(test.x), _index_value(test.y)]
    if sides[0] is None or sides[1] is None:
        return None
    gap = sides[0] - sides[1]
    if len(gap.terms) != 1:
        return None
    atom, sign = gap.terms[0]
    if isinstance(atom, Index) and abs(sign) == 1:
        span = _comparison(test.op, sign, gap.const, extents[atom])
        return None if span is None else (atom, span)
    if isinstance(atom, Remainder) and test.op == "eq":
        axis = Affine(atom.value.terms, 0).plain()
        if axis is not None and abs(sign) == 1:
            start = (-gap.const * sign - atom.value.const) % atom.divisor
            return axis, _Span(start, extents[axis], atom.divisor)
    return None


def _comparison(op: str, sign: int, const: int, size: int) -> _Span | None:
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
    return _Span(max(0, start), min(size, stop))


def _index_value(x: Expr) -> Affine | None:
    if isinstance(x, IndexValue):
        return x.value
    return Affine((), int(x.value)) if isinstance(x, Const) else None


def _resolve(atom: Quotient | Remainder, extents: dict[Index, int]) -> Affine:
    value = simplify(atom.value, extents)
    low, high = value.bounds(extents)
    whole = low // atom.divisor
    if whole == high // atom.divisor:
        return Affine((), whole) if isinstance(atom, Quotient) else value - whole * atom.divisor
    return value // atom.divisor if isinstance(atom, Quotient) else value % atom.divisor


def _divisions(nest: Nest) -> list[tuple[Index, int]]:
    found = []
    subscripts = [p for r in nest.reads() for p in r.index]
    for p in (*nest.index, *subscripts, *positions(nest)):
        for atom, _ in p.terms:
            if not isinstance(atom, Index) and (axis := atom.value.plain()) is not None:
                found.append((axis, atom.divisor))
    return sorted(set(found), key=lambda pair: (pair[0].name, pair[1]))


def _merge(nest: Nest, first: Index, second: Index) -> Nest | None:
    accesses = [(nest.out, nest.index)] + [(r.tensor, r.index) for r in nest.reads()]
    where = {id(t): _pair(t, index, first, second) for t, index in accesses}
    if any(_pair(t, i, first, second) != where[id(t)] for t, i in accesses):
        return None
    if any(at is None for at in where.values()):
        return None
    if any(i in (first, second) for p in positions(nest) for i in p.indices()):
        return None
    name = _unused(f"{first.name}{second.name}", (*nest.axes, *nest.reduce))
    whole = Index(name, extent(first) * extent(second))
    views = {id(t): _view(t, at) for (t, _) in accesses if (at := where[id(t)]) is not None}

    def subscript(t: Tensor, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        at = where.get(id(t))
        if at is None or at < 0:
            return index
        return (*index[:at], whole.affine(), *index[at + 2 :])

    result = views[id(nest.out)] if nest.result is nest.out else nest.result

    def read(r: Read) -> Expr:
        if r.tensor is nest.result:
            return Read(result, r.index)
        return Read(views[id(r.tensor)], subscript(r.tensor, r.index))

    def loops(old: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(whole if i == first else i for i in old if i != second)

    new = nest.map(loops(nest.axes), loops(nest.reduce), read, lambda p: p)
    index = subscript(nest.out, nest.index)
    return replace(new, out=views[id(nest.out)], index=index, result=result)


def _pair(t: Tensor, index: tuple[Affine, ...], first: Index, second: Index) -> int | None:
    """Where `first, second` stand side by side over whole axes: a position, -1 for nowhere, None
    if they cannot be merged in this access."""
    used = [d for d, p in enumerate(index) if {first, second} & set(p.indices())]
    if not used:
        return -1
    at = used[0]
    neighbours = used == [at, at + 1] and index[at].plain() == first
    if not neighbours or index[at + 1].plain() != second:
        return None
    return at if tensor_shape(t)[at + 1] == extent(second) else None


def _view(t: Tensor, at: int) -> Tensor:
    """The same storage with axes `at` and `at + 1` seen as one."""
    if at < 0:
        return t
    shape = tensor_shape(t)
    merged = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    return Tensor(t.name, merged, t.dtype, t.constant)


def _at(body: Expr, values: dict[Index, Affine]) -> Expr:
    def position(p: Affine) -> Affine:
        return p.replace(lambda i: values.get(i, i))

    return map_leaves(body, lambda r: Read(r.tensor, tuple(map(position, r.index))), position)


def _inside(read: Read, extents: dict[Index, int]) -> bool:
    for position, size in zip(read.index, tensor_shape(read.tensor), strict=True):
        low, high = position.bounds(extents)
        if low < 0 or high >= size:
            return False
    return True


def _matching(
    producer: Nest, access: tuple[Affine, ...], consumer: Nest
) -> dict[Index, Affine] | None:
    """Producer's axes in terms of the consumer's, if each consumer axis is one of them."""
    match: dict[Index, Affine] = {}
    for where, at in zip(producer.index, access, strict=True):
        axis, other = where.plain(), at.plain()
        if axis is None and where == at:
            continue
        if axis is None or other is None or extent(axis) != extent(other):
            return None
        match[axis] = other.affine()
    found = {p.plain() for p in match.values()}
    exact = found == set(consumer.axes) and len(found) == len(match)
    return match if exact else None


def _replaced(loops: tuple[Index, ...], old: Index, new: tuple[Index, ...]) -> tuple[Index, ...]:
    return tuple(i for loop in loops for i in (new if loop == old else (loop,)))


def _unused(name: str, taken: tuple[Index, ...]) -> str:
    names = {i.name for i in taken}
    while name in names:
        name += "_"
    return name


__all__ = [
    "Program",
    "can_inline",
    "drop_units",
    "fuse_epilogue",
    "inline",
    "merge_axes",
    "simplify",
    "split_divisions",
    "split_fill",
    "substitute_axes",
]
