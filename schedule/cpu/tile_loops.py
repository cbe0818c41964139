"""The loops of a nest's register tiles: the levels of every axis, and what runs over one tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from loopwright.dsl.index import Index
from loopwright.schedule.loops.statements import wrapped
from loopwright.schedule.program.nest import extent, lanes
from loopwright.schedule.sketch.sketch import NestSketch
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Column, Let, Linear, Loop, Stmt, Var, ceildiv

Place = dict[Index, Linear]
"""Places of axes."""


@dataclass(frozen=True)
class Level:
    """The levels of one spatial axis: blocks, tiles within a block, and a tile's own elements."""

    axis: Index
    tile: Column
    blocks: Column
    within: Column
    block: Var
    inner: Var
    number: Var
    base: Var

    @property
    def tiles(self) -> Column:
        return ceildiv(extent(self.axis), self.tile)


class TileLoops:
    """The loops around register tiles and inside of one, for a batch of knob values; `rows` are
    the loops that the nest shares with others, and `number` tells its variables from theirs."""

    def __init__(
        self,
        sketch: NestSketch,
        values: Mapping[str, tuple[Column, ...]],
        target: Target,
        rows: Mapping[Index, Linear],
        number: int,
    ) -> None:
        self.sketch, self.target, self.rows, self.nest_number = sketch, target, rows, number
        self.sizes = dict(zip(sketch.tile, values.get("tile", ()), strict=True))
        self.lanes: Column = 1
        if sketch.vector is not None:
            self.lanes = np.minimum(lanes(sketch.nest, target), self.sizes[sketch.vector])
        self.levels: dict[Index, Level] = {}
        self.begin = dict(rows)  # of a register tile
        for number, axis in enumerate(sketch.nest.axes):
            tile = self.sizes.get(axis, 1)
            tiles = ceildiv(extent(axis), tile)
            (wanted,) = values.get(f"block{number}_", (tiles,))
            within = tiles if rows else np.minimum(wanted, tiles)
            names = (self.var(f"{axis.name}.{part}") for part in ("block", "in", "tile", "base"))
            level = Level(axis, tile, ceildiv(tiles, within), within, *names)
            self.levels[axis] = level
            self.begin[axis] = Linear(((level.base if axis in self.sizes else level.number, 1),))

    def var(self, name: str) -> Var:
        """A variable of this nest."""
        return Var(f"{name}{self.nest_number}" if self.nest_number else name)

    def around(self, axis: Index, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The loop over the tiles of a block along an axis, and where a tile begins."""
        level = self.levels[axis]
        number = Linear(((level.block, level.within), (level.inner, 1)))
        lets: list[Stmt] = [Let(level.number, number, level.tiles - 1)]
        if axis in self.sizes:
            base = Linear(((level.number, level.tile),))
            lets.append(Let(level.base, base, extent(axis) - level.tile))
        ragged = Linear(((level.block, -level.within),), level.tiles)
        return (Loop(level.inner, level.within, "serial", (*lets, *body), ragged),)

    def place(self, at: Mapping[Index, Linear]) -> Place:
        """Place of every spatial axis, given the place within the register tile."""
        place = dict(self.begin)
        for axis, step in at.items():
            if axis in self.levels:
                place[axis] = place[axis] + step
        return place

    def inside(
        self,
        tile: tuple[Index, ...],
        make: Callable[[Place], Stmt],
        name: str,
        across: Index | None = None,
        around: Callable[[list[Stmt], Place], list[Stmt]] | None = None,
    ) -> list[Stmt]:
        """Unrolled loops over the places of a register tile, the innermost one in vectors: along
        the vector axis, or another one `across` it, as long ones as divide the tile. `around`
        makes what stands around the vectors alone."""
        at: Place = {}
        loops: list[tuple[Var, Column, str]] = []
        vectors: list[tuple[Var, Column, str]] = []
        outside = 0
        for axis in tile:
            size = self.sizes[axis]
            var = self.var(f"{axis.name}.{name}")
            if axis is (across or self.sketch.vector):
                count = self.lanes if across is None else np.minimum(size & -size, self.lanes)
                lane = self.var(f"{axis.name}.{name}lane")
                outside = len(loops)
                loops.append((var, size // count, "unrolled"))
                vectors.append((lane, count, "vectorized"))
                at[axis] = Linear(((var, count), (lane, 1)))
            else:
                loops.append((var, size, "unrolled"))
                at[axis] = Linear(((var, 1),))
        body = wrapped([make(at)], loops[outside:] + vectors)
        return wrapped(body if around is None else around(body, at), loops[:outside])
