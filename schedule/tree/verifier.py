"""The verifier: what every loop tree must satisfy, checked for a whole batch at once.

1. every variable is bound once, before it is used, and every buffer is declared;
2. no subscript leaves its buffer (unless its load is clamped);
3. extents and shapes are positive (a loop's extent may be 0: no iteration), and no limit of a
   `Let` is negative: no tile is longer than its axis;
4. parallel loops stand outside of all others, with nothing between them; vectorized ones stand
   innermost, and hold one store;
5. register buffers are small and inside of all parallel loops;
6. what a program gives back is written from its first element to its last.

The trees of GPU programs satisfy, in place of 4 and 5, the rules of `verify_gpu.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.expr import ORDERS, Expr
from loopwright.dsl.traversal import children
from loopwright.schedule.target import Gpu
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.coverage import MOST_AT_ONCE, Subscripts, Write, left_out
from loopwright.schedule.tree.gpu_verifier import GPU_LOOPS, Problem, gpu_problems
from loopwright.schedule.tree.index_analysis import IndexAnalysis
from loopwright.schedule.tree.parts import order_parts

NOTHING: Mapping[int, g.Column] = MappingProxyType({})
MOST_REGISTER_BYTES = 1 << 16
_ONE = (bool, np.bool_)


def verify(tree: g.Tree, gpu: Gpu | None = None) -> None:
    """Raise `ConfigError` naming the first thing that is wrong with any config of the batch;
    `gpu` has the limits of the GPU that it is for."""
    for bad, say in _problems(tree, gpu):
        wrong = np.flatnonzero(np.broadcast_to(bad, (tree.n,)))
        if len(wrong):
            raise ConfigError(
                f"an illegal loop tree (config {wrong[0]} of {tree.n}): {say(wrong[0])}"
            )


def legal(tree: g.Tree, gpu: Gpu | None = None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Mask of the configs of the batch that satisfy every rule; shape (n,)."""
    good = np.ones(tree.n, bool)
    for bad, _ in _problems(tree, gpu):
        good &= ~np.broadcast_to(bad, (tree.n,))
    return good


def holds(tree: g.Tree) -> bool:
    """Return whether every rule is satisfied by a tree whose columns broadcast together: for all
    combinations of their values. It may refuse what holds: a loop that does not run is counted
    as one that runs where telling the two apart takes more than `MOST_AT_ONCE` combinations."""
    try:
        return not _problems(tree, None)
    except MemoryError as error:  # its numbers are arrays of all sizes of several dims
        raise ConfigError(
            "a program has more sizes than there is memory to verify it at: give the dims "
            "narrower bounds or multiples"
        ) from error


def _problems(tree: g.Tree, gpu: Gpu | None) -> list[Problem]:
    checker = _Checker(tree, gpu is not None)
    found = checker.problems()
    return [*found, *(gpu_problems(tree, gpu) if gpu else ()), *checker.left_out()]


