"""A slow interpreter of GPU trees of one config: all threads at once, statement by statement.

Asynchronous copies arrive when they are waited for, and not before. Shared and register buffers
begin as NaN, or as odd integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.dsl import expr as e
from loopwright.dsl.dtypes import is_float, numpy_dtype
from loopwright.dsl.elements import BINARY, UNARY
from loopwright.schedule.tree import grammar as t

Array = np.ndarray[Any, Any]


def run(tree: t.Tree, arrays: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a program, by name."""
    memory = {name: a.reshape(-1) for name, a in arrays.items()}
    for b in (*tree.prepared, *tree.outputs):
        memory[b.name] = _fresh(b, ())
    for stmt in (*tree.prepare, *tree.body):
        if isinstance(stmt, t.Allocate):
            memory[stmt.buffer.name] = _fresh(stmt.buffer, ())
        else:
            _Kernel(memory).run(stmt)
    return {b.name: memory[b.name].reshape([int(x) for x in b.shape]) for b in tree.outputs}


def _fresh(b: t.Buffer, outer: tuple[int, ...]) -> Array:
    dtype = numpy_dtype(b.dtype)
    return np.full((*outer, int(b.size)), np.nan if is_float(b.dtype) else 1, dtype)


class _Kernel:
    def __init__(self, memory: dict[str, Array]) -> None:
        self.memory, self.own = memory, {}
        self.values: dict[t.Var, Any] = {}
        self.mask: Any = np.True_
        self.copies: list[Any] = []
        self.groups: list[list[Any]] = []

    def run(self, stmt: t.Stmt) -> None:
        chains: dict[str, list[t.Loop]] = {"block": [], "thread": []}
        lets = []
        while isinstance(stmt, t.Loop) and stmt.kind in chains:
            chains[stmt.kind].append(stmt)
            body = stmt.body
            lets += [s for s in body if isinstance(s, t.Let)]
            inner = [s for s in body if isinstance(s, t.Loop)]
            if len(body) != len(inner) + len([s for s in body if isinstance(s, t.Let)]):
                break
            if len(inner) != 1 or inner[0].kind not in chains:
                break
            stmt = inner[0]
        blocks = self._chain(chains["block"])
        threads = self._chain(chains["thread"])
        self.grid = (blocks, threads)
        self._expand(chains["block"], np.arange(blocks)[:, None])
        self._expand(chains["thread"], np.arange(threads)[None, :])
        last = chains["thread"][-1]
        for let in [x for x in lets if x not in last.body]:
            self.stmt(let)
        self.block(last.body)

    def _chain(self, loops: list[t.Loop]) -> int:
        return int(np.prod([int(x.extent) for x in loops]))

    def _expand(self, loops: list[t.Loop], number: Array) -> None:
        for loop in reversed(loops):
            self.values[loop.var] = number % int(loop.extent)
            number = number // int(loop.extent)

    def block(self, body: tuple[t.Stmt, ...]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, s: t.Stmt) -> None:
        if isinstance(s, t.Let):
            self.values[s.var] = np.minimum(self.linear(s.value), s.limit)
        elif isinstance(s, t.Allocate):
            outer = (self.grid[0],) if s.buffer.scope == "shared" else self.grid
            self.own[s.buffer.name] = (s.buffer.scope, _fresh(s.buffer, outer))
        elif isinstance(s, t.Loop):
            self.loop(s)
        elif isinstance(s, t.Store):
            self.write(s.buffer, self.offset(s.buffer, s.index), self.value(s.value))
        elif isinstance(s, t.AsyncCopy):
            for lane in range(int(s.count)):
                place = self.offset(s.buffer, s.index) + lane
                value = self.read(s.source, self.offset(s.source, s.at) + lane)
                self.copies.append((s.buffer, place, value, self.mask))
        elif isinstance(s, t.AsyncCommit):
            self.groups.append(self.copies)
            self.copies = []
        elif isinstance(s, t.AsyncWait):
            while len(self.groups) > s.pending:
                for buffer, place, value, mask in self.groups.pop(0):
                    self.mask, outside = mask, self.mask
                    self.write(buffer, place, value)
                    self.mask = outside
        elif not isinstance(s, t.Barrier):
            self.matrix(s)

    def loop(self, s: t.Loop) -> None:
        outside = self.mask
        for i in range(int(s.extent)):
            self.values[s.var] = i
            if s.bound is not None:
                self.mask = outside & (i < self.linear(s.bound))
            if np.any(self.mask):
                self.block(s.body)
        self.mask = outside

    def matrix(self, s: t.Stmt) -> None:
        """A statement of warps: each thread has the tiles of its warp."""
        if isinstance(s, t.MatrixFill):
            self.write_tile(s.tile, self.tile(s.tile, s.index), np.float32(s.value))
        elif isinstance(s, t.MatrixLoad):
            value = self.read(s.source, self.near(s.source, s.at, s.rows, s.columns))
            self.write_tile(s.tile, self.tile(s.tile, s.index), value)
        elif isinstance(s, t.MatrixStore):
            value = self.read(s.tile, self.tile(s.tile, s.index))
            self.write_tile(s.target, self.near(s.target, s.at, s.rows, s.columns), value)
        else:
            assert isinstance(s, t.MatrixMultiply), s
            place = self.tile(s.tile, s.index)
            left = self.read(s.left, self.tile(s.left, s.left_at)).astype(np.float32)
            right = self.read(s.right, self.tile(s.right, s.right_at)).astype(np.float32)
            self.write_tile(s.tile, place, self.read(s.tile, place) + left @ right)

    def tile(self, b: t.Buffer, index: Any) -> Any:
        """The places of a tile's elements, in two more axes."""
        return self.near(b, (*index, t.Linear(), t.Linear()), len(index), len(index) + 1)

    def near(self, b: t.Buffer, at: Any, rows: int, columns: int) -> Any:
        apart = [int(np.prod([int(x) for x in b.shape[d + 1 :]])) for d in (rows, columns)]
        first = np.broadcast_to(self.offset(b, at), self.grid)[..., None, None]
        down = np.arange(t.MATRIX)
        last = [p + (t.MATRIX - 1) * (d in (rows, columns)) for d, p in enumerate(at)]
        self.offset(b, tuple(last))  # stays inside
        return first + down[:, None] * apart[0] + down * apart[1]

    def write_tile(self, b: t.Buffer, place: Any, value: Any) -> None:
        array, lead = self._storage(b)
        shape = (*self.grid, t.MATRIX, t.MATRIX)
        where = (*(x[..., None, None] for x in lead), place)
        where = tuple(np.broadcast_to(x, shape) for x in where)
        array[where] = np.broadcast_to(value, shape)

    def offset(self, b: t.Buffer, index: tuple[t.Linear, ...], clamped: bool = False) -> Any:
        place: Any = 0
        for position, extent in zip(index, b.shape, strict=True):
            at = self.linear(position)
            if clamped:
                at = np.clip(at, 0, extent - 1)
            inside = (at >= 0) & (at < extent)
            assert np.all(inside | ~np.asarray(self.mask)), f"{b.name} is left"
            place = place * extent + np.clip(at, 0, extent - 1)
        return place

    def linear(self, x: t.Linear) -> Any:
        total: Any = x.const
        for term, coefficient in x.terms:
            if isinstance(term, t.Var):
                value = self.values[term]
            elif isinstance(term, t.Quotient):
                value = self.linear(term.value) // term.divisor
            else:
                value = self.linear(term.value) % term.divisor
            total = total + value * coefficient
        return total

    def _storage(self, b: t.Buffer) -> tuple[Array, tuple[Any, ...]]:
        if b.name in self.own:
            scope, array = self.own[b.name]
            lead = [np.arange(self.grid[0])[:, None]]
            if scope != "shared":
                lead.append(np.arange(self.grid[1])[None, :])
            return array, tuple(lead)
        return self.memory[b.name], ()

    def read(self, b: t.Buffer, place: Any) -> Any:
        array, lead = self._storage(b)
        if np.ndim(place) > 2:
            lead = tuple(x[..., None, None] for x in lead)
        return array[(*lead, place)]

    def write(self, b: t.Buffer, place: Any, value: Any) -> None:
        array, lead = self._storage(b)
        shape = self.grid
        mask = np.broadcast_to(self.mask, shape)
        where = [np.broadcast_to(x, shape)[mask] for x in (*lead, place)]
        array[tuple(where)] = np.broadcast_to(value, shape)[mask].astype(array.dtype)

    def gathered(self, x: e.Gather) -> Any:
        place, step = self.offset(x.table.buffer, x.table.index, x.table.clamped), 1
        for at, extent in zip(reversed(x.at), reversed(x.shape), strict=True):
            if at is not None:
                named = np.asarray(self.value(at), np.int64)
                near = np.where(named < 0, named + extent, named)
                place = place + np.clip(near, 0, extent - 1) * step
            step *= extent
        return self.read(x.table.buffer, place)

    def value(self, x: e.Expr) -> Any:
        if isinstance(x, t.Load):
            return self.read(x.buffer, self.offset(x.buffer, x.index, x.clamped))
        if isinstance(x, t.Position):
            return np.asarray(self.linear(x.value), np.int32)
        if isinstance(x, e.Const):
            return numpy_dtype(x.type).type(x.value)
        if isinstance(x, e.Cast):
            return np.asarray(self.value(x.x)).astype(numpy_dtype(x.dtype))
        if isinstance(x, e.Gather):
            return self.gathered(x)
        if isinstance(x, e.Select):
            return np.where(self.value(x.cond), self.value(x.x), self.value(x.y))
        if isinstance(x, e.Unary):
            value = np.asarray(self.value(x.x))
            return UNARY[x.op](value).astype(value.dtype)
        assert isinstance(x, e.Binary), x
        return BINARY[x.op](self.value(x.x), self.value(x.y))
