"""Schedules by hand: the loops of a nest, and the steps that change them.

    split i 8       for i  ↦  for i.outer: for i.inner
    fuse i j        for i: for j  ↦  for i*j
    reorder, kind, pack

A spatial split that does not divide lets its last tile overlap the one before it. A reduction's
last tile is shorter. A step goes by the positions of loops, so that it means the same whatever
their names; a structure in text is `hand 0:split,0,8 0:order,1,0,2`, each step behind the number
of its nest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.expr import Read, Table
from loopwright.dsl.words import among, quoted
from loopwright.schedule.program.nest import Nest, extent

PREFIX = "hand"
KINDS = ("vectorized", "unrolled", "parallel")
_MOST_COPIES = 4096  # of a statement that is written out, in unrolled and vector loops
_MOST_PACKED = 1 << 28  # elements of a copy
_NUMBERS = {"split": (2,), "fuse": (2,), "order": range(1, 100), "kind": (2,), "pack": (1, 2)}
"""Operations, and how many numbers a step of each has."""


@dataclass(frozen=True)
class HandLoop:
    """A loop of a schedule by hand."""

    name: str
    extent: int
    reduce: bool
    kind: str = "serial"


@dataclass(frozen=True)
class Split:
    """`parent = factor · outer + inner`, and less than `extent`."""

    parent: str
    outer: str
    inner: str
    factor: int
    extent: int
    reduce: bool

    @property
    def divides(self) -> bool:
        """Return whether all tiles have their place."""
        return self.extent % self.factor == 0


@dataclass(frozen=True)
class Fused:
    """`first = ⌊fused / extent⌋; second = fused mod extent`."""

    first: str
    second: str
    fused: str
    extent: int


@dataclass(frozen=True)
class Step:
    """One change of the nest of this number: `Step(0, "split", (1, 8))`."""

    nest: int
    operation: str
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return ",".join((f"{self.nest}:{self.operation}", *map(str, self.numbers)))


@dataclass(frozen=True)
class HandNest:
    """The loops of one nest, outermost first; how axes follow from them; and copies of operands,
    each with the loop that it is made in (None: before the nest)."""

    nest: Nest
    loops: tuple[HandLoop, ...]
    relations: tuple[Split | Fused, ...] = ()
    packed: tuple[tuple[int, str | None], ...] = ()
    constant: bool = False

    @staticmethod
    def of(nest: Nest, constant: bool) -> HandNest:
        """The nest's own loops, in the order of the notation."""
        loops = [HandLoop(a.name, extent(a), False) for a in nest.axes]
        loops += [HandLoop(k.name, extent(k), True) for k in nest.reduce]
        return HandNest(nest, tuple(loops), constant=constant)

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the tensors that it reads, which `pack` counts."""
        return tuple(dict.fromkeys(r.tensor.name for r in self.nest.reads()))

    def reads(self, operand: int) -> tuple[Read, ...]:
        """The reads of an operand that a copy can serve."""
        name = self.operands[operand]
        found = (r for r in self.nest.reads() if r.tensor.name == name)
        return tuple(dict.fromkeys(r for r in found if not isinstance(r, Table)))

    def position(self, name: str) -> int:
        """The position of a loop; `ConfigError` if there is none of this name."""
        names = [loop.name for loop in self.loops]
        if not among(name, names):
            known = f"the loops are {', '.join(names)}" if names else "this stage has no loops"
            raise ConfigError(f"no loop {quoted(name)}; {known}")
        return names.index(name)

    def leaves(self, name: str) -> frozenset[str]:
        """The names of the loops that an axis, or a loop that was split or fused, follows from."""
        for r in self.relations:
            if isinstance(r, Split) and r.parent == name:
                return self.leaves(r.outer) | self.leaves(r.inner)
            if isinstance(r, Fused) and name in (r.first, r.second):
                return self.leaves(r.fused)
        return frozenset({name})

    def moving(self, read: Read) -> frozenset[str]:
        """The names of the loops that a read moves with."""
        used = {i.name for p in read.index for i in p.indices() if i in self.nest.extents}
        return frozenset().union(*map(self.leaves, used))

    def after(self, step: Step) -> HandNest:
        """The nest after a step. Raises `ConfigError` for one that is not legal."""
        made: HandNest = getattr(self, f"_{step.operation}")(*step.numbers)
        made._check()
        return made

    def _split(self, at: int, factor: int) -> HandNest:
        loop = self._plain(at, "split")
        if not 1 <= factor <= loop.extent:
            raise ConfigError(
                f"{loop.name} has {loop.extent} iterations and cannot be split by {factor}: give "
                f"a factor of 1 to {loop.extent}"
            )
        outer = replace(loop, name=f"{loop.name}.outer", extent=-(-loop.extent // factor))
        inner = replace(loop, name=f"{loop.name}.inner", extent=factor)
        made = Split(loop.name, outer.name, inner.name, factor, loop.extent, loop.reduce)
        loops = (*self.loops[:at], outer, inner, *self.loops[at + 1 :])
        return replace(self, loops=loops, relations=(*self.relations, made))

    def _fuse(self, at: int, other: int) -> HandNest:
        first, second = self._plain(at, "fused"), self._plain(other, "fused")
        if other != at + 1:
            raise ConfigError(
                f"{second.name} does not stand directly inside of {first.name}: fused loops are "
                "adjacent, the outer one named first; reorder them before"
            )
        if first.reduce != second.reduce:
            raise ConfigError(
                f"one of {first.name} and {second.name} is a reduction: fuse two loops of the "
                "result, or two reductions"
            )
        count = first.extent * second.extent
        fused = replace(first, name=f"{first.name}*{second.name}", extent=count)
        made = Fused(first.name, second.name, fused.name, second.extent)
        loops = (*self.loops[:at], fused, *self.loops[at + 2 :])
        return replace(self, loops=loops, relations=(*self.relations, made))

    def _order(self, *positions: int) -> HandNest:
        if sorted(positions) != list(range(len(self.loops))):
            raise ConfigError("an order names every loop once")
        return replace(self, loops=tuple(self.loops[p] for p in positions))

    def _kind(self, at: int, kind: int) -> HandNest:
        loop = replace(self._plain(at, KINDS[kind]), kind=KINDS[kind])
        return replace(self, loops=(*self.loops[:at], loop, *self.loops[at + 1 :]))

    def _pack(self, operand: int, at: int = -1) -> HandNest:
        name = self.operands[operand]
        if not self.reads(operand):
            raise ConfigError(f"{name} is read where elements say: it cannot be packed")
        if operand in dict(self.packed):
            raise ConfigError(f"{name} is packed already: undo that first")
        place = None if at < 0 else self.loops[at].name
        return replace(self, packed=(*self.packed, (operand, place)))

    def _plain(self, at: int, change: str) -> HandLoop:
        loop = self.loops[at]
        if loop.kind != "serial":
            raise ConfigError(
                f"{loop.name} is {loop.kind} and cannot be {change}: undo that first"
            )
        if any(place == loop.name for _, place in self.packed) and change in ("split", "fused"):
            raise ConfigError(
                f"a copy is made in {loop.name}, which cannot be {change}: {change.rstrip('d')} "
                "first, then pack"
            )
        return loop

    def _check(self) -> None:
        """Raise `ConfigError` unless loops of every kind stand where they may."""
        kinds = [loop.kind for loop in self.loops]
        outside = kinds.count("parallel")
        for at, loop in enumerate(self.loops):
            if loop.kind == "parallel":
                self._check_parallel(loop, self.loops[outside - 1 :][: at >= outside])
            if loop.kind == "vectorized":
                self._check_vector(at)
        copies = math.prod(x.extent for x in self.loops if x.kind in ("unrolled", "vectorized"))
        if copies > _MOST_COPIES:
            raise ConfigError(
                f"unrolled and vectorized loops have {copies} iterations together: they are "
                f"written out, so at most {_MOST_COPIES} are allowed; split the loop before"
            )
        for operand, place in self.packed:
            self._check_pack(operand, place, outside)

    def _check_parallel(self, loop: HandLoop, before: Sequence[HandLoop]) -> None:
        if loop.reduce:
            raise ConfigError(
                f"{loop.name} is a reduction and cannot be parallel: its iterations add to the "
                "same element; make a loop of the result parallel, or sum in two stages (rfactor)"
            )
        if self.constant:
            raise ConfigError(
                f"{self.nest.out.name} is computed once, ahead of all calls, on one thread"
            )
        if before:
            raise ConfigError(
                f"parallel loops stand outside of all others, and {loop.name} does not: reorder "
                "it outwards, or make the loops around it parallel first"
            )

    def _check_vector(self, at: int) -> None:
        loop = self.loops[at]
        if loop.reduce:
            raise ConfigError(
                f"{loop.name} is a reduction and cannot be vectorized: make a loop of the result "
                "innermost and vectorize that"
            )
        if at != len(self.loops) - 1:
            raise ConfigError(
                f"a vectorized loop is innermost, and {self.loops[-1].name} stands inside of "
                f"{loop.name}: reorder them"
            )
        for r in self.relations:
            if isinstance(r, Fused) and loop.name in self.leaves(r.fused):
                raise ConfigError(
                    f"{loop.name} is part of the fused loop {r.fused}, whose neighbours may lie "
                    "apart: vectorize a loop that was not fused"
                )
            ragged = isinstance(r, Split) and not r.divides
            if isinstance(r, Split) and ragged and loop.name in self.leaves(r.outer):
                raise ConfigError(
                    f"{loop.name} counts tiles of {r.factor} that do not divide {r.extent}: "
                    f"vectorize {r.inner}, or split by a divisor"
                )

    def _check_pack(self, operand: int, place: str | None, outside: int) -> None:
        at = -1 if place is None else self.position(place)
        if place is not None and (at < outside - 1 or self.loops[at].kind == "vectorized"):
            raise ConfigError(
                f"{self.operands[operand]} cannot be packed in {place}: choose a loop inside of "
                "all parallel ones that is not vectorized"
            )
        for read in self.reads(operand):
            moving = self.moving(read)
            size = math.prod(x.extent for x in self.loops[at + 1 :] if x.name in moving)
            if size > _MOST_PACKED:
                raise ConfigError(
                    f"the copy of {self.operands[operand]} has {size} elements, and at most "
                    f"{_MOST_PACKED} are allowed: pack it in a loop, by `at`"
                )


def structure(steps: Sequence[Step]) -> str:
    """The steps as a sketch's structure."""
    return " ".join((PREFIX, *map(str, steps)))


