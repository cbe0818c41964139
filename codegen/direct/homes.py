"""Register tiles: which buffers live in vector registers from their allocation to its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from loopwright.codegen.direct.function import Uncovered
from loopwright.dsl.expr import walk
from loopwright.schedule.tree.grammar import (
    Buffer,
    Linear,
    Load,
    Loop,
    Stmt,
    Store,
    Var,
    flat,
)

_LANES = 8
_MOST_UNROLLED = 64  # iterations of a loop that counts inside of a tile
_MOST = 14  # registers of tiles: two are left for operands


@dataclass(eq=False)
class Homes:
    """The registers of a tile.

    Attributes
    ----------
    width: elements of a register.
    variables: loops that count inside of the tile, and so have to be written out.
    most: registers that all tiles together may have.
    """

    width: int
    variables: set[Var]
    most: int = _MOST
    registers: list[int] = field(default_factory=list)

    def register(self, element: int, lanes: int) -> int:
        """The register of some elements, which are all of it."""
        if element % self.width or lanes != self.width:
            raise Uncovered("a part of a register is written")
        return self.registers[element // self.width]


@dataclass(frozen=True)
class _Use:
    buffer: Buffer
    index: tuple[Linear, ...]
    lane: tuple[Var, int] | None
    written: bool


def homes_of(buffer: Buffer, rest: tuple[Stmt, ...]) -> Homes | None:
    """How a register tile lies in registers; None where it has to lie in memory."""
    loops: dict[Var, Loop] = {}
    uses = list(_uses(buffer.name, rest, loops, None))
    if not uses:
        return None
    width = 0
    for use in uses:
        step = _step(use)
        if step == 1 and use.lane is not None:
            lanes = min(use.lane[1], _LANES)
            while use.lane[1] % lanes or lanes & lanes - 1:
                lanes -= 1
            width = lanes if width == 0 else min(width, lanes)
        elif step != 0 and use.lane is not None:
            return None
    width = width or 1
    counted: set[Var] = set()
    for use in uses:
        place = flat(use.buffer, use.index)
        vector = use.lane is not None and _step(use) == 1
        if use.written and not vector and width > 1:
            return None
        if vector and int(place.const) % width:
            return None
        for term, factor in place.terms:
            if not isinstance(term, Var):
                return None
            if use.lane is not None and term is use.lane[0]:
                continue
            if term not in loops or not _fixed(loops[term]):
                return None
            if vector and int(factor) % width:
                return None
            counted.add(term)
    if int(buffer.size) % width:
        return None
    return Homes(width, counted)


def _step(use: _Use) -> int:
    if use.lane is None:
        return 0
    return sum(int(c) for t, c in flat(use.buffer, use.index).terms if t is use.lane[0])


def _fixed(loop: Loop) -> bool:
    return loop.kind == "unrolled" or int(loop.extent) <= _MOST_UNROLLED


def _uses(
    name: str, body: tuple[Stmt, ...], loops: dict[Var, Loop], lane: tuple[Var, int] | None
) -> Iterator[_Use]:
    for stmt in body:
        if isinstance(stmt, Loop):
            loops[stmt.var] = stmt
            inner = (stmt.var, int(stmt.extent)) if stmt.kind == "vectorized" else None
            yield from _uses(name, stmt.body, loops, inner)
        elif isinstance(stmt, Store):
            if stmt.buffer.name == name:
                yield _Use(stmt.buffer, stmt.index, lane, True)
            for x in walk(stmt.value):
                if isinstance(x, Load) and x.buffer.name == name:
                    yield _Use(x.buffer, x.index, lane, False)
