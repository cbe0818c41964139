"""Range inference: the extent of every index of a definition, from the tensors that it indexes.

Three kinds of evidence, strongest first:
 - *declared*: `lw.indices("r", r=3)`, the shape of the tensor on the left, or a tensor that the
   index alone indexes (`A[i, k]`); all of these must agree, but that `lw.indices` may declare
   less than an axis has, which reads its beginning;
 - *derived*: the largest range for which `X[2*y + r]` stays inside X, once r is known;
 - *guarded*: reads under `where`, which may leave their tensor; used only when nothing else tells,
   those by the index alone first.
Reads that are not guarded are then checked to stay inside their tensors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from loopwright.dsl.dtypes import is_float
from loopwright.dsl.errors import RangeError, UndecidedError
from loopwright.dsl.expr import COMPARISONS, Binary, Const, Expr, IndexValue, Read, Select
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.size import Size
from loopwright.dsl.traversal import children


@dataclass(frozen=True)
class _Position:
    """One subscript of one read. Its text says where it stands."""

    read: Read
    axis: int
    position: Affine
    extent: int
    guarded: bool

    def __str__(self) -> str:
        indices = ", ".join(map(str, self.read.index))
        return f"axis {self.axis} of {self.read.tensor.name}[{indices}]"


_Evidence = dict[Index, tuple[int, _Position | str]]
"""The range of an index, and the place that tells it."""


def infer(
    name: str, axes: tuple[Index, ...], shape: tuple[int, ...] | None, body: Expr
) -> dict[Index, int]:
    """The extent of every index, left-hand axes first, then in order of first appearance.

    Raises `RangeError` if two places disagree, a range is unknown, or a read leaves its tensor.
    """
    if shape is not None and len(shape) != len(axes):
        raise RangeError(f"{name} has shape {shape} but {len(axes)} indices on the left")
    positions = list(_positions(body, guarded=False))
    evidence: _Evidence = {}
    _declare(evidence, name, axes, shape, body)
    declared = {i: i.extent for i in (*axes, *indices_in(body)) if i.extent is not None}
    for p in positions:
        index = p.position.plain()
        if index is None or p.guarded:
            continue
        with _placed(p):  # of an index that is declared to read the beginning of an axis alone
            part = declared.get(index, p.extent) < p.extent
        if not part:
            _agree(evidence, index, p.extent, p)
    order = list(dict.fromkeys([*axes, *indices_in(body)]))
    _derive(evidence, [p for p in positions if not p.guarded])
    guarded = [p for p in positions if p.guarded]
    _derive(evidence, [p for p in guarded if p.position.plain()])
    _derive(evidence, guarded)
    for index in order:
        if index not in evidence:
            or_shape = f", or give {name} its shape" if index in axes else ""
            raise RangeError(
                f"{name}: the range of index {index} is not known: it indexes no tensor by "
                f'itself; give it, e.g. lw.indices("{index}", {index}=3){or_shape}'
            )
    extents = {index: evidence[index][0] for index in order}
    _check_inside(name, extents, evidence, positions)
    return extents


def _declare(
    evidence: _Evidence,
    name: str,
    axes: tuple[Index, ...],
    shape: tuple[int, ...] | None,
    body: Expr,
) -> None:
    for index in (*axes, *indices_in(body)):
        if index.extent is not None:
            _agree(evidence, index, index.extent, f"its declaration {index}={index.extent}")
    for axis, (index, extent) in enumerate(zip(axes, shape or ())):
        _agree(evidence, index, extent, f"axis {axis} of {name}")


def _agree(evidence: _Evidence, index: Index, extent: int, place: _Position | str) -> None:
    known = evidence.setdefault(index, (extent, place))
    if known[0] != extent:
        raise RangeError(
            f"index {index} ranges over {known[0]} by {known[1]}, but over {extent} by {place}"
            f"{_remedy(index, known[0], extent)}"
        )


def _remedy(index: Index, one: int, other: int) -> str:
    """Way to read the beginning of the longer axis alone, where no size is open."""
    if index.extent is not None or not (isinstance(one, int) and isinstance(other, int)):
        return ""
    return (
        f"; give axes of one extent, or declare the part that is read of the longer one: "
        f'lw.indices("{index}", {index}={min(one, other)})'
    )


def _derive(evidence: _Evidence, positions: list[_Position]) -> None:
    """Give an index the largest range that keeps a subscript inside, where it is the last
    unknown there, until nothing new is learned."""
    progress = True
    while progress:
        progress = False
        found: _Evidence = {}
        for p in positions:
            unknown = {i for i in p.position.indices() if i not in evidence}
            if len(unknown) == 1:
                index = unknown.pop()
                with _placed(p):
                    extent = _largest(p, index, evidence)
                if extent is not None:
                    _agree(found, index, extent, p)
        evidence.update(found)
        progress = bool(found)


def _largest(p: _Position, index: Index, evidence: _Evidence) -> int | None:
    extents = {i: evidence[i][0] for i in p.position.indices() if i != index}
    extents[index] = 1
    at_zero = p.position.bounds(extents)[1]
    coefficient = dict(p.position.terms).get(index)
    if coefficient is None or _within(p.position, index):
        return _by_growing(p, index, extents)
    if coefficient < 0:
        return None
    if at_zero >= p.extent:
        raise RangeError(
            f"{p}: {p.position} leaves the axis of extent {p.extent} even for {index} = 0"
        )
    return (p.extent - 1 - at_zero) // coefficient + 1


@contextmanager
def _placed(p: _Position) -> Iterator[None]:
    """Say where sizes that no comparison tells apart stand."""
    try:
        yield
    except UndecidedError as error:
        raise UndecidedError(f"{p}: {error}") from None


def _within(position: Affine, index: Index) -> bool:
    """Return whether an index stands inside a quotient or a remainder."""
    atoms = (atom for atom, _ in position.terms if not isinstance(atom, Index))
    return any(index in atom.value.indices() for atom in atoms)


def _by_growing(p: _Position, index: Index, extents: dict[Index, int]) -> int | None:
    if any(isinstance(n, Size) for n in (p.extent, *extents.values())):
        return None  # no bound for the search; another place must tell
    scale = math.prod(a.divisor for a, _ in p.position.terms if not isinstance(a, Index))
    start = min(0, p.position.bounds({**extents, index: 1})[0])
    low, limit = 0, (p.extent - start) * scale
    high = limit + 1
    while low < high:  # the greatest extent whose bounds stay inside
        middle = (low + high + 1) // 2
        inside = p.position.bounds({**extents, index: middle})[1] < p.extent
        low, high = (middle, high) if inside else (low, middle - 1)
    return low if 0 < low <= limit else None


def _check_inside(
    name: str, extents: dict[Index, int], evidence: _Evidence, positions: list[_Position]
) -> None:
    if 0 in extents.values():
        return  # nothing is read
    for p in positions:
        if p.guarded:
            continue
        with _placed(p):
            low, high = p.position.bounds(extents)
            leaves = low < 0 or high >= p.extent
        if leaves:
            inside = dict.fromkeys(p.position.indices())
            ranges = "; ".join(f"{i} < {extents[i]} by {evidence[i][1]}" for i in inside)
            known = f" ({ranges})" if ranges else ""
            if not inside:
                raise RangeError(
                    f"{name}: {p.position} is outside of {p}, which has extent {p.extent}; "
                    f"give 0 to {p.extent - 1}, pad it with lw.pad or guard it with lw.where"
                )
            raise RangeError(
                f"{name}: {p.position} reaches {low} to {high}, outside of {p}, which has "
                f"extent {p.extent}{known}; pad it with lw.pad or guard it with lw.where"
                f"{_shorter(inside, extents, positions)}"
            )


def _shorter(
    indices: Iterable[Index], extents: dict[Index, int], positions: list[_Position]
) -> str:
    """Advice to declare the range of the one index, as of a stencil, by which all reads are
    inside."""
    index, *others = indices
    reads = [p for p in positions if not p.guarded and index in p.position.indices()]
    ends = [n for p in reads if (n := _by_growing(p, index, extents)) is not None]
    inside = len(ends) == len(reads) and all(p.position.bounds(extents)[0] >= 0 for p in reads)
    if others or not inside:
        return ""
    return f', or declare a shorter range: lw.indices("{index}", {index}={min(ends)})'


def _positions(expr: Expr, guarded: bool) -> Iterator[_Position]:
    if isinstance(expr, Read):
        shape = expr.tensor.shape or ()
        for axis, (position, extent) in enumerate(zip(expr.index, shape, strict=True)):
            yield _Position(expr, axis, position, extent, guarded)
    elif isinstance(expr, Select):
        yield from _positions(expr.cond, guarded)
        yield from _positions(expr.x, True)
        yield from _positions(expr.y, True)
    else:
        for child in children(expr):
            yield from _positions(child, guarded)


def ranks_of(axes: Iterable[Index], body: Expr) -> tuple[Index, ...]:
    """The indices of a definition's left that its body has not: of an order, what counts ranks."""
    used = set(indices_in(body))
    return tuple(i for i in axes if i not in used)


