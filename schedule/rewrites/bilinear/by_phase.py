"""Winograd by phases: windows that move by more than one element, with few weights.

`winograd` takes the phases of a window for channels, all of which go through one algorithm. Here
every phase has its own (`whole_axis`). An axis of a small image is transformed as a whole, so that
products with one weight are the rows of one matrix. Products of some filters stay in a thread's
cache, until their results are made of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Binary, Const, Expr, Read, Select
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import moved, placed, places_of, written
from loopwright.schedule.program.nest import Nest, extent, fresh
from loopwright.schedule.program.padding import box
from loopwright.schedule.program.plan import FusionGroup, finished
from loopwright.schedule.rewrites.bilinear.match import Convolution
from loopwright.schedule.rewrites.bilinear.transforms import Lanes, Place, Transform, weighted
from loopwright.schedule.rewrites.bilinear.whole_axis import (
    Axis,
    AxisAlgorithm,
    Line,
    Part,
    Step,
    axis_algorithm,
)
from loopwright.schedule.target import Target

_GAIN = 0.9  # of the products that are no zeros, at most
_PARTS = 16  # matrix products, each code of its own, at most
_FILTERS = 128  # at a time, at most
_EVEN = 1.1  # times the filters of a thread, at most, where all threads have the same work


def _filled(made: Convolution) -> list[range]:
    """Places of the data for each window, from the first one that is not padding."""
    padding, index = made.padding, made.data.index
    sizes = list(tensor_shape(made.data.tensor))
    spans = {}
    if padding is not None:
        body = padding.body
        assert isinstance(body, Select)
        if isinstance(body.y, Const) and body.y.value == 0:
            spans = box(body.cond, padding) or {}
    found = []
    for w in made.windows:
        (d,) = (d for d, p in enumerate(index) if w.axis in p.indices())
        axis = None if padding is None else padding.index[d].plain()
        start, stop = 0, sizes[d]
        if axis in spans:
            start, stop = spans[axis].start, spans[axis].stop
        found.append(range(start - index[d].const, stop - index[d].const))
    return found


def _shifted(step: Step, by: int) -> Step:
    """The step with what it reads elsewhere."""
    sums = (
        (line, tuple((factor, replace(place, first=place.first + by)) for factor, place in terms))
        for line, terms in step.sums
    )
    return replace(step, sums=tuple(sums))


class ByPhase:
    """The program of a convolution with each phase by itself, so many filters at a time."""

    def __init__(self, made: Convolution, axes: Sequence[AxisAlgorithm], filters: int) -> None:
        self.made, self.axes, self.names = made, axes, made.names
        *outer, last = made.filters
        self.low = Index(f"{last.name}.low", filters)
        block = Index(f"{last.name}.block", extent(last) // filters)
        self.around = (*made.shared, *outer, block)
        self.filter: dict[Index, IndexExpr] = {last: block * filters + self.low}
        phases = {w.phase for w in made.windows}
        self.channels = tuple(c for c in made.channels if c not in phases)

    @staticmethod
    def of(made: Convolution, size: int, target: Target) -> ByPhase | None:
        """The program with tiles of `size` results, if it gains and fits a core's cache."""
        if made.lane is not None or made.folds or all(w.step == 1 for w in made.windows):
            return None
        axes = [
            Axis(extent(w.axis), extent(w.tap), w.step, filled)
            for w, filled in zip(made.windows, _filled(made), strict=True)
        ]
        found = [axis_algorithm(axis, size) for axis in axes]
        wholes = [w for w in found if w is not None]
        needed = math.prod(axis.needed for axis in axes)
        if len(wholes) < len(axes) or math.prod(w.rows for w in wholes) > _GAIN * needed:
            return None
        if math.prod(len(w.parts) for w in wholes) > _PARTS:
            return None
        lanes = target.lanes(item_bytes(made.data.dtype))
        fitting = [
            program
            for filters in range(lanes, _FILTERS + 1, lanes)
            if extent(made.filters[-1]) % filters == 0
            and (program := ByPhase(made, wholes, filters)).bytes <= target.l2_bytes
        ]
        even = [p for p in fitting if p.share(target.threads) <= _EVEN / target.threads]
        return max(even, key=lambda p: extent(p.low), default=None)

    def share(self, threads: int) -> float:
        """The share of the products of the thread that has most of them."""
        slices = math.prod(map(extent, self.around))
        return -(-slices // threads) / slices

    @property
    def bytes(self) -> int:
        """Bytes that a thread needs again: the data, a part of the products, and their rows."""
        made, (first, *others) = self.made, self.axes
        width = math.prod(axis.rows for axis in others)
        ends = math.prod(extent(w.axis) for w in made.windows[1:])
        data = first.rows * width * math.prod(map(extent, self.channels))
        most = max(part.count for part in first.parts) * width if others else 0
        filters = (most + first.rows * ends) * extent(self.low)
        images = math.prod(map(extent, made.batch))
        return images * (data + filters) * item_bytes(made.data.dtype)

    bounded = False
    """Errors are not within what "standard" promises."""

    @property
    def error_growth(self) -> float:
        """Error growth: how much larger rounding errors may be than in the sums themselves."""
        return math.prod(axis.error_growth for axis in self.axes)

    def groups(self) -> Iterator[FusionGroup]:
        """Transform the weights, the data; multiply, and transform the results."""
        made = self.made
        rows = tuple(Index(f"row.{n}", axis.rows) for n, axis in enumerate(self.axes))
        at = tuple(Index(f"at.{n}", len(axis.weights)) for n, axis in enumerate(self.axes))
        u = self._tensor("weights", (*self.around, *at, *self.channels, self.low))
        v = self._tensor("data", (*made.shared, *made.batch, *rows, *self.channels))
        yield self._weights(u)
        yield self._data(v)
        yield self._results(u, v)

    def _tensor(self, role: str, axes: tuple[Index, ...]) -> Tensor:
        name = fresh(f"{self.made.nest.result.name}_{role}", self.names)
        return Tensor(name, tuple(map(extent, axes)), self.made.data.dtype)

    def _weights(self, u: Tensor) -> FusionGroup:
        around, inner = places_of(*self.around), places_of(*self.channels, self.low)

        def source(at: Place) -> Expr:
            return moved(self.made.weight, self.filter | self._at(at))

        def write(at: Place, value: Expr) -> tuple[Place, Expr]:
            return (*around, *at, *inner), value

        matrices = [axis.weights for axis in self.axes]
        nests, local = Transform(u, source, write).nests(matrices, (self.low,), self.names)
        return finished(FusionGroup((*self.around, *self.channels), tuple(nests), tuple(local)))

    def _at(self, places: Place) -> dict[Index, IndexExpr]:
        """Indices that read taps, or data, at some places along the axes."""
        values: dict[Index, IndexExpr] = {}
        for w, place in zip(self.made.windows, places, strict=True):
            values |= {w.axis: Affine((), 0), w.tap: place}
            if w.phase is not None:
                values |= {w.tap: Affine((), 0), w.phase: place}
        return values

    def _data(self, v: Tensor) -> FusionGroup:
        made, spans = self.made, [axis.span for axis in self.axes]
        split = Lanes(self.channels)
        before = places_of(*made.shared, *made.batch)
        lanes = tuple(placed(c, split.values) for c in places_of(*self.channels))
        inner = places_of(*split.inner)

        def read(at: Place) -> Expr:
            places = tuple(p + span.start for p, span in zip(at, spans, strict=True))
            return made.element(moved(made.data, split.values | self._at(places)))

        source, local = read, []
        nests: list[Nest] = []
        counts = [len(span) for span in spans]
        for n in reversed(range(len(self.axes))):
            sizes = (*counts[:n], *(axis.rows for axis in self.axes[n:]))
            out = v
            if n:
                axes = tuple(Index(f"from.{d}", size) for d, size in enumerate(sizes))
                out = self._tensor("data_rows", (*axes, *split.inner))
                local.append(out)

            def write(at: Place, value: Expr, last: bool = not n) -> tuple[Place, Expr]:
                return ((*before, *at, *lanes) if last else (*at, *inner)), value

            steps = [_shifted(step, -spans[n].start) for step in self.axes[n].data]
            nests += _along(n, steps, sizes, out, source, write, (), split.inner)

            def source(at: Place, made: Tensor = out) -> Expr:
                return Read(made, (*at, *inner))

        rows = (*made.shared, *made.batch, *split.outer)
        return finished(FusionGroup(rows, tuple(nests), tuple(local)))

    def _results(self, u: Tensor, v: Tensor) -> FusionGroup:
        """Transform a part of the first axis along the second one, in the nearest cache."""
        made, (first, *others) = self.made, self.axes
        batch, low = places_of(*made.batch), self.low.affine()
        most = max(part.count for part in first.parts)
        ends = tuple(Index("end", extent(w.axis)) for w in made.windows[1:])
        lines = tuple(Index("row", axis.rows) for axis in others)
        rows = self._tensor("rows", (*made.batch, Index("row", first.rows), *ends, self.low))
        m = rows
        if others:
            m = self._tensor("products", (*made.batch, Index("row", most), *lines, self.low))
        nests: list[Nest] = []
        for part in first.parts:
            nests += self._products(u, v, m, part, 0 if m is rows else part.row)
            for axis in others:

                def source(at: Place) -> Expr:
                    return Read(m, (*batch, *at, low))

                def write(at: Place, value: Expr, begin: int = part.row) -> tuple[Place, Expr]:
                    return (*batch, at[0] + begin, *at[1:], low), value

                nests += _along(
                    1, axis.results, [part.count, 0], rows, source, write, made.batch, (self.low,)
                )

        def row(at: Place) -> Expr:
            return Read(rows, (*batch, *at, low))

        sizes, out = (0, *map(extent, ends)), made.nest.out
        nests += _along(0, first.results, sizes, out, row, self._result, made.batch, (self.low,))
        local = (m,) if m is rows else (m, rows)
        return finished(FusionGroup(self.around, tuple(nests), local))

    def _products(
        self, u: Tensor, v: Tensor, m: Tensor, first: Part, begin: int
    ) -> Iterator[Nest]:
        """Products of rows from `begin` of the first axis, with all of the second one."""
        made = self.made
        batch, channels = places_of(*made.batch), places_of(*self.channels)
        around, shared, low = places_of(*self.around), places_of(*made.shared), self.low.affine()
        for parts in itertools.product((first,), *(axis.parts for axis in self.axes[1:])):
            rows = [Index(f"row.{n}", part.rows) for n, part in enumerate(parts)]
            several = [Index(f"at.{n}", part.weights) for n, part in enumerate(parts)]
            lines = [
                row + n * p.rows + p.row for row, n, p in zip(rows, several, parts, strict=True)
            ]
            weights = [n + part.weight for n, part in zip(several, parts, strict=True)]
            data = Read(v, (*shared, *batch, *lines, *channels))
            weight = Read(u, (*around, *weights, *channels, low))
            index = (*batch, lines[0] - begin, *lines[1:], low)
            axes = (*several, *made.batch, *rows, self.low)
            body = Binary("mul", data, weight)
            yield Nest(m, index, axes, self.channels, "sum", body, m)

    def _result(self, at: Place, value: Expr) -> tuple[Place, Expr]:
        """Place and value of a result."""
        values = {w.axis: p for w, p in zip(self.made.windows, at, strict=True)}
        return written(self.made.nest, value, self.filter | values)


def _along(
    axis: int,
    steps: Sequence[Step],
    sizes: Sequence[int],
    out: Tensor,
    source: Callable[[Place], Expr],
    write: Callable[[Place, Expr], tuple[Place, Expr]],
    outer: tuple[Index, ...],
    inner: tuple[Index, ...],
) -> Iterator[Nest]:
    """The nests that take some steps along one axis; the others have `sizes` elements."""
    for step in steps:
        loops = [Index(f"along.{n}", size) for n, size in enumerate(sizes)]
        loops[axis] = Index(f"tile.{axis}", step.tiles)
        places = places_of(*loops)

        def at(line: Line, places: Place = places) -> Place:
            return (*places[:axis], line.at(places[axis]), *places[axis + 1 :])

        writes = [
            write(at(line), weighted([(factor, source(at(place))) for factor, place in terms]))
            for line, terms in step.sums
        ]
        (index, body), *also = writes
        axes = (*outer, *loops, *inner)
        yield Nest(out, index, axes, (), None, body, out, None, tuple(also))
