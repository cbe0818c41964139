"""Lowering of the copies that re-lay operands out."""

from __future__ import annotations

from loopwright.schedule.loops.linearize import to_linear
from loopwright.schedule.loops.storage import Storage
from loopwright.schedule.program.nest import extent, stride
from loopwright.schedule.sketch.sketch import Packed
from loopwright.schedule.tree.grammar import (
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
