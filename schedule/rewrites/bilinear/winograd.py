"""Winograd: convolutions with fewer multiplications, as a rewrite of the program.

    O[k, y, x] += D[c, y + r, x + s] * W[k, c, r, s]
     ↦  V[a, b, t, c] = Σ B[a, i] B[b, j] D[c, base(t) + (i, j)]           per tile t of results
        U[a, b, c, k] = Σ G[a, r] G[b, s] W[k, c, r, s]                    ahead of time
        M[a, b, t, k] += V[a, b, t, c] * U[a, b, c, k]                     the multiplications
        O[k, base(t) + (u, v)] = Σ A[u, a] A[v, b] M[a, b, t, k]

with the matrices of `bilinear` (Lavin and Gray 2016, section 4), for any sum of products in which
one or two axes slide over the data; where they move by more than one element, the phases of the
window are channels too. The data is re-laid out, where it is not so, with
the channels c last: they are the lanes of the vectors. The sums over one window are a small local
nest each (`transform`). A convolution whose results fall into phases (`phases`) becomes one
program, whose tensors have the phase as their first axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import Binary, Expr, Read
from loopwright.dsl.index import Affine, Index, IndexExpr
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.schedule.program.canonical import Program, fresh, moved, placed, places_of, written
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.nest import Nest, extent, stride
from loopwright.schedule.program.plan import (
    FusionGroup,
    TileOrigin,
    even_blocks,
    finished,
    grouped,
)
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.bilinear.by_phase import ByPhase
from loopwright.schedule.rewrites.bilinear.input_layout import fold_padding, lay_out_inputs
from loopwright.schedule.rewrites.bilinear.match import (
    Convolution,
    Window,
    bounded,
    flattened,
    merged,
)
from loopwright.schedule.rewrites.bilinear.matrices import Matrix
from loopwright.schedule.rewrites.bilinear.transforms import Lanes, Place, Transform
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import BILINEAR
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target

RESULTS = (4, 3, 2)
"""Tile sizes m of F(m, r) that are worth trying; the error grows with m."""


@dataclass(frozen=True)
class Block:
    """Part of a convolution that is computed at a time: so many rows of tiles, or, if `across`,
    tiles in the order of rows."""

    count: int
    across: bool = False


class Winograd(Rewrite):
    """`V = B d; U = G g; M += V * U; O = A M`: F(results, taps) for each convolution that gains.

    With `rows` or `tiles`, so many rows of tiles, or tiles, are computed at a time, from data to
    results.
    """

    name = "winograd"
    needs = "a convolution with constant weights and at least 8 channels, in and out"
    numerics = Numerics.STANDARD
    prior = 0.85  # it takes no longer than is estimated
    minor = 0.3
    gpu = True

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for results in RESULTS:
            yield {"results": results}
            for block in () if target.gpu else blocks_of(base.source, results, target):
                yield {"results": results, "tiles" if block.across else "rows": block.count}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        rows, tiles = parameters.get("rows"), parameters.get("tiles")
        block = Block(rows) if rows else Block(tiles, across=True) if tiles else None

        def computed(found: list[Convolution]) -> tuple[_Phases, bool]:
            phases = _Phases(found, block)
            return phases, block is None or bool(phases.around)

        # A GPU's kernels read padded copies as fast; its transform would have to test.
        return _rewritten(base.source, parameters["results"], computed, bool(target.gpu))


class WinogradByPhase(Rewrite):
    """Winograd's algorithm for each phase of a window that moves by more than one element."""

    name = "winograd_by_phase"
    needs = "a strided convolution with constant weights and at least 8 channels, in and out"
    numerics = Numerics.FAST
    prior = 0.82  # as `winograd`
    minor = 0.3

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        for results in RESULTS:
            yield {"results": results}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        results = parameters["results"]

        def computed(found: list[Convolution]) -> tuple[_Phases | ByPhase, bool]:
            apart = ByPhase.of(found[0], results, target) if len(found) == 1 else None
            return apart or _Phases(found, None), apart is not None

        return _rewritten(base.source, results, computed)


