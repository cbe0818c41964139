"""Footprints of stores and loads, widened loop by loop from the innermost one outwards."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from loopwright.costmodel.features.batch_arithmetic import (
    Mask,
    Real,
    both,
    least,
    magnitude,
    most,
    only,
    plus,
    real,
    remainder,
    times,
    total,
    where,
)
from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.tree.grammar import Buffer, Var

ROLES = ("written", "register", "vector", "broadcast")
GPU_ROLES = ("written", "register", "shared", "global")
"""Their places are those of `ROLES`: what is written comes first, then registers."""
MEMORY = tuple(place for place, role in enumerate(ROLES) if role != "register")
"""Places of the roles that are not registers."""
LINE = 64.0  # bytes of a cache line

Slopes = Mapping[Var, Real]


@dataclass(eq=False, slots=True)
class Axis:
    """Footprint along one axis of a buffer.

    Attributes
    ----------
    extent: of the buffer.
    slopes: by how much each loop moves the subscript.
    reach: places from the first to the last one touched, if the buffer did not end.
    choices: the product of the extents that move the subscript.
    places, distinct: places of the buffer within reach, and those that are touched.
    sofar: of this axis and all inside of it, distinct elements, how many elements a contiguous
        run of them has, and whether all elements are touched.
    """

    extent: Real
    slopes: Slopes
    reach: Real = 1.0
    choices: Real = 1.0
    places: Real = 1.0
    distinct: Real = 1.0
    sofar: tuple[Real, Real, Mask] = (1.0, 1.0, False)

    def widen(self, step: Real, extent: Real) -> None:
        """Enter a loop that moves the subscript by `step`."""
        self.reach = self.reach + times(step, extent - 1.0)
        self.choices = times(self.choices, extent)
        self.places = least(self.reach, self.extent)
        self.distinct = least(self.places, self.choices)

    def join(self, inside: tuple[Real, Real, Mask]) -> None:
        """Compute `sofar`, given that of the next axis inside."""
        elements, run, whole = inside
        if whole is not False:
            run = times(run, self.places if whole is True else most(only(whole, self.places), 1.0))
            whole = both(whole, self.places >= self.extent)
        self.sofar = times(elements, self.distinct), run, whole


@dataclass(eq=False, slots=True)
class Access:
    """One access to a buffer of one store, over the loops that have been entered so far.

    Attributes
    ----------
    key: the same for accesses of one store that touch the same elements, give or take a few.
    axes: of the buffer, the innermost one first, those of one element left out.
    steps: elements by which one iteration of each loop moves it.
    rate: vector operations per distinct element: 1 / width where neighbours share a vector.
    gathers: how many of an operation are neither a vector nor a broadcast: 1 or 0; on a GPU, the
        transactions of memory that one operation of a warp takes (`lanes`).
    loose: the share of its vectors that lie across two cache lines: not 0 where another loop than
        the vectorized one moves it by anything but whole vectors.
    alive: 0 for configs in which a loop around has no iterations, else 1.
    elements, lines: distinct elements, and the cache lines that hold them.
    """

    key: tuple[object, ...]
    buffer: str
    role: str
    item: float
    axes: tuple[Axis, ...]
    steps: Slopes
    rate: Real = 1.0
    gathers: Real = 0.0
    loose: Real = 0.0
    alive: Real = 1.0
    elements: Real = 1.0
    lines: Real = 1.0

    @staticmethod
    def of(
        buffer: Buffer, role: str, slopes: Sequence[Slopes], lane: Var | None, width: Real
    ) -> Access:
        """An access that no loop has widened yet; `lane` is a vector loop of `width` elements."""
        key = (buffer.name, role, tuple(map(frozenset, slopes)))
        axes: list[Axis] = []
        steps: dict[Var, Real] = {}
        stride: Real = 1.0
        for extent, slope in zip(map(real, reversed(buffer.shape)), reversed(slopes), strict=True):
            if not isinstance(extent, float) or extent > 1.0:
                axes.append(Axis(extent, slope))
                for var, step in slope.items():
                    steps[var] = plus(steps.get(var, 0.0), times(step, stride))
                stride = times(stride, extent)
        item = float(item_bytes(buffer.dtype))
        new = Access(key, buffer.name, role, item, tuple(axes), steps)
        if not all(isinstance(axis.extent, float) for axis in axes):
            new._measure(0)  # some may be whole
        step = new.stride(lane)
        new.rate = where(step == 1.0, 1.0 / width, 1.0)
        new.gathers = where(step > 1.0, most(least(width - 1.0, 1.0), 0.0), 0.0)
        if lane is not None and not (isinstance(step, float) and step != 1.0):
            new.loose = only(step == 1.0, new._loose(lane, width))
        return new

    def _loose(self, lane: Var, width: Real) -> Real:
        left = total(remainder(self.stride(var), width) for var in self.steps if var != lane)
        return only(left > 0.0, width * (self.item / LINE))

    def stride(self, var: Var | None) -> Real:
        """Elements by which one iteration of a loop moves the access; 0 for no loop."""
        return 0.0 if var is None or var not in self.steps else magnitude(self.steps[var])

    def widen(self, var: Var, extent: Real, alive: Real = 1.0) -> None:
        """Enter a loop; forget what is touched where it is not `alive`, but has no iterations."""
        moved: list[int] = []
        if var in self.steps:
            moved = [place for place, axis in enumerate(self.axes) if var in axis.slopes]
        for place in moved:
            axis = self.axes[place]
            axis.widen(magnitude(axis.slopes[var]), extent)
        self.alive = times(self.alive, alive)
        if moved or not isinstance(alive, float):
            self._measure(moved[0] if moved else len(self.axes))

    def _measure(self, first: int) -> None:
        """Elements, and cache lines: runs of contiguous elements, each starting anywhere.
        Axes before the `first` are as they were."""
        for place in range(first, len(self.axes)):
            self.axes[place].join(self.axes[place - 1].sofar if place else (1.0, 1.0, True))
        elements, run, _ = self.axes[-1].sofar if self.axes else (1.0, 1.0, True)
        self.elements = times(self.alive, elements)
        if self.role != "register":
            share = self.item / LINE
            self.lines = self.elements * (share + (1.0 - share) / run)


@dataclass(eq=False, slots=True)
class Statement:
    """A store with its accesses; `count` is how often the loops entered so far execute it."""

    width: Real
    accesses: Sequence[Access]
    count: Real = 1.0

    def repeat(self, var: Var, extent: Real, mean: Real) -> None:
        """Enter a loop of at most `extent` and on average `mean` iterations."""
        self.count = times(self.count, mean)
        alive: Real = 1.0
        if isinstance(extent, float):
            if extent == 1.0:
                return
        elif not extent.all():
            extent, alive = most(extent, 1.0), least(extent, 1.0)
        for access in self.accesses:
            access.widen(var, extent, alive)


_Use = tuple[Access, Real, Real, Real]
"""An access, how often it happens, and its elements and lines by then."""


class Touch:
    """Footprint of one run of a loop in the buffers of one role: the sum over buffers; of several
    accesses to one buffer, the greatest counts. Each column is computed when it is asked for.

    Attributes
    ----------
    elements: distinct elements.
    lines: cache lines that hold them.
    vectors: the vector, broadcast or scalar operations that access each of them once.
    gathers: those of them that move one element of a vector at a time; on a GPU, transactions.
    loose: those of them that lie across two cache lines.
    uses: accesses.
    stride: elements by which the loop itself moves an access; the greatest of all.
    """

    def __init__(
        self, buffers: Sequence[Sequence[_Use]], var: Var | None, lines: Real | None = None
    ) -> None:
        self._buffers, self._var = buffers, var
        self.lines = self._total(lambda use: use[3]) if lines is None else lines

    @staticmethod
    def of(
        roles: Iterable[str], statements: Iterable[Statement], var: Var | None
    ) -> tuple[Touch, ...]:
        """Footprints of each role in one run of the loop `var`, by what its statements touch
        now."""
        found: dict[str, dict[str, list[_Use]]] = {role: {} for role in roles}
        for statement in statements:
            for access in statement.accesses:
                use = (access, statement.count, access.elements, access.lines)
                found[access.role].setdefault(access.buffer, []).append(use)
        return tuple([Touch([*uses.values()], var) if uses else NONE for uses in found.values()])

    def along(self, var: Var) -> Touch:
        """The footprint of one run of a loop that runs this one once."""
        return self if self is NONE else Touch(self._buffers, var, self.lines)

    @property
    def elements(self) -> Real:
        return self._total(lambda use: use[2])

    @property
    def vectors(self) -> Real:
        return self._total(_vectors)

    @property
    def gathers(self) -> Real:
        return self._total(lambda use: times(use[0].gathers, _vectors(use)))

    @property
    def loose(self) -> Real:
        return self._total(lambda use: times(use[0].loose, _vectors(use)))

    @property
    def uses(self) -> Real:
        return total([total([count for _, count, _, _ in uses]) for uses in self._buffers])

    @property
    def stride(self) -> Real:
        accesses = (access for access, *_ in itertools.chain(*self._buffers))
        return functools.reduce(most, (0.0, *(access.stride(self._var) for access in accesses)))

    @property
    def reuse(self) -> Real:
        """Accesses for each distinct element; 0 if there are none."""
        return self.uses / most(self.elements, 1.0)

    def _total(self, column: Callable[[_Use], Real]) -> Real:
        """The sum over buffers of the greatest of a column."""
        return total(functools.reduce(most, map(column, uses)) for uses in self._buffers)


def _vectors(use: _Use) -> Real:
    access, _, elements, _ = use
    return times(access.rate, elements)


NONE = Touch((), None)
