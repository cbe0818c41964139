"""Rewrites of nests: pure functions from a nest, or a program of nests, to an equivalent one.

A program is a tuple of nests, executed in order. Each docstring shows *before ↦ after*.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace

from loopwright.dsl.expr import Expr, Read
from loopwright.dsl.index import Affine, Index, IndexExpr, Quotient, Remainder
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import map_leaves
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.nest import Nest, extent, fresh, positions

Program = tuple[Nest, ...]
ZERO = Affine((), 0)


def simplify(value: Affine) -> Affine:
    """Resolve quotients and remainders whose value is decided by the ranges of their loops.

    `(4*g + o) // 4 ↦ g`  for o < 4.
    """
    total = Affine((), value.const)
    for atom, coefficient in value.terms:
        new: IndexExpr = atom if isinstance(atom, Index) else _resolve(atom)
        total = total + new * coefficient
    return total


def places_of(*axes: Index) -> tuple[Affine, ...]:
    """The subscripts of an element, one loop to each."""
    return tuple(a.affine() for a in axes)


def placed(position: Affine | Index, values: Mapping[Index, IndexExpr]) -> Affine:
    """A subscript with values for some of its indices."""
    return position.affine().replace(lambda i: values.get(i, i))


def moved(read: Read, values: Mapping[Index, IndexExpr]) -> Read:
    """A read with values for some of its indices."""
    return Read(read.tensor, tuple(placed(p, values) for p in read.index))


def written(
    nest: Nest, value: Expr, values: Mapping[Index, IndexExpr]
) -> tuple[tuple[Affine, ...], Expr]:
    """Place where a nest writes a result whose axes have some values, and the value."""

    def read(r: Read) -> Expr:
        return value if r.tensor is nest.result else moved(r, values)

    def position(p: Affine) -> Affine:
        return placed(p, values)

    made = value if nest.epilogue is None else map_leaves(nest.epilogue, read, position)
    return tuple(map(position, nest.index)), made


def substitute_axes(
    nest: Nest,
    axes: tuple[Index, ...],
    reduce: tuple[Index, ...],
    values: Mapping[Index, IndexExpr],
) -> Nest:
    """The same nest over other loops, old indices expressed by new ones."""
    return nest.with_subscripts(axes, reduce, lambda p: simplify(placed(p, values)))


def drop_units(nest: Nest) -> Nest:
    """Loops that run once go: `for n < 1: for i < 8: C[n, i]  ↦  for i < 8: C[0, i]`."""
    units: dict[Index, IndexExpr] = {i: ZERO for i, n in nest.extents.items() if n == 1}
    axes = tuple(i for i in nest.axes if i not in units)
    reduce = tuple(i for i in nest.reduce if i not in units)
    return substitute_axes(nest, axes, reduce, units) if units else nest


def split_divisions(nest: Nest) -> Nest:
    """Split axes so that quotients and remainders become affine, where the divisor divides. Loops
    that the nest shares with others stay whole.

    `for o < 8: X[o // 4, …] W[o]  ↦  for g < 2: for l < 4: X[g, …] W[4*g + l]`
    """
    for axis, divisor in _divisions(nest):
        if axis in nest.extents and extent(axis) % divisor == 0:
            loops = indices_in(nest)
            high = Index(unused(f"{axis.name}_hi", loops), extent(axis) // divisor)
            low = Index(unused(f"{axis.name}_lo", loops), divisor)
            axes = _replaced(nest.axes, axis, (high, low))
            reduce = _replaced(nest.reduce, axis, (high, low))
            new = substitute_axes(nest, axes, reduce, {axis: high * divisor + low})
            return split_divisions(drop_units(new))
    return nest


def merge_axes(nest: Nest, like: Collection[str] | None = None) -> Nest:
    """Fuse neighbouring axes that every access walks contiguously, so that rows get long.

    `for y < 7: for x < 7: Y[c, y, x] = X[c, y, x]  ↦  for yx < 49: Y[c, yx] = X[c, yx]`

    Of axes with names as those of `like`, where these are given, alone.
    """
    for loops in () if nest.also else (nest.axes, nest.reduce):
        for first, second in itertools.pairwise(loops):
            if like is not None and not any(first.name + second.name in name for name in like):
                continue
            merged = _merge(nest, first, second)
            if merged is not None:
                return merge_axes(merged, like)
    return nest


def _resolve(atom: Quotient | Remainder) -> Affine:
    value = simplify(atom.value)
    low, high = value.bounds({i: extent(i) for i in value.indices()})
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
    name = unused(f"{first.name}{second.name}", indices_in(nest))
    whole = Index(name, extent(first) * extent(second))
    views = {id(t): _view(t, at) for (t, _) in accesses if (at := where[id(t)]) is not None}

    def subscript(t: Tensor, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        at = where.get(id(t))
        if at is None or at < 0:
            return index
        return (*index[:at], whole + index[at].const * extent(second), *index[at + 2 :])

    result = views[id(nest.out)] if nest.result is nest.out else nest.result

    def read(r: Read) -> Expr:
        if r.tensor is nest.result:  # by its place where that is what a sum begins with
            own = nest.result is nest.out
            return Read(result, subscript(nest.out, r.index) if own else r.index)
        return Read(views[id(r.tensor)], subscript(r.tensor, r.index))

    def loops(old: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(whole if i == first else i for i in old if i != second)

    new = nest.map(loops(nest.axes), loops(nest.reduce), read, lambda p: p)
    index = subscript(nest.out, nest.index)
    return replace(new, out=views[id(nest.out)], index=index, result=result)


def _pair(t: Tensor, index: tuple[Affine, ...], first: Index, second: Index) -> int | None:
    """Position where `first, second` stand side by side, the second over a whole axis. -1 is for
    nowhere, None if they cannot be merged in this access."""
    used = [d for d, p in enumerate(index) if {first, second} & set(p.indices())]
    if not used:
        return -1
    at = used[0]
    start = index[at].const
    neighbours = used == [at, at + 1] and index[at] == first + start
    if not neighbours or index[at + 1].plain() != second:
        return None
    shape = tensor_shape(t)
    # Else it would be clamped, which merging would change.
    inside = 0 <= start <= shape[at] - extent(first)
    return at if inside and shape[at + 1] == extent(second) else None


def _view(t: Tensor, at: int) -> Tensor:
    """The same storage with axes `at` and `at + 1` seen as one."""
    if at < 0:
        return t
    shape = tensor_shape(t)
    merged = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    return Tensor(t.name, merged, t.dtype, t.constant)


def indices_in(nest: Nest) -> tuple[Index, ...]:
    """Every index of a nest: its loops, and the rows that it stands in."""
    subscripts = [p for r in nest.reads() for p in r.index]
    used = (i for p in (*nest.index, *subscripts, *positions(nest)) for i in p.indices())
    return tuple(dict.fromkeys((*nest.axes, *nest.reduce, *used)))


def _replaced(loops: tuple[Index, ...], old: Index, new: tuple[Index, ...]) -> tuple[Index, ...]:
    return tuple(i for loop in loops for i in (new if loop == old else (loop,)))


def unused(name: str, taken: tuple[Index, ...]) -> str:
    """The name, with underscores behind it until no loop has it."""
    return fresh(name, {i.name for i in taken})
