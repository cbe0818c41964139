"""Winograd: convolutions with fewer multiplications, as a rewrite of the program.

    O[k, y, x] += D[c, y + r, x + s] * W[k, c, r, s]
     ↦  V[a, b, t, c] = Σ B[a, i] B[b, j] D[c, base(t) + (i, j)]           per tile t of results
        U[a, b, c, k] = Σ G[a, r] G[b, s] W[k, c, r, s]                    ahead of time
        M[a, b, t, k] += V[a, b, t, c] * U[a, b, c, k]                     the multiplications
        O[k, base(t) + (u, v)] = Σ A[u, a] A[v, b] M[a, b, t, k]

with the matrices of `bilinear` (Lavin and Gray 2016, section 4), for any sum of products in which
one or two axes slide over the data; where they move by more than one element, the phases of the
window are channels too. The data is re-laid out, where it is not so, with the channels c last:
they are the lanes of the vectors. `phases` makes the program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.tensor import Tensor
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.nest import Nest, extent
from loopwright.schedule.program.plan import FusionGroup, even_blocks, grouped
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.bilinear.by_phase import ByPhase
from loopwright.schedule.rewrites.bilinear.input_layout import fold_padding, lay_out_inputs
from loopwright.schedule.rewrites.bilinear.match import Convolution
from loopwright.schedule.rewrites.bilinear.phases import Block, Phases
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import BILINEAR
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Target

RESULTS = (4, 3, 2)
"""Tile sizes m of F(m, r) that are worth trying; the error grows with m."""


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

        def computed(found: list[Convolution]) -> tuple[Phases, bool]:
            phases = Phases(found, block)
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

        def computed(found: list[Convolution]) -> tuple[Phases | ByPhase, bool]:
            apart = ByPhase.of(found[0], results, target) if len(found) == 1 else None
            return apart or Phases(found, None), apart is not None

        return _rewritten(base.source, results, computed)


def _rewritten(
    source: Source,
    results: int,
    computed: Callable[[list[Convolution]], tuple[Phases | ByPhase, bool]],
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
