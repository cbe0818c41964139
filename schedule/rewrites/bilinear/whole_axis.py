"""Algorithms for whole axes: short convolutions that move by more than one element.

    y[i] = Σ_{r<3} d[2·i + r] g[r]  =  d[2·i + 1] g[1]  +  Σ_{q<2} d[2·(i + q)] g[2·q]

Every phase of the window has an algorithm of its own: a tap by itself is a product for each
result, all for one weight, and several are F(m, taps) for tiles of m results. Results that fill no
tile are products with the weights of single taps, which phases of two taps have anyway. They stand
at that end of the axis where more of their products meet padding. Seven results that meet padding
at one end take 17 products with 4 weights so: seven for the tap by itself, nine for three tiles of
two, and one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from loopwright.dsl.index import Affine
from loopwright.schedule.rewrites.bilinear.matrices import Matrix, bilinear


@dataclass(frozen=True)
class Line:
    """Places on an axis, one for each tile: `first + step * tile`."""

    first: int
    step: int = 1

    def at(self, tile: Affine) -> Affine:
        """The place for a tile."""
        return tile * self.step + self.first


Terms = tuple[tuple[Fraction, Line], ...]


@dataclass(frozen=True)
class Step:
    """Sums of elements along an axis, with factors, that are written for each of some tiles."""

    tiles: int
    sums: tuple[tuple[Line, Terms], ...]


@dataclass(frozen=True)
class Part:
    """Products along an axis with neighbouring weights: so many rows for each of these."""

    row: int
    rows: int
    weight: int
    weights: int

    @property
    def count(self) -> int:
        """Products."""
        return self.rows * self.weights


@dataclass(frozen=True)
class AxisAlgorithm:
    """The algorithm of a whole axis, `results ((weights w) ⊙ (data d))`, with weights of shape
    (weights, taps). `parts` say which rows are multiplied by which weights. Rounding errors may be
    `error_growth` times those of the sums."""

    weights: Matrix
    parts: tuple[Part, ...]
    data: tuple[Step, ...]
    results: tuple[Step, ...]
    error_growth: float

    @property
    def complete(self) -> bool:
        """Return whether every result is the sum of something."""
        return all(terms for step in self.results for _, terms in step.sums)

    @property
    def rows(self) -> int:
        """Products."""
        return sum(part.count for part in self.parts)

    @property
    def span(self) -> range:
        """The places of the data that are read."""
        ends = [
            line.first + line.step * tile
            for step in self.data
            for _, terms in step.sums
            for _, line in terms
            for tile in (0, step.tiles - 1)
        ]
        return range(min(ends), max(ends) + 1)


def axis_algorithm(axis: Axis, size: int) -> AxisAlgorithm | None:
    """The algorithm of an axis with tiles of `size` results and the fewest products, or None."""
    left = axis.count % size
    if left == axis.count or (left and any(len(p) > 2 for p in axis.phases)):
        return None
    found = [_Maker(axis, size, before).algorithm() for before in range(left + 1)]
    return min((w for w in found if w.complete), key=lambda w: w.rows, default=None)


@dataclass(frozen=True)
class Axis:
    """An axis of `count` results of taps that move by `step`; zero outside of `filled`."""

    count: int
    taps: int
    step: int
    filled: range

    @property
    def phases(self) -> list[range]:
        """The taps of each phase."""
        return [range(p, self.taps, self.step) for p in range(min(self.step, self.taps))]

    def meets(self, result: int, tap: int) -> bool:
        """Return whether a product is with more than padding."""
        return self.step * result + tap in self.filled

    @property
    def needed(self) -> int:
        """Products that are no zeros."""
        return sum(self.meets(i, q) for i in range(self.count) for q in range(self.taps))


class _Maker:
    """Makes the algorithm of an axis with tiles of `size` results, so many results `before` them
    and the others that are left over behind them."""

    def __init__(self, axis: Axis, size: int, before: int) -> None:
        self.axis, self.size, self.before = axis, size, before
        self.tiles = axis.count // size
        tiled = range(before, before + self.tiles * size)
        self.singles = [i for i in range(axis.count) if i not in tiled]
        self.row = 0
        self.errors = [0.0] * size
        self.weights: list[tuple[Fraction, ...]] = []
        self.parts: list[Part] = []
        self.data: list[Step] = []
        self.alone: list[tuple[Line, Terms]] = []
        self.of_tile: list[list[tuple[Fraction, Line]]] = [[] for _ in range(size)]
        self.of_single: dict[int, list[tuple[Fraction, Line]]] = {i: [] for i in self.singles}

    def algorithm(self) -> AxisAlgorithm:
        """The algorithm."""
        for phase in self.axis.phases:
            if len(phase) == 1:
                self._lone(phase[0])
            else:
                self._tiled(phase)
        tile = ((Line(self.before + u, self.size), tuple(t)) for u, t in enumerate(self.of_tile))
        single = ((Line(i), tuple(t)) for i, t in self.of_single.items())
        data = [*self.data, Step(1, tuple(self.alone))]
        results = [Step(self.tiles, tuple(tile)), Step(1, tuple(single))]
        growth = math.sqrt(max(self.errors) / self.axis.taps)
        return AxisAlgorithm(
            tuple(self.weights),
            tuple(self.parts),
            tuple(step for step in data if step.sums),
            tuple(step for step in results if step.sums),
            growth,
        )

    def _lone(self, tap: int) -> None:
        """A product for each result, but for the first ones and the last that meet padding."""
        axis, row, one = self.axis, self.row, Fraction(1)
        met = [i for i in self.singles if axis.meets(i, tap)]
        first = min([self.before, *met])
        kept = range(first, max([self.before + self.tiles * self.size, *(i + 1 for i in met)]))
        self._add(self._unit({tap: one}), len(kept))
        source = Line(axis.step * first + tap, axis.step)
        self.data.append(Step(len(kept), ((Line(row), ((one, source),)),)))
        for u, terms in enumerate(self.of_tile):
            terms.append((one, Line(row + self.before + u - first, self.size)))
            self.errors[u] += 1
        for i, terms in self.of_single.items():
            if i in kept:
                terms.append((one, Line(row + i - first)))

    def _tiled(self, phase: range) -> None:
        """An algorithm for tiles. Its products at 0 and at infinity have the weights of the first
        tap and the last one, of two taps all that results that are left over need."""
        axis, (first, *_, last) = self.axis, phase
        algorithm = bilinear(self.size, len(phase))
        sums = []
        for number, (inner, data) in enumerate(zip(algorithm.inner, algorithm.data, strict=True)):
            taken = {0: (first, inner[0]), algorithm.products - 1: (last, inner[-1])}
            tap, scale = taken.get(number, (-1, Fraction(1)))
            alone = [i for i in self.singles if tap >= 0 and axis.meets(i, tap)]
            begin = self.row + sum(i < self.before for i in alone)
            end = self.row + len(alone) + self.tiles
            rows = [*range(self.row, begin), *range(begin + self.tiles, end)]
            for i, row in zip(alone, rows, strict=True):
                self.alone.append((Line(row), ((1 / scale, Line(axis.step * i + tap)),)))
                self.of_single[i].append((Fraction(1), Line(row)))
            places = (
                Line(axis.step * (self.before + k) + first, axis.step * self.size)
                for k in range(len(data))
            )
            terms = tuple((c, place) for c, place in zip(data, places, strict=True) if c)
            sums.append((Line(begin), terms))
            for u, outer in enumerate(algorithm.outer):
                if outer[number]:
                    self.of_tile[u].append((outer[number], Line(begin)))
                    self.errors[u] += float(outer[number]) ** 2 * _squares(inner) * _squares(data)
            weight = self._unit(dict(zip(phase, inner, strict=True)))
            self._add(weight, end - self.row, joins=number > 0)
        self.data.append(Step(self.tiles, tuple(sums)))

    def _unit(self, factors: Mapping[int, Fraction]) -> tuple[Fraction, ...]:
        return tuple(factors.get(tap, Fraction(0)) for tap in range(self.axis.taps))

    def _add(self, weight: tuple[Fraction, ...], rows: int, joins: bool = False) -> None:
        """A weight with so many rows, which may join those of the weight before."""
        if joins and self.parts[-1].rows == rows:
            last = self.parts.pop()
            self.parts.append(replace(last, weights=last.weights + 1))
        else:
            self.parts.append(Part(self.row, rows, len(self.weights), 1))
        self.weights.append(weight)
        self.row += rows


def _squares(row: Sequence[Fraction]) -> float:
    return sum(float(x) ** 2 for x in row)