@dataclass
class _Checker:
    tree: g.Tree
    on_gpu: bool
    analysis: IndexAnalysis = field(default_factory=IndexAnalysis)
    buffers: set[str] = field(default_factory=set)
    found: list[Problem] = field(default_factory=list)
    runs: tuple[Any, ...] = ()  # where all are true the statement at hand is reached
    results: dict[str, list[Write]] = field(default_factory=dict)  # stores to each

    def problems(self) -> list[Problem]:
        t = self.tree
        for arguments, results, body in (
            (t.constants, t.prepared, t.prepare),
            ((*t.inputs, *t.prepared), t.outputs, t.body),
        ):
            self.analysis, self.buffers = IndexAnalysis(), set()
            self.results |= {buffer.name: [] for buffer in results}
            for buffer in (*arguments, *results):
                self._declare(buffer)
            self._block(body, "parallel")
        return self.found

    def left_out(self) -> Iterator[Problem]:
        """Results that are not written whole, once all other rules are looked at."""
        for name, writes in self.results.items():
            for bad in left_out(writes):
                if np.any(bad):
                    yield bad, lambda i, name=name: f"elements of {name} are not written"  # type: ignore[misc]

    def _add(self, bad: Any, say: Callable[[int], str]) -> None:
        if bad.__class__ in _ONE and not bad:
            return  # the most: a batch of one
        for runs in self.runs if np.any(bad) else ():
            if np.broadcast(bad, runs).size <= MOST_AT_ONCE:
                bad = bad & runs
        if np.any(bad):
            self.found.append((bad, say))

    def _declare(self, buffer: g.Buffer) -> None:
        for extent in buffer.shape:
            self._add(extent < 1, lambda i: f"{buffer.name} has an empty axis")
        self._add(buffer.name in self.buffers, lambda i: f"{buffer.name} is allocated twice")
        self.buffers.add(buffer.name)

    def _block(self, body: tuple[g.Stmt, ...], inside: str) -> None:
        allocated = set(self.buffers)
        for stmt in body:
            if isinstance(stmt, g.Loop):
                self._loop(stmt, inside)
            elif isinstance(stmt, g.Let):
                self._let(stmt)
            elif isinstance(stmt, g.Allocate):
                self._declare(stmt.buffer)
                self._register(stmt.buffer)
            elif isinstance(stmt, g.Store):
                self._access(stmt.buffer, stmt.index, False)
                self._write(stmt.buffer, stmt.index)
                self._value(stmt.value)
            elif not isinstance(stmt, g.Prefetch):
                self._gpu(stmt)
        self.buffers = allocated

    def _gpu(self, stmt: g.GpuStmt) -> None:
        if isinstance(stmt, g.AsyncCopy):
            self._access(stmt.buffer, stmt.index, False, {-1: stmt.count - 1})
            self._access(stmt.source, stmt.at, False, {-1: stmt.count - 1})
        elif isinstance(stmt, g.MatrixMultiply):
            self._tile(stmt.tile, stmt.index)
            self._tile(stmt.left, stmt.left_at)
            self._tile(stmt.right, stmt.right_at)
        elif isinstance(stmt, (g.MatrixFill, g.MatrixLoad, g.MatrixStore)):
            self._tile(stmt.tile, stmt.index)
            if not isinstance(stmt, g.MatrixFill):
                memory = stmt.source if isinstance(stmt, g.MatrixLoad) else stmt.target
                wide = {stmt.rows: g.MATRIX - 1, stmt.columns: g.MATRIX - 1}
                self._access(memory, stmt.at, False, wide)
                if isinstance(stmt, g.MatrixStore):
                    self._write(memory, stmt.at, wide)

    def _tile(self, tile: g.Buffer, index: tuple[g.Linear, ...]) -> None:
        self._access(
            tile, (*index, g.Linear(), g.Linear()), False, {-1: g.MATRIX - 1, -2: g.MATRIX - 1}
        )

    def _loop(self, loop: g.Loop, inside: str) -> None:
        name = loop.var.name
        kinds = GPU_LOOPS if self.on_gpu else (*g.KINDS, *ORDERS)
        self._add(loop.kind not in kinds, lambda i: f"loop {name} is of no known kind")
        self._add(loop.extent < 0, lambda i: f"loop {name} has a negative extent")
        nested = loop.kind == "parallel" and inside != "parallel"
        self._add(nested, lambda i: f"parallel loop {name} stands inside of a {inside} one")
        if loop.kind == "parallel" and len(loop.body) > 1:
            apart = any(isinstance(s, g.Loop) and s.kind == "parallel" for s in loop.body)
            self._add(apart, lambda i: f"{name} holds a parallel loop and something beside it")
        one = len(loop.body) == 1 and isinstance(loop.body[0], g.Store)
        vector = loop.kind == "vectorized" and not one
        self._add(vector, lambda i: f"vectorized loop {name} holds something other than one store")
        if loop.kind in ORDERS:
            parts = order_parts(loop)
            self._add(parts is None, lambda i: f"loop {name} holds something other than an order")
            more = parts is not None and loop.extent > parts[0].extent
            self._add(more, lambda i: f"loop {name} has more ranks than there are elements")
        if loop.bound is not None:
            self._range(loop.bound)
        outside, self.runs = self.runs, (*self.runs, loop.extent > 0)
        self._bind(loop.var, loop.extent)
        if loop.sparse is not None:
            for var, count in loop.sparse.over:
                self._bind(var, count)
            self._value(loop.sparse.load)
        self._block(loop.body, loop.kind)
        self.runs = outside

    def _let(self, let: g.Let) -> None:
        self._range(let.value)
        before = let.limit < 0
        self._add(before, lambda i: f"{let.var} begins before 0: a tile is longer than its axis")
        self._bind(let.var, 1)
        self.analysis.let(let.var, let.value, let.limit)

    def _bind(self, var: g.Var, extent: g.Column) -> None:
        self._add(var in self.analysis.known, lambda i: f"{var} is bound twice")
        self.analysis.loop(var, extent)

    def _register(self, buffer: g.Buffer) -> None:
        if buffer.scope == "register":
            much = buffer.size > MOST_REGISTER_BYTES
            self._add(much, lambda i: f"register buffer {buffer.name} is too large")

    def _value(self, x: Expr) -> None:
        if isinstance(x, g.Load):
            self._access(x.buffer, x.index, x.clamped)
        elif isinstance(x, g.Position):
            self._range(x.value)
        for child in children(x):
            self._value(child)

    def _access(
        self,
        buffer: g.Buffer,
        index: tuple[g.Linear, ...],
        clamped: bool,
        reach: Mapping[int, g.Column] = NOTHING,
    ) -> None:
        """`reach` says how much further than `index` an access goes along an axis."""
        unknown = buffer.name not in self.buffers
        self._add(unknown, lambda i: f"{buffer.name} is used before it is allocated")
        rank = len(index) != len(buffer.shape)
        self._add(rank, lambda i: f"{buffer.name} is indexed by {len(index)} subscripts")
        for axis, (position, extent) in enumerate(zip(index, buffer.shape)):
            low, high = self._range(position)
            high = high + reach.get(axis, reach.get(axis - len(index), 0))
            if not clamped:
                self._outside(buffer.name, axis, low, high, extent)

    def _write(
        self,
        buffer: g.Buffer,
        index: tuple[g.Linear, ...],
        reach: Mapping[int, g.Column] = NOTHING,
    ) -> None:
        if buffer.name not in self.results:
            return
        axes = []
        for axis, (position, extent) in enumerate(zip(index, buffer.shape)):
            low, high = self.analysis.range(position)
            wide = reach.get(axis, 0)
            axes.append(Subscripts(low, high + wide, self.analysis.gap(position) - wide, extent))
        reached: Any = True
        for runs in self.runs:
            if runs is not True and np.broadcast(reached, runs).size <= MOST_AT_ONCE:
                reached = reached & runs
        self.results[buffer.name].append((tuple(axes), reached))

    def _outside(
        self, name: str, axis: int, low: g.Column, high: g.Column, extent: g.Column
    ) -> None:
        def say(i: int) -> str:
            reach = f"{g.column(low, self.tree.n)[i]} to {g.column(high, self.tree.n)[i]}"
            size = g.column(extent, self.tree.n)[i]
            return f"axis {axis} of {name}, extent {size}, is read or written at {reach}"

        self._add((low < 0) | (high >= extent), say)

    def _range(self, x: g.Linear) -> tuple[g.Column, g.Column]:
        for term, _ in x.terms:
            self._term(term)
        return self.analysis.range(x)

    def _term(self, term: g.Term) -> None:
        """Every variable is bound, so that the analysis knows it, and every divisor positive."""
        if not isinstance(term, g.Var):
            self._add(term.divisor < 1, lambda i: "a divisor is not positive")
            for inner, _ in term.value.terms:
                self._term(inner)
        elif term not in self.analysis.known:
            self._add(True, lambda i: f"variable {term} is not bound here")
            self.analysis.loop(term, 1)
