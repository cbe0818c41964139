"""Convolutions in a program: which sums of products Winograd's algorithms compute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from loopwright.dsl.expr import Binary, Read
from loopwright.dsl.index import Index
from loopwright.schedule.bilinear import MOST_TAPS, Bilinear, bilinear
from loopwright.schedule.nest import Nest, extent
from loopwright.schedule.plan import Base

_MOST_WINDOWS = 2
_MOST_PRODUCTS = 9  # of one axis: registers, and the rounding of large tiles
_PAYS = 16  # channels, in and out, that repay the sums


@dataclass(frozen=True)
class Window:
    """An axis of the result that slides over an axis of the data."""

    axis: Index
    tap: Index
    algorithm: Bilinear
    tile: Index
    base: Base


class Convolution:
    """A nest that is a convolution, and the program that computes it otherwise."""

    def __init__(
        self,
        nest: Nest,
        data: Read,
        weight: Read,
        windows: tuple[Window, ...],
        names: set[str],
    ) -> None:
        self.nest, self.data, self.weight, self.windows = nest, data, weight, windows
        self.names = names
        in_data, in_weight = set(_indices(data)), set(_indices(weight))
        slid = {w.axis for w in windows}
        self.taps = {w.tap for w in windows}
        self.shared = tuple(a for a in nest.axes if a in in_data & in_weight)
        self.batch = tuple(a for a in nest.axes if a in in_data - in_weight - slid)
        self.filters = tuple(a for a in nest.axes if a in in_weight - in_data)
        self.channels = tuple(k for k in nest.reduce if k not in self.taps)

    @property
    def order(self) -> list[int]:
        """The axes of the data with the last channel behind the others."""
        last, index = self.channels[-1], self.data.index
        return sorted(range(len(index)), key=lambda d: index[d].plain() == last)

    @staticmethod
    def of(nest: Nest, results: int, known: frozenset[str], taken: set[str]) -> Convolution | None:
        """The nest as a convolution; None if it is none that gains."""
        x = nest.body
        if nest.reducer != "sum" or not isinstance(x, Binary) or x.op != "mul":
            return None
        for data, weight in ((x.x, x.y), (x.y, x.x)):
            if isinstance(data, Read) and isinstance(weight, Read):
                windows = tuple(_windows(nest, data, weight, results))[-_MOST_WINDOWS:]
                made = Convolution(nest, data, weight, windows, taken)
                ahead = weight.tensor.name in known and data.tensor.name not in known
                if windows and ahead and made._gains():
                    return made
        return None

    def _gains(self) -> bool:
        if self.data.dtype not in ("float32", "float64") or self.nest.also:
            return False
        read = {*_indices(self.data), *_indices(self.weight)}
        if read != {*self.nest.axes, *self.nest.reduce}:
            return False
        slid = {w.axis for w in self.windows}
        whole = (p for p in self.data.index if not set(p.indices()) & slid)
        weights = (p for p in self.weight.index if not set(p.indices()) <= self.taps)
        if any(p.plain() is None and p.terms for p in (*whole, *weights)):
            return False
        both = set(_indices(self.data)) & set(_indices(self.weight))
        if not set(self.channels) <= both:
            return False
        return all(
            math.prod(map(extent, loops)) >= _PAYS for loops in (self.channels, self.filters)
        )

    def joins(self, other: Convolution) -> bool:
        """Whether both are phases of one result, which differ in what they read and write of the
        same tensors alone."""
        one, two = self.nest, other.nest
        return (
            (one.out, one.axes, one.reduce) == (two.out, two.axes, two.reduce)
            and list(one.extents.values()) == list(two.extents.values())  # axes compare by name
            and self.data.tensor is other.data.tensor
            and self.weight.tensor is other.weight.tensor
            and self.windows == other.windows
            and (self.batch, self.filters) == (other.batch, other.filters)
        )


def _windows(nest: Nest, data: Read, weight: Read, results: int) -> Iterator[Window]:
    """The axes that slide over the data, with an algorithm for each."""
    for p in data.index:
        if len(p.terms) != 2 or not all(isinstance(atom, Index) for atom, _ in p.terms):
            continue
        for (axis, step), (tap, one) in itertools.permutations(p.terms):
            assert isinstance(axis, Index)
            assert isinstance(tap, Index)
            if axis not in nest.axes or tap not in nest.reduce or one != 1 or step < 1:
                continue
            once = all(_indices(data).count(i) == 1 for i in (axis, tap))
            if not once or axis in _indices(weight) or _indices(weight).count(tap) != 1:
                continue
            algorithm = _algorithm(results, extent(tap), step)
            if algorithm is not None and extent(axis) >= results:
                tile = Index(f"{axis.name}.tile", -(-extent(axis) // results))
                base = Index(f"{axis.name}.base", extent(axis) - results + 1)
                yield Window(axis, tap, algorithm, tile, Base(base, tile, results))


def _algorithm(results: int, taps: int, step: int) -> Bilinear | None:
    """The algorithm, if it is one and saves something."""
    phase = -(-taps // step)
    if taps < 2 or step > taps or results + phase - 2 > min(MOST_TAPS, 5):
        return None
    found = bilinear(results, taps, step)
    return found if found.products < results * taps and found.products <= _MOST_PRODUCTS else None


def _indices(read: Read) -> list[Index]:
    return [i for p in read.index for i in p.indices()]
