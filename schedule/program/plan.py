"""From the nests of a program to the groups that are scheduled, the same for every sketch."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loopwright.dsl.expr import Table
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.schedule.program.canonical import (
    Program,
    drop_units,
    merge_axes,
    split_divisions,
    substitute_axes,
    unused,
)
from loopwright.schedule.program.footprint import indices
from loopwright.schedule.program.heuristics import PROGRAM
from loopwright.schedule.program.nest import Nest, extent, is_order, stride
from loopwright.schedule.program.padding import split_fill
from loopwright.schedule.program.polyphase import decompose


@dataclass(frozen=True)
class FusionGroup:
    """Nests that run one after the other inside common `outer` loops, outermost first; none for a
    nest on its own. In the `body` are nests, whose `axes` do not include the loops around them, or
    groups. Of `scratch` tensors, which only this group touches, one slice exists at a time.
    `tile_origins` are of tiles that common loops count; `prefetch` is what their next iteration
    reads."""

    outer: tuple[Index, ...]
    body: tuple[Nest | FusionGroup, ...]
    scratch: tuple[Tensor, ...] = ()
    tile_origins: tuple[TileOrigin, ...] = ()
    prefetch: tuple[Prefetch, ...] = ()

    @functools.cached_property
    def nests(self) -> tuple[Nest, ...]:
        """All nests, in the order in which they run."""
        return tuple(nest for nest, _ in self.placed())

    @property
    def all_scratch(self) -> tuple[Tensor, ...]:
        """The local tensors of this group and those of the groups inside."""
        inner = (t for p in self.body if isinstance(p, FusionGroup) for t in p.all_scratch)
        return (*self.scratch, *inner)

    def placed(self, outside: tuple[Index, ...] = ()) -> Iterator[tuple[Nest, tuple[Index, ...]]]:
        """All nests, each with the common loops around it, outermost first."""
        around = (*outside, *self.outer)
        for part in self.body:
            if isinstance(part, FusionGroup):
                yield from part.placed(around)
            else:
                yield part, around


@dataclass(frozen=True)
class Prefetch:
    """Prefetch of the piece of this `number` of a tensor, `size` elements. An iteration of common
    loops reads one piece, the iteration after it the next."""

    tensor: Tensor
    size: int
    number: Affine


@dataclass(frozen=True)
class TileOrigin:
    """`index = min(size * number, extent(index) - 1)`: the last tile overlaps the one before it.
    `number` is of indices of this group and of those around it."""

    index: Index
    number: Affine
    size: int

    @staticmethod
    def of_blocks(name: str, count: int, rows: int) -> tuple[Index, TileOrigin]:
        """The loop over blocks of so many of `count` rows, and where they begin."""
        block = Index(f"{name}.block", -(-count // rows))
        return block, TileOrigin(Index(f"{name}.first", count - rows + 1), block.affine(), rows)


def even_blocks(images: int, count: int, threads: int) -> Iterator[int]:
    """Numbers of an image's rows at a time that keep threads as busy as single rows do."""

    def rounds(rows: int) -> int:
        return -(-images * -(-count // rows) // threads) * rows

    least = rounds(1)  # and so a multiple of them
    small = [d for d in range(1, math.isqrt(least) + 1) if least % d == 0]
    divisors = sorted({*small, *(least // d for d in small)})
    yield from (d for d in divisors if d < count + (images > 1) and rounds(d) == least)


def decomposed(program: Program, workload: Workload) -> Program:
    """The program of a workload with products with zeros skipped."""
    names = {t.name for t in (*workload.inputs, *workload.stages, *(n.out for n in program))}
    return decompose(program, workload.outputs, names)


def grouped(
    run: Program,
    program: Program,
    outputs: tuple[Tensor, ...],
    like: Sequence[Collection[str]] | None = None,
    fills: bool = False,
) -> tuple[FusionGroup, ...]:
    """The groups of a run of nests of a program, ready to be scheduled; `like` for each nest as
    `merge_axes` has it, `fills` as `split_fill`."""
    names = None if like is None else iter(like)
    return tuple(finished(group, names, fills) for group in groups_of(run, program, outputs))


def with_groups(
    program: Program,
    made: Mapping[int, Sequence[FusionGroup]],
    gone: Collection[Tensor],
    outputs: tuple[Tensor, ...],
) -> tuple[FusionGroup, ...]:
    """The groups of a program in which some nests, by `id`, have been made into groups already,
    and those that write the tensors `gone` are left out."""
    done: list[FusionGroup] = []
    run: list[Nest] = []
    for nest in program:
        if id(nest) in made:
            done += [*grouped(tuple(run), program, outputs), *made[id(nest)]]
            run = []
        elif nest.out not in gone:
            run.append(nest)
    return (*done, *grouped(tuple(run), program, outputs))


def names_of(program: Program, workload: Workload) -> set[str]:
    """The names of all tensors of a workload and of a program made of it."""
    taken = {t.name for t in (*workload.inputs, *workload.stages)}
    for nest in program:
        taken |= {nest.out.name, *(r.tensor.name for r in nest.reads())}
    return taken


def has_reuse(nest: Nest) -> bool:
    """Return whether a reduction reads an operand again for other results: register tiles pay."""
    return any(_reused(nest))


def _reused(nest: Nest) -> Iterator[set[Index]]:
    """The indices of each operand that a reduction reads again for other results."""
    if nest.reducer is not None and not is_order(nest):
        within = {k for k in nest.axes if extent(k) > 1}
        used = (indices(r) for r in nest.reads() if r.tensor is not nest.result)
        yield from (u for u in used if within - u)


def finished(
    group: FusionGroup, like: Iterator[Collection[str]] | None = None, fills: bool = False
) -> FusionGroup:
    """The group with its nests as simple as they can be written; `like` and `fills` as `grouped`
    has them."""
    done: list[Nest | FusionGroup] = []
    for part in group.body:
        if isinstance(part, FusionGroup):
            done.append(finished(part, like, fills))
            continue
        filled = split_fill(part, frame=bool(group.outer), fills=fills)
        for nest in filled:
            names = None if like is None else next(like, ())
            done.append(merge_axes(split_divisions(drop_units(nest)), names))
    return replace(group, body=tuple(done))


def groups_of(
    nests: Program, program: Program, outputs: tuple[Tensor, ...]
) -> Iterator[FusionGroup]:
    """Greedy: the longest run of nests from here on that shares outer axes, and so on."""
    start = 0
    while start < len(nests):
        run, best = 1, FusionGroup((), (nests[start],))
        for stop in range(start + 2, len(nests) + 1):
            group = _share(nests[start:stop], program, outputs)
            if group is None or (run > 1 and _rows(group) < _rows(best)):
                break
            run, best = stop - start, group
        yield best
        start += run


def _rows(group: FusionGroup) -> int:
    return math.prod(map(extent, group.outer))


def _share(run: Program, program: Program, outputs: tuple[Tensor, ...]) -> FusionGroup | None:
    """The run under the axes that all of it shares; None if there are none worth it."""
    classes = common_axes(run)
    while classes and all(len(n.axes) + len(n.reduce) == len(classes) for n in run):
        classes.pop()  # something must be left to vectorize
    if not classes or any(_reuses_much(n, {c[i] for c in classes}) for i, n in enumerate(run)):
        return None
    shared, inner = under(run, classes)
    return FusionGroup(*with_scratch(shared, inner, local_tensors(run, program, outputs)))


def common_axes(run: Program) -> list[tuple[Index, ...]]:
    """The axes that all of a run shares, as one of each nest: rows of the first one's, followed
    along the data; none where the run is no chain."""
    made: dict[Tensor, int] = {n.out: number for number, n in enumerate(run)}
    read = {r.tensor for n in run for r in n.reads()}
    if any(not _writes_plainly(n) for n in run if n.out in read or n is run[0]):
        return []
    linked = all(any(r.tensor in made for r in n.reads()) for n in run[1:])
    if not linked or any(map(is_order, run)):
        return []
    classes = [c for axis in run[0].axes if (c := _class_of(axis, run, made)) is not None]
    return [c for c in classes if not _keeps_rows_contiguous(c, run)]


def local_tensors(run: Program, program: Program, outputs: tuple[Tensor, ...]) -> set[Tensor]:
    """The tensors that a run of a program writes, and nothing else needs."""
    others = [n for n in program if n not in run]
    elsewhere = {r.tensor for n in others for r in n.reads()}
    elsewhere |= {r.tensor for n in run for r in n.reads() if isinstance(r, Table)}
    parts = {n.out.name for n in others}  # of what several nests write: phases, say
    made = dict.fromkeys(n.out for n in run)
    return {t for t in made if t not in (*outputs, *elsewhere) and t.name not in parts}


def _reuses_much(nest: Nest, outer: set[Index]) -> bool:
    """Return whether a row uses some operand again that is more than a few elements. Packing and
    larger tiles pay more then than what the rows keep in cache."""
    extents = nest.extents
    return any(
        not outer <= u or math.prod(extents.get(i, 1) for i in u - outer) > PROGRAM.window_elements
        for u in _reused(nest)
    )


def _writes_plainly(nest: Nest) -> bool:
    return tuple(p.plain() for p in nest.index if p.terms) == nest.axes


def _class_of(axis: Index, run: Program, made: dict[Tensor, int]) -> tuple[Index, ...] | None:
    """The axis of each nest of the run that is `axis` of the first one, followed along the data;
    None if some nest reads other rows than the one that it writes."""
    known: dict[int, Index] = {0: axis}
    for number, nest in enumerate(run):
        for read in nest.reads():
            source = made.get(read.tensor)
            if source is None or source not in known:
                continue
            index = run[source].index
            at = next(d for d, p in enumerate(index) if p.plain() == known[source])
            here = read.index[at].plain()
            if here not in nest.axes or known.setdefault(number, here) != here:
                return None
            if all(p.plain() != here for p in nest.index):
                return None
            if any(here in p.indices() for d, p in enumerate(read.index) if d != at):
                return None
    if len(known) != len(run) or len({extent(a) for a in known.values()}) != 1:
        return None
    return tuple(known[number] for number in range(len(run)))


def _keeps_rows_contiguous(axes: tuple[Index, ...], run: Program) -> bool:
    """Return whether this common axis is the contiguous one and the reductions run across it. It
    is better left inside then, as the vector axis."""
    for axis, nest in zip(axes, run, strict=True):
        if nest.reducer is None:
            continue
        for r in nest.reads():
            if not set(nest.reduce) & indices(r):
                continue  # one for a row, as the result of an earlier reduction
            steps = [stride(r.tensor, r.index, k) for k in nest.reduce]
            if stride(r.tensor, r.index, axis) == 1 and 1 not in steps:
                return True
    return False


def under(
    run: Sequence[Nest], classes: Sequence[Sequence[Index]]
) -> tuple[tuple[Index, ...], Program]:
    """A run of nests inside of shared loops, and these: one for each class, which has the axis of
    every nest that it stands for."""
    taken = tuple(i for n in run for i in n.extents)
    shared = tuple(Index(unused(f"row{d}", taken), extent(c[0])) for d, c in enumerate(classes))
    inner = []
    for number, nest in enumerate(run):
        names = {c[number]: row for c, row in zip(classes, shared, strict=True)}
        rest = tuple(a for a in nest.axes if a not in names)
        whole = substitute_axes(nest, (*shared, *rest), nest.reduce, names)
        inner.append(replace(whole, axes=rest))
    return shared, tuple(inner)


def with_scratch(
    outer: tuple[Index, ...], inner: tuple[Nest, ...], scratch: set[Tensor]
) -> tuple[tuple[Index, ...], tuple[Nest, ...], tuple[Tensor, ...]]:
    """Keep one slice of each local tensor: its shared axes go.

    `for row: E[row, k] = …; S[row] += E[row, k]  ↦  for row: E[k] = …; S += E[k]`
    """
    slices: dict[Tensor, Tensor] = {}

    def dims(index: tuple[Affine, ...]) -> list[int]:
        return [d for d, p in enumerate(index) if p.plain() not in outer]

    def sliced(t: Tensor, index: tuple[Affine, ...]) -> tuple[Tensor, tuple[Affine, ...]]:
        if t not in scratch:
            return t, index
        kept = dims(index)
        shape = tuple(tensor_shape(t)[d] for d in kept)
        view = slices.setdefault(t, Tensor(t.name, shape, t.dtype))
        return view, tuple(index[d] for d in kept)

    moved = tuple(nest.relocated(sliced) for nest in inner)
    return outer, moved, tuple(slices.values())
