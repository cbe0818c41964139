"""The program of Winograd's algorithm for one convolution, or for several phases of one.

The sums over one window are a small local nest each (`transforms`). A convolution whose results
fall into phases becomes one program, whose tensors have the phase as their first axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from loopwright.dsl.expr import Binary, Expr, Read
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.schedule.program.canonical import moved, placed, places_of, written
from loopwright.schedule.program.nest import Nest, extent, fresh, stride
from loopwright.schedule.program.plan import FusionGroup, TileOrigin, finished
from loopwright.schedule.rewrites.bilinear.match import (
    Convolution,
    Window,
    bounded,
    flattened,
    merged,
)
from loopwright.schedule.rewrites.bilinear.matrices import Matrix
from loopwright.schedule.rewrites.bilinear.transforms import Lanes, Place, Transform


@dataclass(frozen=True)
class Block:
    """Part of a convolution that is computed at a time: so many rows of tiles, or, if `across`,
    tiles in the order of rows."""

    count: int
    across: bool = False


class Phases:
    """The program that computes a convolution otherwise, or several phases of one at a time: their
    products are one nest. With `block`, a loop over blocks stands around all but the weights: what
    a block makes stays in its thread's cache."""

    def __init__(self, phases: list[Convolution], block: Block | None) -> None:
        first = phases[0]
        self.phases, self.windows, self.names = phases, first.windows, first.names
        self.channels, self.filters, self.shared = first.channels, first.filters, first.shared
        self.out, self.dtype = first.nest.out, first.data.dtype
        self.phase = (Index(".phase", len(phases)),) if len(phases) > 1 else ()
        self.tiles = tuple(w.tile for w in first.windows)
        self.bases = tuple(w.base for w in first.windows)
        self.around: tuple[Index, ...] = ()
        self.begins: tuple[TileOrigin, ...] = ()
        batch = first.batch
        if block is not None and self._in_blocks(block):
            batch = ()
        self.rest = (*self.shared, *batch, *self.tiles)

    @property
    def error_growth(self) -> float:
        """Error growth: how much larger rounding errors may be than in the sums themselves."""
        return math.prod(w.error_growth for w in self.windows)

    @property
    def bounded(self) -> bool:
        """Return whether errors are within what "standard" promises."""
        phases = {w.phase for w in self.windows}
        channels = math.prod(extent(c) for c in self.channels if c not in phases)
        return bounded(self.windows, channels)

    def _in_blocks(self, block: Block) -> bool:
        """Makes tiles those of a block; whether there are several blocks."""
        batch, (tile, *others) = self.phases[0].batch, self.tiles
        row = math.prod(map(extent, others))
        count = extent(tile) * (row if block.across else 1)
        size = min(block.count, count)
        if block.across:  # as even as they can be; of the largest convolution they are
            size = -(-count // -(-count // size))
        if size == math.prod(map(extent, batch)) * count:
            return False
        name = self.windows[0].axis.name
        loop, begin = TileOrigin.of_blocks(name, count, size)
        within = Index(f"{name}.within", size)
        number = begin.index + within
        self.around, self.begins = (*batch, loop), (begin,)
        self.tiles = (within,) if block.across else (within, *others)
        numbers = (number // row, number % row) if block.across else (number,)
        placed = (replace(base, number=n) for base, n in zip(self.bases, numbers, strict=False))
        self.bases = (*placed, *self.bases[len(numbers) :])
        return True

    def groups(self) -> Iterator[FusionGroup]:
        """Transform the weights, the data; multiply; transform the results."""
        products = tuple(Index(f"{w.axis.name}.at", w.algorithm.products) for w in self.windows)
        each = (*self.phase, *products)
        u = self._tensor("weights", (*each, *self.shared, *self._lanes(), *self.filters))
        v = self._tensor("data", (*each, *self.rest, *self._lanes()))
        m = self._tensor("products", (*each, *self.rest, *self.filters))
        yield self._weights(u)
        parts = (self._data(v), *self._products(u, v, m), self._results(m))
        if self.around:
            yield FusionGroup(self.around, parts, (v, m), self.begins)
        else:
            yield from parts

    def _products(self, u: Tensor, v: Tensor, m: Tensor) -> Iterator[FusionGroup]:
        """Without those that are 0: the last one of a phase of the window with fewer taps."""
        for parts in itertools.product(*map(_nonzero, self.windows)):
            at = (*places_of(*self.phase), *(place for _, place, _ in parts))
            axes = (*self.phase, *(a for some, _, _ in parts for a in some))
            fewer = {w.phase: phase for w, (_, _, phase) in zip(self.windows, parts, strict=True)}
            channels = tuple(fewer.get(c) or c for c in self.channels)
            lanes = places_of(*channels)
            if self.phases[0].lane is not None:
                channels, place = merged(channels, self.channels)
                lanes = (place,)
            data = Read(v, (*at, *places_of(*self.rest), *lanes))
            weight = Read(u, (*at, *places_of(*self.shared), *lanes, *places_of(*self.filters)))
            left = (*self.rest, *self.filters)
            body, index = Binary("mul", data, weight), (*at, *places_of(*left))
            yield finished(
                FusionGroup((), (Nest(m, index, (*axes, *left), channels, "sum", body, m),))
            )

    def _tensor(self, role: str, axes: tuple[Index, ...]) -> Tensor:
        name = fresh(f"{self.phases[0].nest.result.name}_{role}", self.names)
        return Tensor(name, tuple(map(extent, axes)), self.dtype)

    def _number(self, phase: int) -> tuple[Affine, ...]:
        return tuple(Affine((), phase) for _ in self.phase)

    def _weights(self, u: Tensor) -> FusionGroup:
        split = Lanes(self.channels)
        taps = [w.tap for w in self.windows]
        lanes = places_of(*self.channels)
        if self.phases[0].lane is not None:
            lanes = (flattened(self.channels),)
        rest = tuple(
            placed(p, split.values)
            for p in (*places_of(*self.shared), *lanes, *places_of(*self.filters))
        )

        def transform(number: int, phase: Convolution) -> Transform:
            def source(at: Place) -> Expr:
                values = {**dict(zip(taps, at, strict=True)), **split.values}
                value: Expr = moved(phase.weight, values)
                for w, place in zip(self.windows, at, strict=True):
                    value = w.predicated(value, place, split.values)
                return value

            def write(at: Place, value: Expr) -> tuple[Place, Expr]:
                return (*self._number(number), *at, *rest), value

            return Transform(u, source, write)

        matrices = [w.algorithm.inner for w in self.windows]
        rows = (*self.shared, *self.filters, *split.outer)
        return self._transformed(matrices, transform, split, rows, ())

    def _data(self, v: Tensor) -> FusionGroup:
        lanes = self._lanes()
        split = Lanes(lanes)
        rest = tuple(placed(a, split.values) for a in (*self.rest, *lanes))

        def transform(number: int, phase: Convolution) -> Transform:
            def source(at: Place) -> Expr:
                values: dict[Index, IndexExpr] = dict(split.values)
                if phase.lane is not None:
                    values |= dict.fromkeys(self.channels, Affine((), 0))
                    values[self.channels[-1]] = split.values.get(phase.lane, phase.lane)
                for w, place in zip(self.windows, at, strict=True):
                    values |= {w.axis: w.base.index, w.tap: place}
                return phase.element(moved(phase.data, values))

            def write(at: Place, value: Expr) -> tuple[Place, Expr]:
                return (*self._number(number), *at, *rest), value

            return Transform(v, source, write)

        matrices = [w.algorithm.data for w in self.windows]
        return self._transformed(
            matrices, transform, split, (*self.rest, *split.outer), self.bases
        )

    def _lanes(self) -> tuple[Index, ...]:
        """The channels, as the data has them."""
        lane = self.phases[0].lane
        return self.channels if lane is None else (lane,)

    def _results(self, m: Tensor) -> FusionGroup:
        split = Lanes(self.filters, most=16)
        rest = tuple(placed(a, split.values) for a in (*self.rest, *self.filters))

        def transform(number: int, phase: Convolution) -> Transform:
            def source(at: Place) -> Expr:
                return Read(m, (*self._number(number), *at, *rest))

            def write(at: Place, value: Expr) -> tuple[Place, Expr]:
                values: dict[Index, IndexExpr] = dict(split.values)
                for w, place in zip(self.windows, at, strict=True):
                    values[w.axis] = w.base.index + place
                return written(phase.nest, value, values)

            return Transform(self.out, source, write)

        matrices = [w.algorithm.outer for w in self.windows]
        # A row of the result is written piece by piece while it is in the cache: of tiles, or of
        # filters if these lie side by side and what a block has made is near.
        first = self.phases[0].nest
        last = self.around and stride(first.out, first.index, self.filters[-1]) == 1
        before = (a for a in self.rest if a not in self.tiles)
        inner = (*self.tiles, *split.outer) if last else (*split.outer, *self.tiles)
        rows = (*before, *inner)
        return self._transformed(matrices, transform, split, rows, self.bases)

    def _transformed(
        self,
        matrices: list[Matrix],
        transform: Callable[[int, Convolution], Transform],
        split: Lanes,
        rows: tuple[Index, ...],
        bases: tuple[TileOrigin, ...],
    ) -> FusionGroup:
        nests: list[Nest] = []
        local: list[Tensor] = []
        for number, phase in enumerate(self.phases):
            made, between = transform(number, phase).nests(matrices, split.inner, self.names)
            nests += made
            local += between
        return finished(FusionGroup(rows, tuple(nests), tuple(local), bases))


def _nonzero(w: Window) -> Iterator[tuple[tuple[Index, ...], Affine, Index | None]]:
    """The products of a window that are not always 0, in parts that all are for the same phases:
    loops over them, their places, the phases."""
    count, full = w.algorithm.products, extent(w.tap) % w.step
    at = Index(f"{w.axis.name}.at", count)
    if w.phase is None or not full:
        yield (at,), at.affine(), w.phase
        return
    finite = Index(at.name, count - 1)
    yield (finite,), finite.affine(), w.phase
    yield (), Affine((), count - 1), Index(w.phase.name, full)
