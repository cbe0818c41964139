"""Lowering of the copies that re-lay operands out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.index import Index
from loopwright.schedule.cpu.tile_loops import Place, TileLoops
from loopwright.schedule.loops.statements import to_linear, wrapped
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.program.footprint import LINE
from loopwright.schedule.program.nest import extent, stride
from loopwright.schedule.sketch.sketch import Packed
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g

_ROWS = 4  # of vectors that are transposed together


def lower_pack(
    packed: Packed, buffer: g.Buffer, tile: g.Column, storage: Storage, part: str, target: Target
) -> list[g.Stmt]:
    """Copy an operand into tiles of its axis.

    `B[k, j]  ↦  B_packed[t, k, l] = B[k, min(R·t, J - R) + l]`
    """
    loops = {axis: g.Var(f"{buffer.name}.{axis}") for axis in packed.outer}
    block, base = (g.Var(f"{buffer.name}.{x}") for x in ("tile", "base"))
    at: Place = {axis: g.Linear(((var, 1),)) for axis, var in loops.items()}
    before = (*at.values(), g.Linear(((block, 1),)))
    source = storage.touch(packed.tensor, part)
    body = _copied(packed, buffer, source, before, at, base, tile, target)
    limit = extent(packed.axis) - tile
    kind = "serial" if part == "prepare" else "parallel"
    around = [(loops[axis], extent(axis), kind) for axis in packed.outer]
    tiles = (block, g.ceildiv(extent(packed.axis), tile), kind)
    return wrapped([g.Let(base, g.Linear(((block, tile),)), limit), body], [*around, tiles])


def lower_panel(
    packed: Packed, buffer: g.Buffer, source: g.Buffer, tiles: TileLoops
) -> list[g.Stmt]:
    """Copy one tile of an operand, in the order in which the register tiles read it."""
    level, tile = tiles.levels[packed.axis], tiles.sizes[packed.axis]
    place = tiles.place({})
    copied = _copied(packed, buffer, source, (), place, level.base, tile, tiles.target)
    return [g.Allocate(buffer), copied]


def _copied(
    packed: Packed,
    buffer: g.Buffer,
    source: g.Buffer,
    before: tuple[g.Linear, ...],
    at: Mapping[Index, g.Linear],
    base: g.Var,
    tile: g.Column,
    target: Target,
) -> g.Stmt:
    """The copy of the tile that begins at `base`, to `before` in a buffer; `at` says where the
    other axes stand. Where the tile lies across cache lines, each is read at once: elements of a
    tile may be so far apart that their lines drive each other out of the nearest cache."""

    def var(name: object) -> g.Var:
        return g.Var(f"{buffer.name}.{name}")

    loops: dict[Index, tuple[g.Var, g.Column, str]]
    loops = {axis: (var(axis), extent(axis), "serial") for axis in packed.inner}
    inner = {axis: g.Linear(((loop[0], 1),)) for axis, loop in loops.items()}
    steps = {a: stride(packed.tensor, packed.index, a) for a in (packed.axis, *packed.inner)}
    along = next((a for a in packed.inner if steps[a] == 1 != steps[packed.axis]), None)
    lane, lets = var("lane"), []
    number = g.Linear(((lane, 1),))
    lanes = [(lane, tile, "vectorized" if steps[packed.axis] == 1 else "serial")]
    item = item_bytes(packed.tensor.dtype)
    line = LINE // item
    if along is not None and extent(along) < line:
        lanes.append(loops.pop(along))
    elif along is not None:
        first, begin, within = (var(f"{along}.{x}") for x in ("tile", "base", "lane"))
        lets = [g.Let(begin, g.Linear(((first, line),)), extent(along) - line)]
        inner[along] = g.Linear(((begin, 1), (within, 1)))
        del loops[along]  # the innermost one now
        loops[along] = first, g.ceildiv(extent(along), line), "serial"
        lanes.append((within, line, "serial"))
        if packed.tensor.dtype == "float32":
            row, part, rows = var("row"), var(f"{along}.part"), np.minimum(tile & -tile, _ROWS)
            width = min(line, target.lanes(item))
            number = g.Linear(((lane, rows), (row, 1)))
            inner[along] = g.Linear(((begin, 1), (part, width), (within, 1)))
            lanes = [(lane, tile // rows, "serial"), (part, line // width, "unrolled")]
            lanes += [(row, rows, "unrolled"), (within, width, "vectorized")]
    place = {**at, **inner, packed.axis: g.Linear(((base, 1),)) + number}
    value = g.Load(source, tuple(to_linear(p, place) for p in packed.index))
    store = g.Store(buffer, (*before, *inner.values(), number), value)
    (made,) = wrapped([*lets, *wrapped([store], lanes)], [*loops.values()])
    return made
