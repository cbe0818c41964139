"""Tensors of a group that take the place of others. Rows that are long are made in place:

    for row: E[i] = …; S += E[i]; O[row, i] = f(E[i], S)
     ↦  for row: O[row, i] = …; S += O[row, i]; O[row, i] = f(O[row, i], S)

A long row and a copy of it, beside what it is made of, crowd the second-level cache, and the lines
of the result are waited for where nothing else is to be done. In a softmax over 30,522 elements
they are fetched while exponentials are computed. An element must not be changed twice: the last
nest has tiles that divide its axis, and another nest the last elements, at least one of them: so
there are as many nests for rows of any length.

A tensor that is made when another is read no more takes the place of that one, so that caches hold
one of them:

    for block: S[i, j] = …; for i: E[j] = f(S[i, j]); P[i, j] = g(E[j]); O[i] += P[i, j] * …
     ↦  for block: S[i, j] = …; for i: E[j] = f(S[i, j]); S[i, j] = g(E[j]); O[i] += S[i, j] * …
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from loopwright.dsl.expr import Read
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, tensor_bytes, tensor_shape
from loopwright.schedule.program.canonical import substitute_axes
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.nest import Nest, extent
from loopwright.schedule.program.plan import FusionGroup

_LONG = 1 << 15  # bytes of a row that is too long for the first-level cache
_TILE = 64  # elements, of which a tile has a divisor
_FEW = 16  # times as many elements are long enough for slow ones at the end


Shapes = Mapping[str, tuple[tuple[int, ...] | None, ...]]
"""The shapes of tensors by name, at several sizes of a workload with dims."""


def settled(
    workload: Workload, groups: tuple[FusionGroup, ...], others: Shapes | None = None
) -> tuple[FusionGroup, ...]:
    """The groups of a workload, long local rows in the place of their result, and tensors in the
    place of others that are read no more. Where shapes at `others` differ, they are equal at this
    size by chance, and each tensor has a place of its own, as it has at other sizes."""
    others = others or {}
    groups = tuple(_made_in_place(group, others) for group in groups)
    kept = {t.name for t in workload.outputs} | constants_of(workload, groups)
    kept |= {t.name for group in groups for t in group.all_scratch}
    made = dict.fromkeys(n.out for group in groups for n in group.nests)
    whole = FusionGroup((), groups, tuple(t for t in made if t.name not in kept))
    return tuple(p for p in _shared(whole, others).body if isinstance(p, FusionGroup))


def shapes(groups: tuple[FusionGroup, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors that groups make, by name."""
    return {n.out.name: tensor_shape(n.out) for group in groups for n in group.nests}


def _made_in_place(group: FusionGroup, others: Shapes) -> FusionGroup:
    if group.tile_origins:
        return _shared(group, others)
    rows = _Rows(group)
    local = next(filter(rows.stands, group.scratch), None)
    return group if local is None else rows.with_result_for(local)


def _shared(group: FusionGroup, others: Shapes) -> FusionGroup:
    """The group with each local tensor in the place of one before it that is read no more."""
    for before, after in itertools.permutations(group.scratch, 2):
        alike = others.get(before.name) == others.get(after.name)
        if alike and _succeeds(group, before, after):
            moved = _replaced(group, before, after)
            kept = tuple(t for t in group.scratch if t is not after)
            return _shared(replace(moved, scratch=kept), others)
    return group


def _succeeds(group: FusionGroup, before: Tensor, after: Tensor) -> bool:
    """Return whether a tensor may take the place of one like it: its first nest comes after the
    last one that touches that, and in a loop around both each has its own part of them."""
    if (before.dtype, tensor_shape(before)) != (after.dtype, tensor_shape(after)):
        return False
    touched = [t for n in group.nests for t in (n.out, *(r.tensor for r in n.reads()))]
    if any(t.name == known.name and t is not known for t in touched for known in (before, after)):
        return False  # seen with merged axes
    first, second = _touches(group, before), _touches(group, after)
    return all(
        number < later and all(_apart(loop, index, other) for loop in loops & around)
        for number, loops, index in first
        for later, around, other in second
    )


