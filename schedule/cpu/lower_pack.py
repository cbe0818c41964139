"""Lowering of the copies that re-lay operands out."""

from __future__ import annotations

from loopwright.schedule.cpu.tile_loops import TileLoops
from loopwright.schedule.loops.statements import to_linear
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.program.nest import extent, stride
from loopwright.schedule.sketch.sketch import Packed
from loopwright.schedule.tree.grammar import (
    Allocate,
    Buffer,
    Column,
    Let,
    Linear,
    Load,
    Loop,
    Stmt,
    Store,
    Var,
    ceildiv,
)


def lower_pack(
    packed: Packed, buffer: Buffer, tile: Column, storage: Storage, part: str
) -> list[Stmt]:
    """Copy an operand into tiles of its axis.

    `B[k, j]  ↦  B_packed[t, k, l] = B[k, min(R·t, J - R) + l]`
    """
    axes = (*packed.outer, *packed.inner)
    loops = {axis: Var(f"{buffer.name}.{axis}") for axis in axes}
    block, base, lane = (Var(f"{buffer.name}.{x}") for x in ("tile", "base", "lane"))
    at = {axis: Linear(((var, 1),)) for axis, var in loops.items()}
    source_at = {**at, packed.axis: Linear(((base, 1), (lane, 1)))}
    source = storage.touch(packed.tensor, part)
    index = (
        *(at[a] for a in packed.outer),
        Linear(((block, 1),)),
        *(at[a] for a in packed.inner),
        Linear(((lane, 1),)),
    )
    value = Load(source, tuple(to_linear(p, source_at) for p in packed.index))
    contiguous = stride(packed.tensor, packed.index, packed.axis) == 1
    body: tuple[Stmt, ...] = (
        Loop(lane, tile, "vectorized" if contiguous else "serial", (Store(buffer, index, value),)),
    )
    for axis in reversed(packed.inner):
        body = (Loop(loops[axis], extent(axis), "serial", body),)
    limit = extent(packed.axis) - tile
    body = (Let(base, Linear(((block, tile),)), limit), *body)
    kind = "serial" if part == "prepare" else "parallel"
    body = (Loop(block, ceildiv(extent(packed.axis), tile), kind, body),)
    for axis in reversed(packed.outer):
        body = (Loop(loops[axis], extent(axis), kind, body),)
    return list(body)


def lower_panel(packed: Packed, buffer: Buffer, source: Buffer, tiles: TileLoops) -> list[Stmt]:
    """Copy one tile of an operand, in the order in which the register tiles read it."""
    level, tile = tiles.levels[packed.axis], tiles.sizes[packed.axis]
    place, loops = tiles.place({}), []
    for axis in packed.inner:
        var = Var(f"{buffer.name}.{axis}")
        place[axis] = Linear(((var, 1),))
        loops.append((var, extent(axis)))
    lane = Var(f"{buffer.name}.lane")
    place[packed.axis] = Linear(((level.base, 1), (lane, 1)))
    index = (*(place[a] for a in packed.inner), Linear(((lane, 1),)))
    value = Load(source, tuple(to_linear(p, place) for p in packed.index))
    near = [loop for a, loop in zip(packed.inner, loops, strict=True) if a in tiles.levels]
    far = [loop for loop in loops if loop not in near]
    contiguous = stride(packed.tensor, packed.index, packed.axis) == 1
    body: Stmt = Store(buffer, index, value)
    for var, count in reversed(near):  # innermost: whole cache lines are read
        body = Loop(var, count, "serial", (body,))
    body = Loop(lane, tile, "vectorized" if contiguous else "serial", (body,))
    for var, count in reversed(far):
        body = Loop(var, count, "serial", (body,))
    return [Allocate(buffer), body]
