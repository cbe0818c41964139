"""Fusion: which definitions of a whole network are one step.

Operators come as groups of definitions. Groups become one step by where all paths from one of
them meet again, its post-dominator:

 - a sum of products takes what follows it element by element: conv → add → relu;
 - what is computed element by element, or moves elements, takes what follows it of that kind;
 - a reduction along rows takes what stands before and behind it element by element.

A reshape, and another part of an array without a gap, stays a step of its own, since it costs
nothing there; so do TVM's functions. Images are left out: they may yet get another layout. What a
loop repeats is fused by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from loopwright.dsl.expr import Binary, Read, Select
from loopwright.dsl.ranges import always
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import map_reads
from loopwright.dsl.workload import Workload, defined, reads, tensor_shape, workload
from loopwright.graph.importers.definitions import Definitions, Foreign, Part, Repeated, read_by
from loopwright.graph.network import MOST_ARGUMENTS
from loopwright.graph.transforms.choices import Choices
from loopwright.graph.transforms.reshape import only_reshapes, view_offset

_MOST_FUSED = 128
"""Definitions of a step: the time to compile one grows by the square of their number."""
_IMAGE = 4
"""Axes of what convolutions read, and of what `graph.transforms.layout` lays out anew."""


class Kind(IntEnum):
    """The steps that a group may be fused with."""

    ELEMENTS = 0
    ROWS = 1
    PRODUCT = 2
    ALONE = 3


def fused(
    parts: Sequence[Part], live: set[Tensor], results: set[Tensor], choices: Choices
) -> list[Part]:
    """The live values that each step computes, in order."""
    own = [p for part in parts for p in _separate(part, live)]
    key = _structure(own, results)
    if key not in choices:
        choices[key] = _Fusion(own, results).groups()
    return _ordered([_group([own[n] for n in numbers]) for numbers in choices[key]])


def _structure(parts: Sequence[Part], results: set[Tensor]) -> Any:
    """A key that parts share which differ in numbers alone."""
    owner = {t: n for n, part in enumerate(parts) for t in part.tensors}
    read = ((owner.get(t) for tensor in p.tensors for t in read_by(tensor)) for p in parts)
    return (
        tuple((p.name, len(p.tensors), *dict.fromkeys(r)) for p, r in zip(parts, read)),
        tuple(n for t, n in owner.items() if t in results),
    )


def _group(parts: Sequence[Part]) -> Part:
    """What one step computes."""
    if not isinstance(parts[0], Definitions):  # which is alone
        return parts[0]
    name = "_".join(part.name for part in parts[:6])
    return Definitions(name, tuple(t for part in parts for t in part.tensors))


def _separate(d: Part, live: set[Tensor]) -> list[Part]:
    """Live values of an operator: definitions of elements alone each on its own, since they are
    fused as their readers are; of a recurrence its products, and what stands between two."""
    tensors = tuple(t for t in d.tensors if t in live)
    if isinstance(d, Repeated) and tensors:
        writes = tuple(r for r in d.loop.writes if r.whole in live)
        return [replace(d, loop=replace(d.loop, writes=writes), tensors=tensors)]
    if isinstance(d, Foreign) or not tensors:
        return [d] if tensors else []
    kinds = [_kind((t,)) for t in tensors]
    if max(kinds) == Kind.ELEMENTS:
        return [Definitions(d.name, (t,)) for t in tensors]
    if kinds.count(Kind.PRODUCT) <= 1:
        return [Definitions(d.name, tensors)]
    parts: list[list[Tensor]] = [[]]
    ends = False
    for tensor, kind in zip(tensors, kinds):
        own = Definitions(d.name, (tensor,))
        alone = kind == Kind.PRODUCT or _group_kind(own) == Kind.ALONE
        if alone or ends:
            parts.append([])
        parts[-1].append(tensor)
        ends = alone
    return [Definitions(d.name, tuple(part)) for part in parts if part]


def _kind(tensors: Sequence[Tensor]) -> Kind:
    kind = Kind.ELEMENTS
    for tensor in tensors:
        d = defined(tensor)
        if d.reducer == "sum" and isinstance(d.body, Binary) and d.body.op == "mul":
            return Kind.PRODUCT
        kind = max(kind, Kind.ROWS if d.reducer else Kind.ELEMENTS)
    return kind


class _Fusion:
    """Groups of operators, by number, united step by step."""

    def __init__(self, parts: Sequence[Part], results: set[Tensor]) -> None:
        self.parts = parts
        self.end = len(parts)
        owner = {t: n for n, part in enumerate(parts) for t in part.tensors}
        self.readers: list[dict[int, bool]] = [{} for _ in parts]  # by number: at its own indices
        for number, part in enumerate(parts):
            for read, in_place in _readings(part):
                source = owner.get(read)
                if source is not None and source != number:
                    same = self.readers[source].get(number, True)
                    self.readers[source][number] = same and in_place
        for tensor in results:
            if tensor in owner:
                self.readers[owner[tensor]][self.end] = False
        self.kinds = [_group_kind(part) for part in parts]
        self.owned = [set(part.tensors) for part in parts]
        self.read = [{source for t in part.tensors for source in read_by(t)} for part in parts]
        self.root = list(range(len(parts)))
        self.meet = self._post_dominators()

    def groups(self) -> list[list[int]]:
        """The numbers of the parts of each group."""
        for kinds in ((Kind.PRODUCT,), (Kind.ELEMENTS, Kind.ROWS)):
            for number in range(self.end):
                if self.kinds[self.find(number)] in kinds and self.kinds[number] in kinds:
                    self._unite(number)
        members: dict[int, list[int]] = {}
        for number in range(self.end):
            members.setdefault(self.find(number), []).append(number)
        return [*members.values()]

    def find(self, number: int) -> int:
        while self.root[number] != number:
            self.root[number] = self.root[self.root[number]]
            number = self.root[number]
        return number

    def _unite(self, number: int) -> None:
        """Unite a group with all up to where its readers meet, if all of them admit it."""
        end = self.meet[number]
        if end == self.end or self.find(end) == self.find(number):
            return
        path = {number}
        stack = [number]
        while stack:
            source = stack.pop()
            for reader, in_place in self.readers[source].items():
                if not self._admits(number, reader, in_place, reader == end):
                    return
                if reader != end and reader not in path:
                    path.add(reader)
                    stack.append(reader)
        roots = {self.find(n) for n in (*path, end)}
        own = set[Tensor]().union(*(self.owned[n] for n in roots))
        read = set[Tensor]().union(*(self.read[n] for n in roots)) - own
        arguments = len(read) + len(self.parts[end].tensors)
        if arguments > MOST_ARGUMENTS or len(own) > _MOST_FUSED:
            return
        kind = max(self.kinds[n] for n in roots)
        target = self.find(end)
        for each in roots:
            self.root[each] = target
        self.kinds[target], self.owned[target], self.read[target] = kind, own, read

    def _admits(self, first: int, reader: int, in_place: bool, last: bool) -> bool:
        own, kind = self.kinds[self.find(first)], self.kinds[self.find(reader)]
        if own != Kind.ELEMENTS or kind == Kind.ROWS:
            return in_place and (kind == Kind.ELEMENTS or (own == Kind.ELEMENTS and last))
        return kind == Kind.ELEMENTS

    def _post_dominators(self) -> list[int]:
        """For each group the first one that every path from it comes through, or the end."""
        meet, depth = [self.end] * (self.end + 1), [0] * (self.end + 1)
        for number in reversed(range(self.end)):
            at: int | None = None
            for reader in self.readers[number]:
                at = reader if at is None else self._common(at, reader, meet, depth)
            meet[number] = self.end if at is None else at
            depth[number] = depth[meet[number]] + 1
        return meet

    def _common(self, a: int, b: int, meet: list[int], depth: list[int]) -> int:
        while a != b:
            if depth[a] < depth[b]:
                a, b = b, a
            a = meet[a]
        return a


def _group_kind(part: Part) -> Kind:
    if not isinstance(part, Definitions):
        return Kind.ALONE
    kind = _kind(part.tensors)
    if kind != Kind.ELEMENTS or len(part.tensors) != 1:
        return kind
    work = workload_of(part.tensors, part.tensors)[0]
    image = any(len(tensor_shape(t)) == _IMAGE for t in (*work.inputs, *work.outputs))
    free = only_reshapes(work) if image else view_offset(work) is not None
    return Kind.ALONE if free else kind


def _readings(part: Part) -> Iterator[tuple[Tensor, bool]]:
    """The tensors that a part reads, each with whether that is at its own place alone."""
    if not isinstance(part, Definitions):
        yield from ((t, False) for t in part.inputs)
        return
    for tensor in part.tensors:
        yield from ((r.tensor, _in_place(tensor, r)) for r in reads(defined(tensor).body))


def _in_place(tensor: Tensor, r: Read) -> bool:
    """Return whether each element reads the one at its own place, and no other."""
    d = defined(tensor)
    axes, body = d.axes, d.body
    if tensor_shape(r.tensor) != tensor_shape(tensor):
        return False
    if isinstance(body, Select) and always(body.cond, d.extents):
        return False  # a part of open size, which is the whole here and not at other sizes
    for position, axis in zip(r.index, axes):
        if position.plain() != axis and not (axis.extent == 1 and not position.terms):
            return False
    return True


def _ordered(groups: Sequence[Part]) -> list[Part]:
    """Groups, each after those that it reads."""
    owner = {t: n for n, group in enumerate(groups) for t in group.tensors}
    order: dict[int, None] = {}
    stack = [(n, False) for n in reversed(range(len(groups)))]
    while stack:
        number, done = stack.pop()
        if number in order:
            continue
        if done:
            order[number] = None
            continue
        stack.append((number, True))
        for tensor in groups[number].tensors:
            for read in read_by(tensor):
                source = owner.get(read)
                if source is not None and source != number and source not in order:
                    stack.append((source, False))
    return [groups[n] for n in order]


def workload_of(
    tensors: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Workload, dict[str, Tensor]]:
    """The workload of definitions, and the tensor that each of its inputs and outputs is."""
    own, new = set(tensors), dict[Tensor, Tensor]()
    names, taken = dict[str, Tensor](), set[str]()

    def copy(t: Tensor) -> Tensor:
        if t not in new:
            fresh = next(n for n in names_like(t.name) if n not in taken)
            taken.add(fresh)
            names[fresh] = t
            new[t] = Tensor(fresh, tensor_shape(t), t.dtype, t.constant and t not in own)
        return new[t]

    for t in tensors:
        d = defined(t)
        body = map_reads(d.body, lambda r: Read(copy(r.tensor), r.index))
        copy(t).definition = Definition(d.axes, d.reduce, d.reducer, body)
    return workload(*(new[t] for t in outputs)), names


def names_like(name: str) -> Iterator[str]:
    """The name itself, and others for what else it would name."""
    yield name
    for number in itertools.count(1):
        yield f"{name}_{number}"
