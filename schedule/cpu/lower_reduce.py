"""The reduction loops of a nest: which are unrolled, slide, or are written out for their tests.

Partial results in the lanes of a tile become one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import is_float
from loopwright.dsl.elements import COMBINE
from loopwright.dsl.expr import Binary
from loopwright.dsl.index import Affine, Index
from loopwright.schedule.cpu.heuristics import CPU
from loopwright.schedule.cpu.tile_loops import Place, TileLoops
from loopwright.schedule.program.nest import extent, sliding
from loopwright.schedule.sketch.sketch import NestSketch
from loopwright.schedule.tree.grammar import Buffer, Column, Linear, Load, Loop, Stmt, Store, Var

_Loop = tuple[Var, Column, str]


@dataclass(frozen=True)
class ReductionLoops:
    """The loops around the update of a register tile: `outer`, one for each reduction axis, and
    inside of these what is `unrolled`. The first `blocked` ones stand around blocks of a long sum.
    Loops `inside` are around the vectors alone: in the order in which a window slides, each row is
    read once for all that need it. `place` says where each axis stands."""

    outer: tuple[_Loop, ...]
    unrolled: tuple[_Loop, ...]
    inside: tuple[_Loop, ...]
    place: Mapping[Index, Linear]
    blocked: int = 0

    def depth(self, tests: Sequence[Affine]) -> int:
        """Number of the outer and the unrolled loops around what some tests depend on."""
        used = {i for test in tests for i in test.indices()}
        bound = {var for i, at in self.place.items() if i in used for var, _ in at.terms}
        loops = enumerate((*self.outer, *self.unrolled), 1)
        return max((n for n, (var, *_) in loops if var in bound), default=0)


def reduction_loops(
    sketch: NestSketch,
    values: Mapping[str, tuple[Column, ...]],
    sizes: Mapping[Index, Column],
    across: Index | None,
    variable: Callable[[str], Var],
) -> ReductionLoops:
    """The loops of a sum by the values of its knobs; `across`: its vector axis, or None."""
    predicates, sparse = sketch.predicates, sketch.nest.sparse is not None
    outer: list[_Loop] = []
    unrolled: list[_Loop] = []
    inside: list[_Loop] = []
    tested = {i for test in predicates.whole for i in test.indices()}
    slides = sliding(sketch.nest, sketch.vector, sketch.tiled)
    place: dict[Index, Linear] = {}
    factors = dict(zip(sketch.unrolled, values.get("unroll", ()), strict=True))
    split = None if across or sparse or predicates.taps else _split(sketch)
    blocked = 0
    for axis in sketch.reduce:
        var, size = variable(axis.name), extent(axis)
        if axis is across:
            outer.append((var, size // sizes[axis], "serial"))
            place[axis] = Linear(((var, sizes[axis]),))
        elif axis in predicates.taps or sparse or (axis in tested and axis not in factors):
            outer.append((var, size, "unrolled" if axis in predicates.taps else "serial"))
            place[axis] = Linear(((var, 1),))
        else:
            factor, inner = factors.get(axis, 1), variable(f"{axis.name}.in")
            steps: Column = size // factor
            place[axis] = Linear(((var, factor), (inner, 1)))
            if axis is split:
                block, terms = variable(f"{axis.name}.sum"), _terms_within(sketch, axis)
                each = _near_divisor(steps, CPU.block_terms / (terms * factor))
                outer.append((block, steps // each, "serial"))
                place[axis] = Linear(((block, factor * each), (var, factor), (inner, 1)))
                blocked, steps = len(outer), each
            outer.append((var, steps, "serial"))
            (inside if axis in slides else unrolled).append((inner, factor, "unrolled"))
    return ReductionLoops(tuple(outer), tuple(unrolled), tuple(inside), place, blocked)


def _split(sketch: NestSketch) -> Index | None:
    """The axis of a long sum that is cut into blocks, each summed from zero.

    A running sum of K terms rounds K times at its own size, which grows as √K; in blocks of B the
    error is √(K/B) times smaller (Higham 1993, The accuracy of floating point summation). That is
    free where registers hold the sum of the blocks beside the block's, which they do beside a tile
    along one axis.
    """
    total = math.prod(map(extent, sketch.reduce))
    floating = is_float(sketch.nest.result.dtype) and sketch.nest.reducer == "sum"
    if not (sketch.cut and floating) or len(sketch.tile) != 1 or total < CPU.long_sum:
        return None
    inner = (a for a in sketch.reduce if _terms_within(sketch, a) < CPU.block_terms)
    return next(inner, None)


def _terms_within(sketch: NestSketch, axis: Index) -> int:
    """Terms of a sum for each step of one of its axes."""
    return math.prod(map(extent, sketch.reduce[sketch.reduce.index(axis) + 1 :]))


def _near_divisor(count: Column, wanted: Any) -> Column:
    """The divisor of a count that is nearest to another number, in ratio."""
    found = np.frompyfunc(_nearest, 2, 1)(count, wanted)  # a ufunc, which traces record
    return found if isinstance(found, int) else np.positive(found, dtype=int, casting="unsafe")


@functools.cache
def _nearest(count: int, wanted: float) -> int:
    small = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    return min((*small, *(count // n for n in small)), key=lambda n: abs(math.log(n / wanted)))


def combined_lanes(tiles: TileLoops, acc: Buffer, across: Index, most: int) -> list[Stmt]:
    """Halve the partial results, at `most` so many, until lane 0 has them all:
    `acc[l] ⊕= acc[l + half]`."""
    stmts: list[Stmt] = []
    combine = COMBINE[tiles.sketch.nest.reducer or "sum"]
    for step in range(1, most.bit_length()):
        half = tiles.sizes[across] >> step
        lane = tiles.var(f"{across.name}.half{step}")

        def fold(at: Place, half: Column = half, lane: Var = lane) -> Stmt:
            here = (*at.values(), Linear(((lane, 1),)))
            there = (*at.values(), Linear(((lane, 1),), half))
            value = Binary(combine, Load(acc, here), Load(acc, there))
            return Loop(lane, half, "vectorized", (Store(acc, here, value),))

        loops = tiles.inside(tiles.sketch.tiled, fold, f"half{step}")
        guard = tiles.var(f"{across.name}.step{step}")
        stmts.append(Loop(guard, np.minimum(half, 1), "serial", tuple(loops)))
    return stmts
