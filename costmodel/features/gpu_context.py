"""Context vectors of GPU programs: what threads, warps and blocks touch.

As in `context`, but an access's `gathers` are the transactions that one operation of a warp takes
(`lanes`), and the statements that only GPUs have count too: asynchronous copies like stores, and
the tiles that a warp loads, stores or multiplies as one operation on 16×16 elements.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from loopwright.costmodel.features.access import GPU_ROLES, Access, Statement, Touch
from loopwright.costmodel.features.batch_arithmetic import Real, most, real, total
from loopwright.costmodel.features.context import Context, LoopContext, StoreContext, Walk
from loopwright.costmodel.features.gpu_memory import CHOSEN, LANES, Warp
from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g

_TILE = float(g.MATRIX * g.MATRIX)
_ROW, _COLUMN, _ELEMENT = g.Var("row"), g.Var("column"), g.Var("element")
_GLOBAL = ("argument", "heap")


class GpuWalk(Walk):
    """Gathers contexts of a GPU's kernels."""

    roles = GPU_ROLES

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.warp = Warp()

    def block(
        self, body: Sequence[g.Stmt], outside: Real
    ) -> tuple[tuple[Context, ...], list[Statement]]:
        nodes: list[Context] = []
        statements: list[Statement] = []
        for stmt in body:
            if isinstance(stmt, (g.Barrier, g.AsyncWait)):
                nodes.append(self._context([], barriers=1.0))
            elif (accesses := self._accesses(stmt)) is not None:
                statements.append(Statement(1.0, accesses))
                products = float(isinstance(stmt, g.MatrixMultiply))
                nodes.append(self._context(statements[-1:], products=products))
            else:
                made, more = super().block((stmt,), outside)
                nodes += made
                statements += more
        return tuple(nodes), statements

    def loop(self, loop: g.Loop, outside: Real) -> tuple[LoopContext, list[Statement]] | None:
        if loop.kind == "thread" and (not self.path or self.path[-1].kind != "thread"):
            self.warp.enter(loop)
        made = super().loop(loop, outside)
        if made is None:
            return None
        node, statements = made
        inner = [child for child in node.children if isinstance(child, LoopContext)]
        own = [stmt.buffer for stmt in loop.body if isinstance(stmt, g.Allocate)]
        registers = functools.reduce(most, (0.0, *(child.registers for child in inner)))
        node = replace(
            node,
            shared=total([*map(_shared, own), *(child.shared for child in inner)]),
            registers=total([*map(_registers, own), registers]),
        )
        return node, statements

    def mean(self, extent: Real, bound: g.Linear) -> Real:
        return most(super().mean(extent, bound), 0.0)  # what is loaded ahead of the last chunk

    def let(self, let: g.Let) -> None:
        super().let(let)
        self.warp.let(let)

    def width(self, dtype: str, extent: Real) -> Real:
        return extent

    def role(self, buffer: g.Buffer, written: bool, moves: bool) -> str:
        if buffer.scope in _GLOBAL:
            return "written" if written else "global"
        return "shared" if buffer.scope == "shared" else "register"

    def access(
        self,
        buffer: g.Buffer,
        index: Sequence[g.Linear],
        written: bool,
        lane: g.Var | None,
        width: Real,
    ) -> Access:
        new = super().access(buffer, index, written, lane, width)
        if new.role == "shared":  # transactions of a warp's operation
            wide = most(new.item / new.rate, 4.0)
            new.gathers = self.warp.bank_operations(buffer, index, new.item, wide)
        elif new.role != "register":
            new.gathers = self.warp.sectors(buffer, index, new.item, new.item / new.rate)
        return new

    def _accesses(self, stmt: g.Stmt) -> list[Access] | None:
        """Accesses of a statement that only GPUs have."""
        if isinstance(stmt, g.AsyncCopy):
            ends = ((stmt.buffer, stmt.index, True), (stmt.source, stmt.at, False))
            count = real(stmt.count)
            return [self._run(buffer, index, written, count) for buffer, index, written in ends]
        if isinstance(stmt, g.MatrixLoad):
            return [
                self._tile(stmt.source, stmt.at, (stmt.rows, stmt.columns), False),
                self._fragment(stmt.tile, stmt.index),
            ]
        if isinstance(stmt, g.MatrixStore):
            return [
                self._tile(stmt.target, stmt.at, (stmt.rows, stmt.columns), True),
                self._fragment(stmt.tile, stmt.index),
            ]
        if isinstance(stmt, g.MatrixFill):
            return [self._fragment(stmt.tile, stmt.index)]
        if isinstance(stmt, g.MatrixMultiply):
            factors = ((stmt.left, stmt.left_at), (stmt.right, stmt.right_at))
            return [self._fragment(t, i) for t, i in ((stmt.tile, stmt.index), *factors)]
        return None

    def _run(
        self, buffer: g.Buffer, index: Sequence[g.Linear], written: bool, count: Real
    ) -> Access:
        """Neighbouring elements that one thread copies at once."""
        every = (*index[:-1], index[-1] + g.Linear(((_ELEMENT, 1),)))
        access = self.access(buffer, every, written, _ELEMENT, count)
        access.widen(_ELEMENT, count)
        return access

    def _tile(
        self, buffer: g.Buffer, at: Sequence[g.Linear], axes: tuple[int, int], written: bool
    ) -> Access:
        """16×16 elements that a warp moves at once, 16 bytes a lane and turn."""
        every = list(at)
        for axis, var in zip(axes, (_ROW, _COLUMN), strict=True):
            every[axis] = every[axis] + g.Linear(((var, 1),))
        slopes = [self.linear(position) for position in every]
        access = Access.of(buffer, self.role(buffer, written, True), slopes, None, 1.0)
        access.rate = 1.0 / _TILE
        along, across = (_ROW, _COLUMN) if axes[0] == len(at) - 1 else (_COLUMN, _ROW)
        half = Warp({across: CHOSEN % g.MATRIX, along: CHOSEN // g.MATRIX * (g.MATRIX // 2)})
        if access.role == "shared":
            operations = half.bank_operations(buffer, every, access.item, 16.0)
            access.gathers = operations * (_TILE * access.item / (16.0 * LANES))
        else:
            access.gathers = half.sectors(buffer, every, access.item, 16.0) * (access.item / 2.0)
        for var in (_ROW, _COLUMN):
            access.widen(var, float(g.MATRIX))
        return access

    def _fragment(self, tile: g.Buffer, index: Sequence[g.Linear]) -> Access:
        """A tile in the registers of a warp."""
        every = (*index, g.Linear(((_ROW, 1),)), g.Linear(((_COLUMN, 1),)))
        slopes = [self.linear(position) for position in every]
        access = Access.of(tile, "register", slopes, None, 1.0)
        access.rate = 1.0 / _TILE
        for var in (_ROW, _COLUMN):
            access.widen(var, float(g.MATRIX))
        return access

    def _context(
        self, statements: Sequence[Statement], products: float = 0.0, barriers: float = 0.0
    ) -> StoreContext:
        touch = Touch.of(self.roles, statements, None)
        return StoreContext(0.0, 0.0, 1.0, touch, products, barriers)


def _shared(buffer: g.Buffer) -> Real:
    """Bytes of shared memory."""
    scoped = buffer.scope == "shared"
    return real(buffer.size) * item_bytes(buffer.dtype) if scoped else 0.0


def _registers(buffer: g.Buffer) -> Real:
    """Registers of 4 bytes of one thread; a warp shares those of its matrix tiles."""
    words = real(buffer.size) * (item_bytes(buffer.dtype) / 4.0)
    if buffer.scope == "register":
        return words
    return 0.0 if buffer.scope in ("shared", *_GLOBAL) else words / LANES
