"""Vectors whose lanes stand apart in memory.

TVM makes one scalar load or store per lane of them, and so does the machine. Where lanes are a few
elements apart, a few vector loads and a shuffle are several times as fast. For stores, two or four
vectors that are neighbours in memory, lane by lane, are transposed in registers: then each lane of
theirs is one store of two or four elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import sym, tirx
from tvm.ir import Expr

from loopwright.codegen.tir.indices import number

_PART = 4
"""Elements of 4 bytes in the parts of a vector within which shuffles are cheap."""


def together(left: int) -> int:
    """Number of the `left` rows to store at once: 4, 2, or 1 as it stands."""
    return next(n for n in (_PART, 2, 1) if n <= left)


def transposes(dtype: str, lanes: int) -> bool:
    """Return whether vectors of so many lanes can be stored together."""
    return dtype == "float32" and lanes % _PART == 0


class RowGroup:
    """A few rows, each of the same vectors.

    Life cycle: `begin(row)`, then `tile(…)` for each vector of the row, in the same order for
    every row; at the end `neighbours()`, `declarations()` and `stores()`.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._tiles: list[Tile] = []
        self._row = self._next = 0

    def begin(self, row: int) -> None:
        """The vectors to come are those of this row."""
        self._row, self._next = row, 0

    def tile(self, buffer: tirx.Var, base: Expr, step: int, lanes: int) -> Tile:
        """Place of the next vector, whose lane l belongs at buffer[base + step · l]."""
        if self._row == 0:
            self._tiles.append(Tile(buffer, step, self.size, lanes))
        tile = self._tiles[self._next]
        tile.bases.append(base)
        self._next += 1
        return tile

    def neighbours(self) -> bool:
        """Return whether the rows of every tile stand side by side in memory."""
        analyzer = sym.Analyzer()
        return all(
            analyzer.can_prove_equal(base - tile.bases[0], row)
            for tile in self._tiles
            for row, base in enumerate(tile.bases)
        )

    def declarations(self) -> Iterator[tirx.Stmt]:
        """Declarations that stand before the first row."""
        for tile in self._tiles:
            yield from map(tirx.AllocBuffer, tile.arrays)

    def stores(self) -> Iterator[tirx.Stmt]:
        """Everything to its place."""
        for tile in self._tiles:
            yield from tile.stores()


class Tile:
    """Some vectors to be stored together. LLVM keeps the arrays in registers."""

    def __init__(self, buffer: tirx.Var, step: int, count: int, lanes: int) -> None:
        self.bases: list[Expr] = []
        self._buffer, self._step, self._count, self._lanes = buffer, step, count, lanes
        self._rows, self._turned = self.arrays = tuple(
            tirx.decl_buffer((count * lanes,), buffer.dtype, name) for name in ("rows", "turned")
        )

    def write(self, value: Expr, lane: Expr) -> tirx.Stmt:
        """An element of the last row."""
        start = (len(self.bases) - 1) * self._lanes
        return tirx.BufferStore(self._rows, value, [lane + number(start)])

    def stores(self) -> Iterator[tirx.Stmt]:
        """Lane l of row r to base + step · l + r.

        a0 a1 a2 a3 | …     a0 b0 a1 b1 | …     a0 b0 c0 d0 | …
        b0 b1 b2 b3 | …  ↦  a2 b2 a3 b3 | …  ↦  a1 b1 c1 d1 | …
        c…, d…              c0 d0 c1 d1 | …     …
        """
        starts = range(0, self._count * self._lanes, self._lanes)
        vectors = [_load(self._rows, start, self._lanes) for start in starts]
        low, high = self._interleaved(*vectors[:2])
        found = [(0, low), (2, high)]  # the first lane in a part that each vector holds
        if self._count > 2:
            more = self._interleaved(*vectors[2:])
            found = [
                (first + half, value)
                for (first, x), y in zip(found, more, strict=True)
                for half, value in enumerate(self._interleaved(x, y, 2))
            ]
        for start, (first, value) in zip(starts, found, strict=True):
            yield tirx.BufferStore(self._turned, _fenced(value), [_ramp(start, self._lanes)])
            for at in range(0, self._lanes, self._count):
                lane = at // _PART * _PART + first + at % _PART // self._count
                place = tirx.Ramp(
                    self.bases[0] + number(self._step * lane), number(1), self._count
                )
                piece = _load(self._turned, start + at, self._count)
                yield tirx.BufferStore(self._buffer, piece, [place])

    def _interleaved(self, x: Expr, y: Expr, run: int = 1) -> tuple[Expr, Expr]:
        """Elements of both by turns: runs from the first and the second half of each part."""
        halves = []
        for half in (0, _PART // 2):
            order: list[int] = []
            for part in range(half, self._lanes, _PART):
                for at in range(part, part + _PART // 2, run):
                    for vector in (0, self._lanes):
                        order += range(vector + at, vector + at + run)
            halves.append(tirx.Shuffle([x, y], list(map(number, order))))
        return halves[0], halves[1]


def _load(buffer: tirx.Var, start: int, lanes: int) -> Expr:
    return tirx.BufferLoad(buffer, [_ramp(start, lanes)])


def _fenced(value: Expr) -> Expr:
    """The value, of which LLVM does not make shuffles of more vectors for each of its parts."""
    return tirx.call_llvm_pure_intrin(value.ty, "llvm.arithmetic.fence", value)


def _ramp(start: int, lanes: int) -> Expr:
    return tirx.Ramp(number(start), number(1), lanes)


MOST_STEP = 4
"""The largest step; beyond it, most of what is loaded would be thrown away."""


def strided_load(buffer: Any, base: Expr, step: int, lanes: int) -> Expr:
    """The vector buffer[base], buffer[base + step], … of `lanes` elements.

    It touches nothing outside of the first and the last of them: the last load ends with it.

        step 2, 4 lanes:  a = buffer[base …+3], b = buffer[base+3 …+6];  a0 a2 b1 b3
    """
    last = (step - 1) * (lanes - 1)  # where the last load begins
    starts = [min(number * lanes, last) for number in range(-(-(last + lanes) // lanes))]
    parts = [
        tirx.BufferLoad(buffer, [tirx.Ramp(base + number(start), number(1), lanes)])
        for start in starts
    ]
    chosen = []
    for lane in range(lanes):
        at = step * lane
        part = next(n for n, start in enumerate(starts) if start <= at < start + lanes)
        chosen.append(number(part * lanes + at - starts[part]))
    return tirx.Shuffle(parts, chosen)