def indices_in(expr: Expr) -> Iterator[Index]:
    """Every index in an expression, in order of appearance, repeats included."""
    if isinstance(expr, Read):
        for position in expr.index:
            yield from position.indices()
    elif isinstance(expr, IndexValue):
        yield from expr.value.indices()
    for child in children(expr):
        yield from indices_in(child)


def gap(test: Expr) -> Affine | None:
    """Difference of the left side of a comparison of indices and the right one; None of another
    expression."""
    if not isinstance(test, Binary):
        return None
    x, y = _index_value(test.x), _index_value(test.y)
    return None if x is None or y is None else x - y


def always(test: Expr, extents: Mapping[Index, int]) -> bool:
    """Return whether a comparison of indices, or all of several, hold over their whole ranges."""
    if isinstance(test, Binary) and test.op == "and":
        return always(test.x, extents) and always(test.y, extents)
    between = gap(test)
    if not isinstance(test, Binary) or between is None or test.op not in COMPARISONS:
        return False
    if not all(i in extents for i in between.indices()):
        return False
    ends = between.bounds(extents)
    decided = test.op not in ("eq", "ne") or ends[0] == ends[1]
    return decided and all(getattr(operator, test.op)(end, 0) for end in ends)


def _index_value(x: Expr) -> Affine | None:
    if isinstance(x, IndexValue):
        return x.value
    if isinstance(x, Const) and not is_float(x.type):
        return Affine((), int(x.value))
    return None