def _rewritten(
    source: Source,
    results: int,
    computed: Callable[[list[Convolution]], tuple[_Phases | ByPhase, bool]],
    padded: bool = False,
) -> Rewritten | None:
    """The program with each run of convolutions computed otherwise; None if none is as it was
    asked for. `padded` says whether padded copies are made where the transform could as well take
    zeros."""
    program = source.program
    found = _found(source, program, results, source.names())
    done: list[Nest | FusionGroup] = []
    growth, asked, numerics = 0.0, False, Numerics.STANDARD
    for item in _joined(program, found):
        if isinstance(item, Nest):
            done.append(item)
            continue
        alike = [m for m in found if m is not None and m.lies_as(item[0])]
        if not padded:
            done = fold_padding(done, alike, program, source)
        done = lay_out_inputs(done, alike, program, source)
        made, as_asked = computed(item)
        growth, asked = max(growth, made.error_growth), asked or as_asked
        if not made.bounded:
            numerics = Numerics.FAST
        done += made.groups()
    if not asked:
        return None
    return Rewritten(tuple(_planned(done, source.outputs)), growth, numerics)


def blocks_of(source: Source, results: int, target: Target) -> Iterator[Block]:
    """Blocks that `winograd` may compute at a time. The first is one row of tiles. The second is
    the most rows that keep all threads busy for no longer, and make not much more than fits a
    cache. The third is the most tiles, if rows leave some thread less work than others."""
    program = source.program
    found = _found(source, program, results, set())
    made = [phases for phases in _joined(program, found) if isinstance(phases, list)]
    if not made:
        return
    phases = max(made, key=lambda p: len(p) * p[0].nest.steps)
    first = phases[0]
    count, *others = (extent(w.tile) for w in first.windows)
    images = math.prod(map(extent, first.batch))
    products = math.prod(w.algorithm.products for w in first.windows)
    channels = sum(math.prod(map(extent, loops)) for loops in (first.channels, first.filters))
    planes = len(phases) * math.prod(map(extent, first.shared))
    tile = math.prod((planes, products, channels)) * item_bytes(first.data.dtype)
    most = BILINEAR.winograd_block_l2_caches * target.l2_bytes // tile
    row = math.prod(others)
    fitting = [n for n in even_blocks(images, count, target.threads) if n * row <= most]
    rows = max(fitting, default=1)
    yield from map(Block, sorted({1, rows}))

    def busiest(size: int) -> int:
        """Tiles that the thread with the most blocks of so many computes."""
        return -(-images * -(-count * row // size) // target.threads) * size

    fewest = BILINEAR.winograd_imbalance * busiest(1)
    if busiest(rows * row) > fewest:
        sizes = range(min(most, count * row - 1), row, -1)
        even = (n for n in sizes if n % row and busiest(n) <= fewest)
        yield from (Block(n, across=True) for n in itertools.islice(even, 1))


def _found(
    source: Source, program: Program, results: int, names: set[str]
) -> list[Convolution | None]:
    """The convolution that each nest is, if it is one that gains."""
    known = constants_of(source.workload, tuple(FusionGroup((), (nest,)) for nest in program))
    return [Convolution.of(nest, results, known, names) for nest in program]


def _joined(
    program: Program, found: list[Convolution | None]
) -> Iterator[Nest | list[Convolution]]:
    """The program with runs of convolutions that can be computed as one, its other nests."""
    run: list[Convolution] = []
    for nest, made in zip(program, found, strict=True):
        if run and (made is None or not run[0].joins(made)):
            yield run
            run = []
        if made is None:
            yield nest
        else:
            run.append(made)
    if run:
        yield run


class _Phases:
    """The program that computes a convolution otherwise, or several phases of one at a time:
    their products are one nest, and what is read or written for one waits in the cache for the
    others.

    With `block`, a loop over blocks stands around everything but the weights: the transformed data
    and the products of a block stay in its thread's cache."""

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


def _planned(done: list[Nest | FusionGroup], outputs: tuple[Tensor, ...]) -> Iterator[FusionGroup]:
    program = tuple(
        n for item in done for n in (item.nests if isinstance(item, FusionGroup) else (item,))
    )
    for is_group, items in itertools.groupby(done, lambda item: isinstance(item, FusionGroup)):
        run = tuple(items)
        if is_group:
            yield from (g for g in run if isinstance(g, FusionGroup))
        else:
            yield from grouped(tuple(n for n in run if isinstance(n, Nest)), program, outputs)
