"""Register tiles: which buffers live in vector registers from their allocation to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loopwright.codegen.builtin.code import Uncovered
from loopwright.dsl.traversal import walk
from loopwright.schedule.tree.grammar import Buffer, Linear, Load, Loop, Stmt, Store, Var, flat

_MOST_UNROLLED = 64  # iterations of a loop that counts inside of a tile


@dataclass(eq=False)
class Homes:
    """The registers of a tile, of `width` elements each, and the loops that count inside of it,
    which have to be written out."""

    width: int
    variables: set[Var]
    registers: list[int] = field(default_factory=list)

    def register(self, element: int, lanes: int) -> int:
        """The register that begins with some elements, as many as it has or fewer."""
        if element % self.width or lanes > self.width:
            raise Uncovered("the end of a register is written")
        return self.registers[element // self.width]


@dataclass(frozen=True)
class _Use:
    """An access: its lane's variable and lanes, and the loops around it that go round."""

    buffer: Buffer
    index: tuple[Linear, ...]
    lane: tuple[Var, int] | None
    written: bool
    around: tuple[Var, ...]


def homes_of(buffer: Buffer, rest: tuple[Stmt, ...], most_lanes: int) -> Homes | None:
    """Registers of a tile, of so many lanes each; None where it lies in memory."""
    loops: dict[Var, Loop] = {}
    uses = list(_uses(buffer.name, rest, loops, None, ()))
    if not uses:
        return None
    width = max((_whole(use, most_lanes) for use in uses), default=1)
    short = [u for u in uses if u.written and (_lanes(u) or 1) < width]
    rounds = {var for use in short for var in use.around}
    counted: set[Var] = set()
    holds = width  # elements of each register that were not overwritten by a shorter vector
    for use in uses:
        place, lanes = flat(use.buffer, use.index), _lanes(use)
        if lanes is None:
            return None
        offset = int(place.const) % width
        for term, factor in place.terms:
            if not isinstance(term, Var):
                return None
            if use.lane is not None and term is use.lane[0]:
                continue
            if term not in loops or not _fixed(loops[term]):
                return None
            if int(factor) % width:
                if use.written or lanes > 1:
                    return None
                offset = width - 1  # of a scalar it may be any
            counted.add(term)
        if use.written:
            if offset or (lanes < width and not _counts(use, use.around)):
                return None
            holds = min(lanes, width)
        elif offset + min(lanes, width) > holds or not _counts(
            use, [var for var in use.around if var in rounds]
        ):
            return None
    if int(buffer.size) % width:
        return None
    return Homes(width, counted)


def _whole(use: _Use, most_lanes: int) -> int:
    """Elements of a register, as far as an access tells."""
    lanes = min(_lanes(use) or 1, most_lanes)
    return 1 << (lanes.bit_length() - 1)


def _lanes(use: _Use) -> int | None:
    """Neighbours of an access; None where its lanes stand apart."""
    if use.lane is None:
        return 1
    step = _step(use)
    if step not in (0, 1):
        return None
    return use.lane[1] if step else 1


def _counts(use: _Use, loops: Sequence[Var]) -> bool:
    """Return whether loops count among the registers, so that each round is about others. That is
    needed around a vector that overwrites a part of a register only."""
    terms = {t for t, _ in flat(use.buffer, use.index).terms}
    return all(var in terms for var in loops)


def _step(use: _Use) -> int:
    if use.lane is None:
        return 0
    return sum(int(c) for t, c in flat(use.buffer, use.index).terms if t is use.lane[0])


def _fixed(loop: Loop) -> bool:
    return loop.kind == "unrolled" or int(loop.extent) <= _MOST_UNROLLED


def _uses(
    name: str,
    body: tuple[Stmt, ...],
    loops: dict[Var, Loop],
    lane: tuple[Var, int] | None,
    around: tuple[Var, ...],
) -> Iterator[_Use]:
    """Accesses of a buffer in the order of the program; of a store, what it reads first."""
    for stmt in body:
        if isinstance(stmt, Loop):
            loops[stmt.var] = stmt
            vector = stmt.kind == "vectorized"
            inner = (stmt.var, int(stmt.extent)) if vector else None
            outside = around if vector or int(stmt.extent) == 1 else (*around, stmt.var)
            yield from _uses(name, stmt.body, loops, inner, outside)
        elif isinstance(stmt, Store):
            for x in walk(stmt.value):
                if isinstance(x, Load) and x.buffer.name == name:
                    yield _Use(x.buffer, x.index, lane, False, around)
            if stmt.buffer.name == name:
                yield _Use(stmt.buffer, stmt.index, lane, True, around)
