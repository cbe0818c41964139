"""Convolutions in a program: which sums of products Winograd's algorithms compute.

A window that moves by s elements is the sum of s windows over every s-th element, which move by
one. These phases count as more channels: products are added up before results are transformed.

    Σ_{q < r} d[s·j + q] g[q]  =  Σ_{p < s} Σ_{q < ⌈r / s⌉} d[s·(j + q) + p] g[s·q + p]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loopwright.dsl.expr import Binary, Const, Expr, IndexValue, Read, Select
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.numerics import BOUND
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import tensor_shape
from loopwright.schedule.program.canonical import moved, placed, places_of
from loopwright.schedule.program.fusion import inlined
from loopwright.schedule.program.nest import Nest, extent, fresh, stride
from loopwright.schedule.program.padding import box
from loopwright.schedule.program.plan import TileOrigin
from loopwright.schedule.rewrites.bilinear.matrices import Bilinear, bilinear
from loopwright.schedule.rewrites.cache_read import factors
from loopwright.schedule.rewrites.heuristics import BILINEAR


@dataclass(frozen=True)
class Window:
    """An axis of the result that slides over an axis of the data, by `step`; the algorithm is
    that of one phase, which `phase` counts if there is more than one."""

    axis: Index
    tap: Index
    step: int
    phase: Index | None
    algorithm: Bilinear
    tile: Index
    base: TileOrigin

    def predicated(self, weight: Expr, place: Affine, values: Mapping[Index, IndexExpr]) -> Expr:
        """The weight of a tap of a phase; 0 where the phase has one tap less. The phase may be an
        axis that is cut into lanes: it has one of the `values`."""
        if self.phase is None or not extent(self.tap) % self.step:
            return weight
        tap = IndexValue(place * self.step + placed(self.phase, values))
        inside = Binary("lt", tap, Const(extent(self.tap), "int32"))
        return Select(inside, weight, Const(0.0, weight.dtype))

    @property
    def error_growth(self) -> float:
        """Error growth: how much larger rounding errors may be than in the sums themselves."""
        taps = self.step * len(self.algorithm.inner[0])  # the last phases may have one less
        return self.algorithm.error_growth * math.sqrt(taps / extent(self.tap))


def bounded(windows: Sequence[Window], channels: int) -> bool:
    """Return whether rounding errors are at most `BOUND` times the bound of the direct sum, the
    largest element of a channel in a window standing for the channel.

    A sum of n terms errs by at most n roundings of the sum of their sizes: n are the products that
    are added up and the terms of the three transforms, of windows and weights that are as large as
    their largest elements everywhere. With more than two results, a window meets elements of
    others.
    """
    if any(w.algorithm.results > 2 for w in windows):
        return False
    sizes = math.prod(w.step * w.algorithm.amplification for w in windows)
    taps = math.prod(extent(w.tap) for w in windows)
    terms = channels * math.prod(w.step for w in windows)
    terms += sum(len(w.algorithm.inner[0]) + 2 * w.algorithm.products for w in windows)
    return sizes * terms <= BOUND * taps * (taps * channels)


class Convolution:
    """A nest that is a convolution, and the program that computes it otherwise."""

    def __init__(
        self, nest: Nest, data: Read, weight: Read, windows: tuple[Window, ...], names: set[str]
    ) -> None:
        self.nest, self.windows, self.names = nest, windows, names
        self.data, self.weight = _in_phases(data, windows), _in_phases(weight, windows)
        in_data, in_weight = set(_indices(data)), set(_indices(weight))
        slid = {w.axis for w in windows}
        self.taps = {w.tap for w in windows}
        self.shared = tuple(a for a in nest.axes if a in in_data & in_weight)
        self.batch = tuple(a for a in nest.axes if a in in_data - in_weight - slid)
        self.filters = tuple(a for a in nest.axes if a in in_weight - in_data)
        phases = (w.phase for w in windows if w.phase is not None)
        self.channels = (*phases, *(k for k in nest.reduce if k not in self.taps))
        self.padding: Nest | None = None
        """Producer that pads the data, where that is no nest of its own."""
        self.lane: Index | None = None
        """All channels of the data as its last axis, where they are that."""

    @property
    def order(self) -> list[int]:
        """The axes of the data with the last channel behind the others."""
        last, index = self.channels[-1], self.data.index
        return sorted(range(len(index)), key=lambda d: index[d].plain() == last)

    def element(self, read: Read) -> Expr:
        """An element of the data."""
        value = read if self.padding is None else inlined(read, self.padding)
        return within(read, value)

    def padded_by(self, nest: Nest) -> bool:
        """Return whether a nest only puts constants around something with channels last."""
        body = nest.body
        simple = nest.reducer is None and nest.epilogue is None and not nest.also
        if not simple or not isinstance(body, Select):
            return False
        if not isinstance(body.x, Read) or not isinstance(body.y, Const):
            return False
        places = dict(zip((p.plain() for p in self.data.index), nest.index, strict=True))
        lane = places[self.channels[-1]].plain() if self.channels[-1] in places else None
        spans = box(body.cond, nest)
        if lane is None or spans is None or spans[lane].count != extent(lane):
            return False
        return stride(body.x.tensor, body.x.index, lane) == 1

    @property
    def folds(self) -> dict[int, Window]:
        """Axes of the data whose phases join the channels, which are too few for a vector."""
        if extent(self.channels[-1]) >= BILINEAR.vector_channels or self.lane is not None:
            return {}
        found = {
            d: w
            for d, p in enumerate(self.data.index)
            for w in self.windows
            if w.phase is not None and w.phase in p.indices() and p.plain() is None and not p.const
        }
        phases = sum(w.phase is not None for w in self.windows)
        whole = len(self.channel_axes) == len(self.channels) - phases
        return found if whole and len(found) == phases else {}

    @property
    def channel_axes(self) -> list[int]:
        """The axes of the data that are channels, in the order of these."""
        places = [p.plain() for p in self.data.index]
        return [d for c in self.channels for d, place in enumerate(places) if place == c]

    def lies_as(self, other: Convolution) -> bool:
        """Return whether both read one tensor, which should lie in the same way for both."""
        mine, others = ({d: w.step for d, w in c.folds.items()} for c in (self, other))
        same = self.data.tensor is other.data.tensor
        alike = not mine or self.channel_axes == other.channel_axes
        return self.order == other.order and mine == others and same and alike

    @staticmethod
    def of(nest: Nest, results: int, known: frozenset[str], taken: set[str]) -> Convolution | None:
        """The nest as a convolution; None if it is none that gains."""
        sides = factors(nest)
        for data, weight in (sides, sides[::-1]) if len(sides) == 2 else ():
            windows = tuple(_windows(nest, data, weight, results))[-BILINEAR.window_axes :]
            made = Convolution(nest, data, weight, windows, taken)
            ahead = weight.tensor.name in known and data.tensor.name not in known
            if windows and ahead and made._gains(data, weight):
                return made
        return None

    def _gains(self, data: Read, weight: Read) -> bool:
        if data.dtype not in ("float32", "float64") or self.nest.also:
            return False
        in_data, in_weight = set(_indices(data)), set(_indices(weight))
        if in_data | in_weight != {*self.nest.axes, *self.nest.reduce}:
            return False
        slid = {w.axis for w in self.windows}
        whole = (p for p in data.index if not set(p.indices()) & slid)
        weights = (p for p in weight.index if not set(p.indices()) <= self.taps)
        if any(p.plain() is None and p.terms for p in (*whole, *weights)):
            return False
        if not set(self.nest.reduce) - self.taps <= in_data & in_weight:
            return False
        return all(
            math.prod(map(extent, loops)) >= BILINEAR.channels
            for loops in (self.channels, self.filters)
        )

    def joins(self, other: Convolution) -> bool:
        """Return whether two convolutions are components of one result."""
        one, two = self.nest, other.nest
        return (
            (one.out, one.axes, one.reduce) == (two.out, two.axes, two.reduce)
            and list(one.extents.values()) == list(two.extents.values())  # axes compare by name
            and self.data.tensor is other.data.tensor
            and self.weight.tensor is other.weight.tensor
            and (self.windows, self.folds) == (other.windows, other.folds)
            and (self.batch, self.filters) == (other.batch, other.filters)
        )


def folded(alike: list[Convolution]) -> Nest:
    """A copy of the data of some convolutions, which is one tensor and has the same folds, with
    phases and channels as its last axis. They read it from then on."""
    first = alike[0]
    old, folds, index = first.data.tensor, first.folds, first.data.index
    places: list[Affine] = []
    outer: dict[int, Index] = {}
    phases: list[Index] = []
    for d, size in enumerate(tensor_shape(old)):
        step = folds[d].step if d in folds else 1
        outer[d] = Index(f"d{d}", -(-size // step))
        places.append(outer[d].affine())
        if step > 1:
            phases.append(Index(f"d{d}.phase", step))
            places[d] = outer[d] * step + phases[-1]
    channels = first.channel_axes
    before = [d for d in outer if d not in channels]
    rows = tuple(outer[d] for d in before)
    lanes = (*phases, *(outer[d] for d in channels))
    name = fresh(f"{old.name}_folded", first.names)
    shape = (*map(extent, rows), math.prod(map(extent, lanes)))
    new = Tensor(name, shape, old.dtype)
    for other in alike:
        index, slid = other.data.index, other.folds
        read = [slid[d].axis + slid[d].tap if d in slid else index[d] for d in before]
        other.data = Read(new, (*read, flattened(other.channels)))
        other.lane = Index(".lane", shape[-1])
    source, at = Read(old, tuple(places)), (*places_of(*rows), flattened(lanes))
    return Nest(new, at, (*rows, *lanes), (), None, within(source, source), new)


def flattened(axes: Sequence[Index]) -> Affine:
    """The place on one axis that some are, the last one running fastest."""
    place = Affine((), 0)
    for axis in axes:
        place = place * extent(axis) + axis
    return place


def merged(parts: Sequence[Index], axes: Sequence[Index]) -> tuple[tuple[Index, ...], Affine]:
    """Loops over the first elements of some axes that are flattened into one, as few as there can
    be, and the place on that one."""
    runs: list[tuple[int, int]] = []  # the steps of loops, and their extents, the last one first
    step, whole = 1, False
    for part, axis in reversed(list(zip(parts, axes, strict=True))):
        first, count = runs.pop() if whole else (step, 1)
        runs.append((first, count * extent(part)))
        step, whole = step * extent(axis), extent(part) == extent(axis)
    loops = [(Index(f".lane{n}", count), first) for n, (first, count) in enumerate(runs)][::-1]
    place = sum((loop * first for loop, first in loops), Affine((), 0))
    return tuple(loop for loop, _ in loops), place


def within(read: Read, value: Expr) -> Expr:
    """The element read, and 0 behind the tensor, where only phases with fewer taps read."""
    for p, size in zip(read.index, tensor_shape(read.tensor), strict=True):
        if p.bounds({i: extent(i) for i in p.indices()})[1] >= size:
            inside = Binary("lt", IndexValue(p), Const(size, "int32"))
            value = Select(inside, value, Const(0.0, read.dtype))
    return value


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
                phase = Index(f"{tap.name}.phase", step) if step > 1 else None
                tile = Index(f"{axis.name}.tile", -(-extent(axis) // results))
                base = Index(f"{axis.name}.base", extent(axis) - results + 1)
                yield Window(
                    axis,
                    tap,
                    step,
                    phase,
                    algorithm,
                    tile,
                    TileOrigin(base, tile.affine(), results),
                )


def _algorithm(results: int, taps: int, step: int) -> Bilinear | None:
    """The algorithm of one phase, if it is one and saves something. An odd number of results is
    for taps with which the next even one loses more, or too much."""
    each = -(-taps // step)
    products = results + each - 1
    if (
        taps < 2
        or products > BILINEAR.products_per_axis
        or (results % 2 and products < BILINEAR.products_for_odd_results)
    ):
        return None
    needed = step * products - -taps % step  # phases with one tap less need one product less
    return bilinear(results, each) if needed < results * taps else None


def _in_phases(read: Read, windows: tuple[Window, ...]) -> Read:
    """The read with taps in phases."""
    values = {w.tap: w.tap * w.step + w.phase for w in windows if w.phase is not None}
    return moved(read, values)


def _indices(read: Read) -> list[Index]:
    return [i for p in read.index for i in p.indices()]