def is_hand(text: str) -> bool:
    """Return whether a structure is of a schedule by hand."""
    return text.split(" ", 1)[0] == PREFIX


def steps_of(text: str) -> tuple[Step, ...]:
    """Read what `structure` wrote. Raises `ConfigError` for anything else."""
    found = []
    for word in text.split(" ")[1:]:
        head, *numbers = word.split(",")
        nest, _, operation = head.partition(":")
        if not all(n.isascii() and n.isdigit() for n in (nest, *numbers)):
            raise ConfigError(f"a damaged schedule: the numbers of {word!r} are to be 0 or more")
        count = _NUMBERS.get(operation)
        if count is None:
            raise ConfigError(f"a schedule has no step {operation!r}: {word!r}")
        if len(numbers) not in count:
            raise ConfigError(f"a damaged schedule: {word!r} has {len(numbers)} numbers")
        found.append(Step(int(nest), operation, tuple(map(int, numbers))))
    return tuple(found)


def applied(nests: Sequence[HandNest], steps: Sequence[Step]) -> tuple[HandNest, ...]:
    """The nests after all steps. Raises `ConfigError` for a step that is not legal."""
    made = list(nests)
    for step in steps:
        try:
            made[step.nest] = made[step.nest].after(step)
        except IndexError:
            raise ConfigError(
                f"the step {step} names a nest, a loop, an operand or a kind that this workload "
                "has not: is the config of another one?"
            ) from None
    return tuple(made)