def _touches(
    group: FusionGroup, tensor: Tensor
) -> list[tuple[int, frozenset[Index], tuple[Affine, ...]]]:
    """What writes or reads a tensor: the number of the nest, the loops inside of the group around
    it, and the subscripts."""
    found = []
    for number, (nest, around) in enumerate(group.placed()):
        loops = frozenset(around[len(group.outer) :])
        writes = [(nest.out, at) for at in (nest.index, *(at for at, _ in nest.also))]
        for touched, index in (*writes, *((r.tensor, r.index) for r in nest.reads())):
            if touched is tensor:
                found.append((number, loops, index))
    return found


def _apart(loop: Index, index: tuple[Affine, ...], other: tuple[Affine, ...]) -> bool:
    """Return whether two elements are never the same in different iterations of a loop."""
    return any(a.plain() == loop == b.plain() for a, b in zip(index, other))


def _replaced(group: FusionGroup, before: Tensor, after: Tensor) -> FusionGroup:
    def place(t: Tensor, index: tuple[Affine, ...]) -> tuple[Tensor, tuple[Affine, ...]]:
        return (before if t is after else t), index

    body = (
        _replaced(p, before, after) if isinstance(p, FusionGroup) else p.relocated(place)
        for p in group.body
    )
    return replace(group, body=tuple(body))


class _Rows:
    """The rows of a group, and what its last nest makes of them."""

    def __init__(self, group: FusionGroup) -> None:
        self.group, self.last = group, group.nests[-1]
        self.inner = [d for d, p in enumerate(self.last.index) if p.plain() in self.last.axes]

    def stands(self, local: Tensor) -> bool:
        """Return whether each element of a local tensor makes the result's own element alone."""
        last, out = self.last, self.last.out
        writers = [n for n in self.group.nests if n.out is local]
        touched = [t for n in self.group.nests for t in (n.out, *(r.tensor for r in n.reads()))]
        if any(t.name in (local.name, out.name) and t not in (local, out) for t in touched):
            return False  # seen with merged axes
        reads = {r.index for r in last.reads() if r.tensor is local}
        shape = tuple(tensor_shape(out)[d] for d in self.inner)
        return bool(
            writers
            and tensor_bytes(local) > _LONG
            and (local.dtype, tensor_shape(local)) == (out.dtype, shape)
            and shape[-1] >= _FEW * _TILE
            and [last.index[d].plain() for d in self.inner] == list(last.axes)
            and tuple(extent(a) for a in last.axes) == shape
            and reads == {tuple(last.index[d] for d in self.inner)}
            and all(n.reducer is None and not n.also for n in (*writers, last))
            and out not in self.group.scratch
            and not any(
                n.out is out or any(r.tensor is out for r in n.reads())
                for n in self.group.nests[:-1]
            )
        )

    def with_result_for(self, local: Tensor) -> FusionGroup:
        """The group with the result in the place of a local tensor."""
        *before, last = (self._moved(nest, local) for nest in self.group.nests)
        # Reads of a nest's `result` are those of an accumulator; here none is meant.
        last = replace(last, result=Tensor(last.out.name, tensor_shape(last.out), last.out.dtype))
        kept = tuple(t for t in self.group.scratch if t is not local)
        return replace(self.group, body=(*before, *_in_whole_tiles(last)), scratch=kept)

    def _moved(self, nest: Nest, local: Tensor) -> Nest:
        out = self.last.out

        def index(of: tuple[Affine, ...]) -> tuple[Affine, ...]:
            at = dict(zip(self.inner, of, strict=True))
            return tuple(at.get(d, p) for d, p in enumerate(self.last.index))

        moved = nest.with_reads(lambda r: Read(out, index(r.index)) if r.tensor is local else r)
        if nest.out is not local:
            return moved
        return replace(moved, out=out, index=index(nest.index), result=out)


def _in_whole_tiles(nest: Nest) -> Iterator[Nest]:
    """A nest as one over whole tiles, and one over the last elements."""
    *rest, axis = nest.axes
    whole = (extent(axis) - 1) // _TILE * _TILE
    for start, size in ((0, whole), (whole, extent(axis) - whole)):
        part = Index(axis.name, size)
        values: dict[Index, IndexExpr] = {axis: part + start}
        yield substitute_axes(nest, (*rest, part), (), values)
