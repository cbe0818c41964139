"""`Nest`: one loop nest to be scheduled, `out[…] = epilogue(reducer over reduce of body)`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from loopwright.dsl import expr as e
from loopwright.dsl import scans
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.ranges import indices_in
from loopwright.dsl.scans import Scan
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import children, map_leaves, rebuild, walk
from loopwright.dsl.workload import Workload, defined, tensor_shape
from loopwright.schedule.target import Target

Subscripts = tuple[Affine, ...]


@dataclass(frozen=True)
class Nest:
    """One definition on its way to loops, in the notation's own expressions.

    Attributes
    ----------
    out, index: what is written and where, in terms of `axes`.
    axes, reduce: the loops, with their extents.
    reducer: sum, max, min, prod, or an order's greatest and least; None for an element-wise nest,
        whose `body` is the value itself.
    result: the tensor that the reduction defines; in `epilogue` a read of it stands for the
        accumulator.
    epilogue: what is written, or None for the reduction's value itself.
    also: further elements of `out` that each iteration of an element-wise nest writes, where and
        what.
    start: an element that a reduction begins with; None for the reducer's identity.
    sparse: a factor of a sum of products, contiguous along the innermost reduction: steps in which
        it is 0 may be left out.
    keeps_zeros: whether factors that a test makes 0 are multiplied all the same.
    """

    out: Tensor
    index: tuple[Affine, ...]
    axes: tuple[Index, ...]
    reduce: tuple[Index, ...]
    reducer: str | None
    body: e.Expr
    result: Tensor
    epilogue: e.Expr | None = None
    also: tuple[tuple[tuple[Affine, ...], e.Expr], ...] = ()
    start: e.Read | None = None
    sparse: e.Read | None = None
    keeps_zeros: bool = False

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:  # kept, as it is of whole expressions, and asked for by every cache
        return hash(tuple(getattr(self, f.name) for f in fields(self)))

    @functools.cached_property
    def widest(self) -> int:
        """Bytes of an element of its widest type."""
        types = {r.tensor.dtype for r in self.reads()} | {self.out.dtype, self.result.dtype}
        return max(map(item_bytes, types))

    @property
    def extents(self) -> dict[Index, int]:
        return {i: extent(i) for i in (*self.axes, *self.reduce)}

    @property
    def size(self) -> int:
        """Elements written."""
        return math.prod(extent(i) for i in self.axes) * (1 + len(self.also))

    @property
    def steps(self) -> int:
        """Evaluations of the body."""
        return math.prod(self.extents.values())

    def expressions(self) -> tuple[e.Expr, ...]:
        """Bodies, epilogue, and what a reduction begins with."""
        others = (x for x in (self.epilogue, self.start) if x is not None)
        return (self.body, *others, *(body for _, body in self.also))

    def reads(self) -> tuple[e.Read, ...]:
        """Every read but those of the accumulator."""
        return self._reads

    @functools.cached_property
    def _reads(self) -> tuple[e.Read, ...]:
        every = (read for x in self.expressions() for read, _ in predicated_reads(x))
        return tuple(read for read in every if read.tensor is not self.result)

    def map(
        self,
        axes: tuple[Index, ...],
        reduce: tuple[Index, ...],
        read: Callable[[e.Read], e.Expr],
        position: Callable[[Affine], Affine],
    ) -> Nest:
        """The same nest over other loops, its reads and index expressions replaced."""

        def where(index: tuple[Affine, ...]) -> tuple[Affine, ...]:
            return tuple(position(p) for p in index)

        def value(body: e.Expr) -> e.Expr:
            return map_leaves(body, read, position)

        return replace(
            self,
            index=where(self.index),
            axes=axes,
            reduce=reduce,
            body=value(self.body),
            epilogue=None if self.epilogue is None else value(self.epilogue),
            also=tuple((where(index), value(body)) for index, body in self.also),
            start=_read(self.start, read),
            sparse=_read(self.sparse, read),
        )

    def with_reads(self, read: Callable[[e.Read], e.Expr]) -> Nest:
        """The same nest, its reads replaced."""
        return self.map(self.axes, self.reduce, read, lambda p: p)

    def with_subscripts(
        self,
        axes: tuple[Index, ...],
        reduce: tuple[Index, ...],
        position: Callable[[Affine], Affine],
    ) -> Nest:
        """The same nest over other loops, its subscripts and index values replaced."""
        return self.map(
            axes, reduce, lambda r: e.Read(r.tensor, tuple(map(position, r.index))), position
        )

    def relocated(self, place: Callable[[Tensor, Subscripts], tuple[Tensor, Subscripts]]) -> Nest:
        """The same nest with elements of tensors elsewhere: where `place` says."""
        moved = self.with_reads(lambda r: e.Read(*place(r.tensor, r.index)))
        out, index = place(self.out, self.index)
        result = out if self.result is self.out else self.result
        return replace(moved, out=out, index=index, result=result)


def _read(old: e.Read | None, read: Callable[[e.Read], e.Expr]) -> e.Read | None:
    """Expression for a read that remains one."""
    if old is None:
        return None
    new = read(old)
    assert isinstance(new, e.Read), new
    return new


def nests(workload: Workload) -> tuple[Nest, ...]:
    """A nest for each stage, in order; gathered elements come before a reduction."""
    result = []
    names = {t.name for t in (*workload.inputs, *workload.stages)}
    for stage in workload.stages:
        d = defined(stage)
        index = tuple(axis.affine() for axis in d.axes)
        nest = _resolved(Nest(stage, index, d.axes, d.reduce, d.reducer, d.body, stage))
        if is_order(nest) and not _is_plain(nest.body):
            row, nest = _row_before(nest, names)
            result.append(row)
        if nest.reducer is not None and gathers(nest):
            made, nest = _gathered_before(nest, names)
            result += made
        result.append(nest)
    return tuple(result)


def _gathered_before(nest: Nest, names: set[str]) -> tuple[list[Nest], Nest]:
    """A reduction without gathers, and the nests of these: as operands that are re-laid and kept
    in fast memory, they had to be whole.

    `Y[i] += X[I[i, k]] * W[k]  ↦  G[i, k] = X[I[i, k]];  Y[i] += G[i, k] * W[k]`
    """
    made: dict[e.Gather, Nest] = {}

    def without(x: e.Expr) -> e.Expr:
        if not isinstance(x, e.Gather):
            return rebuild(x, without)
        if x not in made:
            name = fresh(f"{nest.out.name}_{x.table.tensor.name}", names)
            made[x] = _nest_of(x, nest, name)
        return e.Read(made[x].out, made[x].index)

    whole = replace(nest, body=without(nest.body))
    return list(made.values()), whole


def _row_before(nest: Nest, names: set[str]) -> tuple[Nest, Nest]:
    """An order of elements that lie in a tensor, and the nest that puts them there."""
    made = _nest_of(nest.body, nest, fresh(f"{nest.out.name}_row", names))
    return made, replace(nest, body=e.Read(made.out, made.index))


def _nest_of(x: e.Expr, nest: Nest, name: str) -> Nest:
    """The nest of a part of another one's body, over those of its axes that the part has."""
    used = set(indices_in(x))
    axes = tuple(i for i in (*nest.axes, *nest.reduce) if i in used)
    out = Tensor(name, tuple(map(extent, axes)), x.dtype)
    return Nest(out, tuple(i.affine() for i in axes), axes, (), None, x, out)


