"""A network read at some sizes, and what it is at all others.

Models are read at fixed sizes, as ever. Where the networks of several sizes have the same steps,
what differs are numbers, and each becomes a formula of the dims: a frame is such a network for a
box of sizes. Sizes with other steps get a frame of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim, boxes
from loopwright.dsl.words import assigned
from loopwright.dsl.workload import Workload
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.tir import Imported
from loopwright.graph.loops import Loop
from loopwright.graph.network import Step, Value
from loopwright.graph.open.known import begins
from loopwright.graph.open.once import as_of_many
from loopwright.graph.tasks import Work
from loopwright.graph.transforms.reshape import view_offset
from loopwright.schedule.open.cover import gap
from loopwright.schedule.open.family import Family, numbered
from loopwright.schedule.open.unify import Structure, Unification
from loopwright.schedule.tree.formula import Formula

Number = Formula | int
Read = Callable[[Mapping[str, int]], Work]
"""Reads the network at a value of every dim."""

_DRAWN = 10  # sizes at which a model is read, beside the ends and where formulas step
_MOST_FRAMES = 8


@dataclass(frozen=True, eq=False)
class Frame:
    """A network for all sizes of a box.

    Attributes
    ----------
    dims: the box.
    work: the network at the greatest sizes of it. Constants have these sizes at all others.
    steps: for each step the work that it does at every size; a `Workload` where that is one.
    shapes: of every value.
    extents: of the axes that inputs of integers index.
    offsets: of the steps whose result lies in their argument, by their numbers, how many elements
        before it.
    counts: of the iterations of loops.
    """

    dims: tuple[Dim, ...]
    work: Work
    steps: tuple[Family | Workload, ...]
    shapes: Mapping[Value, tuple[Number, ...]]
    extents: Mapping[Value, Number]
    offsets: Mapping[int, Number]
    counts: Mapping[Loop[Value], Number]

    def __repr__(self) -> str:
        return f"<Frame: {self.work}, {'; '.join(map(str, self.dims))}>"

    def nbytes(self, value: Value) -> Number:
        """Bytes of all elements of a value."""
        return self.elements(value) * item_bytes(value.dtype)

    def elements(self, value: Value) -> Number:
        """Number of elements of a value."""
        total: Number = 1
        for extent in self.shapes[value]:
            total = extent * total
        return total


def frames(dims: tuple[Dim, ...], read: Read) -> tuple[Frame, ...]:
    """The frames of a network, which together have all sizes. Raises `ModelError` where it has
    too many, or a number of it follows the sizes in no way that is known."""
    return tuple(frame for box in boxes(dims) for frame in _frames(box, read))


def _frames(dims: tuple[Dim, ...], read: Read) -> Iterator[Frame]:
    found: list[Frame] = []
    while (left := gap(dims, found)) is not None:
        sizes = {d.name: d.high for d in left}
        if len(found) == _MOST_FRAMES:
            raise ModelError(
                f"the model has other steps at {assigned(sizes)}, as at {_MOST_FRAMES} sizes "
                "before: give its dims narrower bounds, or a multiple; extents that are rounded, "
                "as n times 2.1, follow no formula"
            )
        # The sizes of earlier frames are read no more.
        found.append(_Reading(left, sizes, read).frame())
        yield found[-1]


class _Reading(Unification):
    """Networks with the steps of that at some sizes."""

    def __init__(self, dims: tuple[Dim, ...], made_for: Mapping[str, int], read: Read) -> None:
        super().__init__(dims, made_for, range(2, 9), _DRAWN)
        self.read = read
        self.work = read(made_for)
        self.skeleton = _skeleton(self.work)
        for n, said in enumerate(self.work.imported):
            if isinstance(said, str):
                name = self.work.network.steps[n].function
                raise ModelError(
                    f"{name} is computed by a function of TVM's, which is of fixed sizes: {said}; "
                    "build the model for each size that is needed"
                )
        self._beside = dict[tuple[int, ...], Work]()
        others = [self._at_size(d, _middle(d)).imported for d in dims if d.high > d.low]
        same = [each for each in others if len(each) == len(self.work.imported)]
        self.greatest = [*map(_Greatest.of, zip(self.work.imported, *same))]
        self.open_constants = self._open_constants()

    def _at_size(self, known: Dim, size: int) -> Work:
        """The network at a size of one dim, others as made for."""
        sizes = {**self.made_for, known.name: size}
        key = tuple(sizes.values())
        if key not in self._beside:
            self._beside[key] = self.read(sizes)
        return self._beside[key]

    def _open_constants(self) -> frozenset[Value]:
        """The constants that have other shapes at smaller sizes. They are read as they are: a
        layout is made before any call."""
        given = [value for step in self.work.network.steps for value in step.args]
        found = set()
        if any(value.data is not None for value in given):
            for d in self.all_dims:
                # Quotients of the next smaller size may be what they are here.
                for size in dict.fromkeys((_middle(d), max(d.low, d.high - d.multiple))):
                    other = self._at_size(d, size)
                    if _skeleton(other) == self.skeleton:
                        there = [value for step in other.network.steps for value in step.args]
                        pairs = zip(given, there, strict=True)
                        found |= {v for v, w in pairs if v.data is not None and v.shape != w.shape}
                        break
        return frozenset(found)

    def frame(self) -> Frame:
        try:
            box = self.unified()
        except ConfigError as error:
            raise ModelError(
                f"the model at {assigned(self.made_for)} has no form for other sizes: {error}; "
                "build it for this size alone"
            ) from error
        places = iter(range(1 << 62))

        seen = self._described(self.work, lambda value: box.formulas.get(next(places), value))
        steps = tuple(
            Family(box.dims, form) if open_one else Workload.from_json(form)
            for form, open_one in seen.forms
        )
        found = (seen.shapes, seen.extents, seen.offsets, seen.counts)
        return Frame(box.dims, self.work.for_calls(), steps, *found)

    def _described(self, work: Work, number: Callable[[int], Any]) -> _Description:
        return _Description(work, self.work, self.greatest, number, self.open_constants)

    def structure(self, sizes: Mapping[str, int]) -> Structure | None:
        own = sizes == self.made_for
        work = self.work if own else self.read(sizes)
        numbers: list[int] = []

        def number(value: int) -> int:
            numbers.append(value)
            return value

        kind = _skeleton(work)
        if kind != self.skeleton:
            return kind, ()
        seen = self._described(work, number)
        return tuple(seen.tokens), tuple(numbers)


def _middle(known: Dim) -> int:
    return known.low + (known.high - known.low) // 2 // known.multiple * known.multiple


def _skeleton(work: Work) -> tuple[Any, ...]:
    """A network without its numbers, and without what its steps compute."""
    network, order = work.network, dict[Value, int]()
    ends = [Step("inputs", network.inputs, ()), Step("outputs", network.outputs, ())]
    tokens: list[Any] = [network.several]

    def see(values: Iterable[Value]) -> None:
        for value in values:
            place = order.setdefault(value, len(order))
            kinds = value.data is None, value.extent is None
            tokens.append((place, value.dtype, len(value.shape), *kinds))

    loops = {loop: n for n, loop in enumerate(network.loops)}
    for step, said in zip((*network.steps, *ends), (*work.imported, "", "")):
        see((*step.args, *step.outs))
        own = said if isinstance(said, str) else (said.inputs, said.outputs, said.moved)
        at = None if step.loop is None else loops[step.loop]
        tokens.append((len(step.args), len(step.outs), own, at))
    for loop in loops:
        see(loop.values())
        backward = (*(r.backward for r in loop.reads), *(r.backward for r in loop.writes))
        tokens.append((len(loop.states), len(loop.reads), backward))
    return tuple(tokens)


@dataclass(frozen=True)
class _Greatest:
    """A step at the greatest sizes: its form there and at other sizes, and where its result lies
    in its argument, if so."""

    forms: tuple[Any, ...]
    offset: int | None

    @staticmethod
    def of(said: Sequence[Imported | str]) -> _Greatest:
        """The step by what it is at the greatest sizes, then at others."""
        known = [each.workload for each in said if isinstance(each, Imported)]
        assert isinstance(said[0], Imported), "what was asked before"
        return _Greatest(tuple(w.to_numbered_json() for w in known), view_offset(known[0]))


@dataclass
class _Description:
    """Goes over a network, and gives its numbers to a function, in a fixed order; all else are
    tokens. Constants are taken from `base`, a network of the same skeleton, where those of `work`
    are what these begin with along every axis; `plain` are those that are not laid out. Its steps
    are `greatest`, which those of `work` are written like."""

    work: Work
    base: Work
    greatest: Sequence[_Greatest]
    number: Callable[[int], Any]
    plain: Collection[Value]
    tokens: list[Any] = field(default_factory=list)
    shapes: dict[Value, tuple[Any, ...]] = field(default_factory=dict)
    extents: dict[Value, Any] = field(default_factory=dict)
    forms: list[tuple[Any, bool]] = field(default_factory=list)
    offsets: dict[int, Any] = field(default_factory=dict)
    counts: dict[Loop[Value], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        network, there = self.work.network, self.base.network
        self._base: dict[Value, Value] = {}
        self._values(network.inputs, there.inputs)
        for n, (step, other) in enumerate(zip(network.steps, there.steps, strict=True)):
            self._values((*step.args, *step.outs), (*other.args, *other.outs))
            said = self.work.imported[n]
            assert isinstance(said, Imported), "what was asked before"
            self._step(n, step, said)
        for loop, same in zip(network.loops, there.loops, strict=True):
            self._values(loop.values(), same.values())
            self.counts[loop] = self.number(loop.count)
            # A loop goes over the rows of constants as they lie, at the greatest sizes.
            for value, base in zip(loop.given(), same.given(), strict=True):
                self.tokens.append(value.data is None or value.shape[1:] == base.shape[1:])
        self._values(network.outputs, there.outputs)
        # A constant that is a result is given whole, and of an empty one the shape alone.
        for value, base in zip(network.outputs, there.outputs, strict=True):
            if value.data is not None and value.data.size:
                self.tokens.append(value.shape == base.shape)

    def _values(self, values: Iterable[Value], base: Iterable[Value]) -> None:
        for value, other in zip(values, base, strict=True):
            if value in self._base:
                continue
            self._base[value] = other
            if value.extent is not None:
                self.extents[value] = self.number(value.extent)
            if value.data is None or not value.data.size:  # nothing is laid out
                self.shapes[value] = tuple(map(self.number, value.shape))
            else:
                same = begins(value.data, other.data)
                self.tokens.append(same)
                self.shapes[value] = other.shape if same else value.shape

    def _step(self, n: int, step: Step, said: Imported) -> None:
        greatest_one = self.greatest[n]
        form = as_of_many(said.workload.to_numbered_json(), *greatest_one.forms)
        work = said.workload
        given = (*step.args, *step.outs)
        for tensor, place in zip(form["tensors"], said.inputs, strict=False):
            value = given[place]
            own, greatest = list(value.shape), list(self.shapes[value])
            laid_out = value.data is not None and value.data.size
            if laid_out and tensor["shape"] == own != greatest:
                tensor["shape"] = greatest
                work = Workload.from_json(form)
            if self._base[value] in self.plain:
                tensor.pop("constant", None)
        # At the greatest sizes part of a constant may be a view alone, as where all of it is read.
        of_open = any(self._base[given[place]] in self.plain for place in said.inputs)
        is_view = not of_open and greatest_one.offset is not None
        offset = view_offset(work) if is_view else None
        self.tokens.append(offset is None)
        if offset is not None:
            self.offsets[n] = self.number(offset)
        is_open = False

        def number(value: int) -> Any:
            nonlocal is_open
            made = self.number(value)
            is_open |= isinstance(made, Formula)
            return made

        self.forms.append((numbered(form, number, self.tokens), is_open))