def _is_plain(x: e.Expr) -> bool:
    """Return whether an expression is an element at plain indices."""
    return isinstance(x, e.Read) and all(p.plain() or not p.terms for p in x.index)


def leaves(read: e.Read, extents: Mapping[Index, int]) -> bool:
    """Return whether a read may leave its tensor, under a predicate."""
    for position, size in zip(read.index, tensor_shape(read.tensor), strict=True):
        low, high = position.bounds(extents)
        if low < 0 or high >= size:
            return True
    return False


def fresh(name: str, taken: set[str]) -> str:
    """The name, with underscores behind it until it is none of those `taken`, to which it goes."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _resolved(nest: Nest) -> Nest:
    """Give every index in the expressions the extent that its loop has."""
    known = {i: i for i in nest.extents}
    return nest.with_subscripts(nest.axes, nest.reduce, lambda p: p.replace(known.__getitem__))


def extent(index: Index) -> int:
    """The extent of an index that has one."""
    assert index.extent is not None, index
    return index.extent


def predicated_reads(expr: e.Expr, predicated: bool = False) -> Iterator[tuple[e.Read, bool]]:
    """Every read, and whether a `where` stands over it, so that it may leave its tensor."""
    if isinstance(expr, e.Read):
        yield expr, predicated
    for part, child in enumerate(children(expr)):
        yield from predicated_reads(child, predicated or (isinstance(expr, e.Select) and part > 0))


def is_order(nest: Nest) -> bool:
    """Return whether the nest finds places of elements in order: one call of the run-time a row,
    whose elements are read as they lie."""
    return nest.reducer in e.ORDERS


def scan_of(nest: Nest) -> Scan | None:
    """The running result that a nest computes; None if it is something else."""
    scan = scans.scan_of(nest.axes, nest.reduce, nest.reducer, nest.body)
    if scan is not None and nest.start is not None and scan.axis in set(indices_in(nest.start)):
        return None
    return scan


def gathers(nest: Nest) -> bool:
    """Return whether elements say where the nest reads."""
    return any(isinstance(r, e.Table) for r in nest.reads())


def in_place(nest: Nest) -> bool:
    """Return whether an element-wise nest changes what it writes."""
    return nest.reducer is None and any(r.tensor is nest.out for r in nest.reads())


def reads_of(nests: Iterable[Nest]) -> dict[str, set[str]]:
    """Reads that each tensor is made of, by name, of all nests that write it."""
    found: dict[str, set[str]] = {}
    for nest in nests:
        found.setdefault(nest.out.name, set()).update(r.tensor.name for r in nest.reads())
    return found


def positions(nest: Nest) -> Iterator[Affine]:
    """Every index expression of a nest outside of subscripts: values of indices."""

    def within(expr: e.Expr) -> Iterator[Affine]:
        if isinstance(expr, e.IndexValue):
            yield expr.value
        for child in children(expr):
            yield from within(child)

    for expr in nest.expressions():
        yield from within(expr)


def lanes(nest: Nest, target: Target) -> int:
    """Elements that a vector of this nest has: as many as its widest type leaves room for."""
    return target.lanes(nest.widest)


def sliding(nest: Nest, vector: Index | None, tiled: tuple[Index, ...]) -> tuple[Index, ...]:
    """The reduction axes by which a window slides along the tiled axes, where all that moves along
    them and is read in vectors slides so: neighbours in the tile then read the same vectors.

    `acc[y] ⊕= X[y + r, x] · W[r]` with x in vectors and y tiled: r, since y + 1 reads row r + 1.
    """
    if vector not in nest.axes:
        return ()
    used = {r: {i for p in r.index for i in p.indices()} for r in nest.reads()}
    reads = [r for r, found in used.items() if vector in found and not found.isdisjoint(tiled)]
    return tuple(
        k
        for k in nest.reduce
        if reads
        and all(any({k} < set(p.indices()) <= {k, *tiled} for p in r.index) for r in reads)
    )


@functools.lru_cache(maxsize=4096)
def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def stride(tensor: Tensor, index: tuple[Affine, ...], axis: Index) -> int | None:
    """Elements by which an access moves when `axis` grows by one; None if that varies."""
    total = 0
    for position, step in zip(index, strides(tensor_shape(tensor)), strict=True):
        for atom, coefficient in position.terms:
            if isinstance(atom, Index):
                total += coefficient * step * (atom == axis)
            elif axis in set(atom.value.indices()):
                return None
    return total


def operations(value: e.Expr, tile: Mapping[Index, int] | None = None) -> float:
    """Operations of an element, a product that is added to something as one with that. What does
    not move along an axis of a register tile is computed once for all places along it."""
    total = 0.0
    for part in walk(value):
        if isinstance(part, (e.Binary, e.Unary, e.Select)) and not _fuses(part):
            used = {i for p in _positions(part) for i in p.indices()} if tile else set()
            total += 1 / math.prod(size for a, size in (tile or {}).items() if a not in used)
    return total


def terms(value: e.Expr) -> tuple[e.Expr, ...]:
    """Products of a sum of products, each one operation with its addition; else it alone."""
    if isinstance(value, e.Binary) and value.op == "add" and _is_product(value.y):
        return (*terms(value.x), value.y)
    return (value,)


def _positions(value: e.Expr) -> Iterator[Affine]:
    for part in walk(value):
        if isinstance(part, e.Read):
            yield from part.index
        elif isinstance(part, e.IndexValue):
            yield part.value


def _fuses(value: e.Expr) -> bool:
    """Return whether a sum takes a product with it."""
    if not isinstance(value, e.Binary) or value.op not in ("add", "sub"):
        return False
    return _is_product(value.x) or _is_product(value.y)


def _is_product(value: e.Expr) -> bool:
    return isinstance(value, e.Binary) and value.op == "mul"
