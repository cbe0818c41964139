"""Rules that the loop trees of GPU programs satisfy beside those for all trees.

1. every top-level statement is an allocation or a kernel: a chain of block loops, in it `Let`s and
   one chain of thread loops; no block or thread loop stands elsewhere, and no parallel one at all;
2. a block has no more threads, shared bytes and registers than the GPU gives it;
3. vector loops hold one store of at most 16 bytes, aligned and contiguous in global and shared
   memory wherever it moves with the lane; asynchronous copies likewise;
4. all threads of a block reach a barrier equally often, all lanes of a warp a matrix statement,
   with equal subscripts;
5. between a write to a shared buffer and another thread's read of it, and between a read and the
   next write, stands a barrier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.traversal import walk
from loopwright.schedule.target import Gpu
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.index_analysis import IndexAnalysis
from loopwright.schedule.tree.race_check import Access, RaceCheck

Problem = tuple[Any, Callable[[int], str]]
"""A boolean column of the configs that have it, and what to say about config i."""

GPU_LOOPS = ("serial", "unrolled", "vectorized", "block", "thread")
MATRIX_SCOPES = ("matrix_a", "matrix_b", "accumulator")
SHARED_ALIGNMENT = 32  # bytes at which a shared buffer begins at least
SHARED_BLOCK = 128  # bytes of which a shared buffer takes whole multiples
SPARE_REGISTERS = 24  # for addresses and counters


def gpu_problems(tree: g.Tree, gpu: Gpu) -> list[Problem]:
    """Problems of any config of the batch."""
    checker = _GpuChecker(tree, gpu)
    for stmt in (*tree.prepare, *tree.body):
        checker.top(stmt)
    return checker.found


@dataclass
class _GpuChecker:
    tree: g.Tree
    gpu: Gpu
    found: list[Problem] = field(default_factory=list)
    analysis: IndexAnalysis = field(default_factory=IndexAnalysis)
    runs: Any = True  # the configs in which the statement at hand is reached at all
    private: set[g.Var] = field(default_factory=set)  # differ between the threads of a block
    in_warp: set[g.Var] = field(default_factory=set)  # differ between the lanes of a warp
    threads: g.Column = 1
    lanes: g.Column = 1  # of the innermost thread loop
    shared: g.Column = 0  # bytes
    race_check: RaceCheck = field(default_factory=RaceCheck)

    def _add(self, bad: Any, say: Callable[[int], str]) -> None:
        if bad is not False and np.any(bad & self.runs):
            self.found.append((bad & self.runs, say))

    def _number(self, value: g.Column, i: int) -> int:
        return int(g.column(value, self.tree.n)[i])

    def top(self, stmt: g.Stmt) -> None:
        """A statement of the program: an allocation or a kernel."""
        if isinstance(stmt, g.Allocate):
            self._add(
                stmt.buffer.scope != "heap", lambda i: "only heap buffers outside of kernels"
            )
            return
        self.analysis, self.private, self.in_warp = IndexAnalysis(), set(), set()
        self.shared, self.race_check = 0, RaceCheck()
        if not isinstance(stmt, g.Loop) or stmt.kind != "block":
            self._add(True, lambda i: "a statement stands outside of all blocks")
            return
        outside = self.runs
        while stmt.kind == "block":
            self._bind(stmt)
            inner = [s for s in stmt.body if not isinstance(s, g.Let)]
            for let in stmt.body:
                if isinstance(let, g.Let):
                    self._let(let)
            if len(inner) != 1 or not isinstance(inner[0], g.Loop):
                self._add(True, lambda i: "a block holds more than one chain of thread loops")
                break
            stmt = inner[0]
        else:
            self._threads(stmt)
        self.runs = outside

    def _bind(self, loop: g.Loop) -> None:
        name = loop.var.name
        self._add(loop.bound is not None, lambda i: f"{loop.kind} loop {name} has a bound")
        self.runs = self.runs & np.greater(loop.extent, 0)
        self.analysis.loop(loop.var, loop.extent)

    def _threads(self, stmt: g.Loop) -> None:
        if stmt.kind != "thread":
            self._add(True, lambda i: f"{stmt.kind} loop {stmt.var} stands outside of all threads")
            return
        self.threads = 1
        while True:
            self._bind(stmt)
            self.private.add(stmt.var)
            self.threads, self.lanes = self.threads * stmt.extent, stmt.extent
            inner = stmt.body[0] if len(stmt.body) == 1 else None
            if not isinstance(inner, g.Loop) or inner.kind != "thread":
                break
            stmt = inner
        self.in_warp = {stmt.var}
        most = self.gpu.most_threads
        threads = self.threads
        self._add(
            np.greater(threads, most),
            lambda i: f"a block has {self._number(threads, i)} threads; at most {most}",
        )
        self._block(stmt.body, SPARE_REGISTERS)
        limit = self.gpu.shared_bytes
        shared = self.shared
        self._add(
            np.greater(shared, limit),
            lambda i: (
                f"a block has {self._number(shared, i)} bytes of shared memory; at most {limit}"
            ),
        )

    def _touch(self, reads: list[Access], write: Access | None, copied: bool = False) -> None:
        """Reads and one write of a statement, or of an asynchronous copy."""
        for bad, name, what in self.race_check.touch(reads, write, self.runs, copied):
            self._conflict(bad, name, what)

    def _conflict(self, bad: Any, name: str, what: str) -> None:
        self._add(bad, lambda i: f"{name} is {what} without a barrier between them")

    def _block(self, body: tuple[g.Stmt, ...], registers: g.Column) -> None:
        for stmt in body:
            if isinstance(stmt, g.Allocate):
                registers = registers + self._allocate(stmt.buffer)
                self._registers(registers)
            elif isinstance(stmt, g.Let):
                self._let(stmt)
            elif isinstance(stmt, g.Loop):
                self._loop(stmt, registers)
            elif isinstance(stmt, g.Store):
                reads = [(x.buffer, x.index) for x in walk(stmt.value) if isinstance(x, g.Load)]
                self._touch(reads, (stmt.buffer, stmt.index))
            elif isinstance(stmt, g.Barrier):
                self.race_check.barrier(self.runs)
            elif isinstance(stmt, g.AsyncCopy):
                self._async_copy(stmt)
            elif isinstance(stmt, g.AsyncWait):
                self.race_check.wait()
            elif not isinstance(stmt, g.AsyncCommit):
                self._matrix(stmt)

    def _allocate(self, buffer: g.Buffer) -> g.Column:
        """Registers that a buffer takes."""
        size = buffer.size * item_bytes(buffer.dtype)
        if buffer.scope == "shared":
            size = g.ceildiv(size, SHARED_BLOCK) * SHARED_BLOCK
            self.shared = self.shared + size * np.greater(self.runs, 0)
        if buffer.scope in MATRIX_SCOPES:
            copies = 1 if buffer.scope == "accumulator" else 2  # what wmma's fragments take
            return g.ceildiv(size * copies, 4 * self.gpu.warp)
        self._add(
            buffer.scope not in ("shared", "register"),
            lambda i: f"{buffer.name} of scope {buffer.scope} is allocated inside of a kernel",
        )
        return g.ceildiv(size, 4) if buffer.scope == "register" else 0

    def _registers(self, wanted: g.Column) -> None:
        limit = np.minimum(
            self.gpu.registers, self.gpu.sm_registers // np.maximum(self.threads, 1)
        )
        self._add(
            np.greater(wanted, limit),
            lambda i: (
                f"a thread needs about {self._number(wanted, i)} registers, but "
                f"{self._number(self.threads, i)} threads get {self._number(limit, i)} each"
            ),
        )

    def _let(self, let: g.Let) -> None:
        self.analysis.let(let.var, let.value, let.limit)
        self._depends(let.var, let.value)

    def _depends(self, var: g.Var, value: g.Linear) -> None:
        for found in (self.private, self.in_warp):
            if found & set(g.variables(value)):
                found.add(var)

    def _loop(self, loop: g.Loop, registers: g.Column) -> None:
        name = loop.var.name
        misplaced = loop.kind in ("block", "thread")
        self._add(misplaced, lambda i: f"{loop.kind} loop {name} stands inside of the threads")
        outside, diverges = self.runs, self.private & set(g.variables(loop.bound or g.Linear()))
        self.runs = self.runs & np.greater(loop.extent, 0)
        together = [s for s in g.statements(loop.body) if isinstance(s, (g.Barrier, *_MATRIX))]
        self._add(
            bool(diverges and together),
            lambda i: f"loop {name} differs between threads that must do a statement together",
        )
        self.analysis.loop(loop.var, loop.extent)
        if loop.bound is not None:
            self._depends(loop.var, loop.bound)
        if loop.kind == "vectorized":
            self._vector(loop)
        self._block(loop.body, registers)
        if any(isinstance(s, g.Barrier) for s in together):
            # Again, as the next iteration, in which slots are others than now.
            self.runs = self.runs & np.greater(loop.extent, 1)
            self.race_check.next_iteration()
            self._block(loop.body, registers)
        self.runs = outside

    def _vector(self, loop: g.Loop) -> None:
        name = loop.var.name
        store = loop.body[0]
        if not isinstance(store, g.Store):
            return  # another rule's error
        reads = [x for x in walk(store.value) if isinstance(x, g.Load)]
        accesses = [(store.buffer, store.index), *((x.buffer, x.index) for x in reads)]
        for buffer, index in accesses:
            self._width(buffer, loop)
            self._contiguous(buffer, index, loop)
        many = np.greater(loop.extent, 1)
        clamped = any(x.clamped for x in reads)
        self._add(many & clamped, lambda i: f"vector loop {name} holds a clamped load")

    def _width(self, buffer: g.Buffer, loop: g.Loop) -> None:
        """Registers are read and written lane by lane, so that any number of them is a vector."""
        most = self.gpu.vector_bytes
        wide = np.greater(loop.extent * item_bytes(buffer.dtype), most)
        wide = wide & (buffer.scope != "register")
        self._add(
            wide | np.not_equal(loop.extent & (loop.extent - 1), 0),
            lambda i: (
                f"loop {loop.var} is a vector of {self._number(loop.extent, i)} elements of "
                f"{buffer.name}; powers of two up to {most} bytes are allowed"
            ),
        )

    def _contiguous(self, buffer: g.Buffer, index: tuple[g.Linear, ...], loop: g.Loop) -> None:
        """Private storage is registers, where nothing is ever unaligned."""
        if buffer.scope == "register":
            return
        place = g.flat(buffer, index)
        slope: g.Column = 0
        rest: list[tuple[Any, g.Column]] = []
        for term, coefficient in place.terms:
            if term is loop.var:
                slope = slope + coefficient
            else:
                rest.append((term, coefficient))
        many = np.greater(loop.extent, 1)
        moves = np.not_equal(slope, 0)
        self._add(
            many & moves & np.not_equal(slope, 1),
            lambda i: f"vector loop {loop.var} reaches elements of {buffer.name} that are apart",
        )
        self._aligned(buffer, g.Linear(tuple(rest), place.const), loop.extent, many & moves)

    def _aligned(self, buffer: g.Buffer, place: g.Linear, count: g.Column, where: Any) -> None:
        step = self.analysis.step(place)
        self._add(
            where & np.not_equal(step % np.maximum(count, 1), 0),
            lambda i: (
                f"{self._number(count, i)} elements of {buffer.name} are reached at a place that "
                f"is a multiple of {self._number(step, i)} only"
            ),
        )

    def _async_copy(self, copy: g.AsyncCopy) -> None:
        bytes_ = copy.count * item_bytes(copy.buffer.dtype)
        odd = np.not_equal(bytes_, 4) & np.not_equal(bytes_, 8) & np.not_equal(bytes_, 16)
        self._add(odd, lambda i: f"an asynchronous copy of {self._number(bytes_, i)} bytes")
        wrong = copy.buffer.scope != "shared" or copy.source.scope not in ("argument", "heap")
        self._add(wrong, lambda i: "an asynchronous copy is not from global to shared memory")
        self._add(
            copy.buffer.dtype != copy.source.dtype,
            lambda i: "an asynchronous copy changes the type of its elements",
        )
        self._aligned(copy.buffer, g.flat(copy.buffer, copy.index), copy.count, True)
        self._aligned(copy.source, g.flat(copy.source, copy.at), copy.count, True)
        self._touch([], (copy.buffer, copy.index), copied=True)

    def _matrix(self, stmt: g.Stmt) -> None:
        self._add(not self.gpu.tensor_cores, lambda i: "this GPU multiplies no matrices")
        self._add(
            np.not_equal(self.lanes, self.gpu.warp),
            lambda i: f"the innermost thread loop is not the {self.gpu.warp} lanes of a warp",
        )
        for place in _subscripts(stmt):
            differ = bool(self.in_warp & set(g.variables(place)))
            self._add(differ, lambda i: "the lanes of a warp are at different matrix tiles")
        if isinstance(stmt, g.MatrixLoad):
            self._memory(stmt.source, stmt.at, (stmt.rows, stmt.columns))
            self._touch([(stmt.source, stmt.at)], None)
        elif isinstance(stmt, g.MatrixStore):
            self._memory(stmt.target, stmt.at, (stmt.rows, stmt.columns))
            self._touch([], (stmt.target, stmt.at))
        for tile, scopes in _tiles(stmt):
            self._scope(tile, scopes)

    def _scope(self, tile: g.Buffer, scopes: tuple[str, ...]) -> None:
        wrong = tile.scope not in scopes or tuple(tile.shape[-2:]) != (g.MATRIX, g.MATRIX)
        self._add(wrong, lambda i: f"{tile.name} holds matrix tiles of a wrong scope")

    def _memory(self, buffer: g.Buffer, at: tuple[g.Linear, ...], axes: tuple[int, int]) -> None:
        last = len(buffer.shape) - 1
        if last not in axes or axes[0] == axes[1]:
            self._add(True, lambda i: f"a matrix tile of {buffer.name} is not along its last axis")
            return
        other = axes[1] if axes[0] == last else axes[0]
        item = item_bytes(buffer.dtype)
        apart = math.prod(buffer.shape[other + 1 :]) * item
        self._add(
            np.not_equal(apart % 16, 0),
            lambda i: f"rows of a matrix in {buffer.name} are no multiple of 16 bytes apart",
        )
        self._aligned(buffer, g.flat(buffer, at), SHARED_ALIGNMENT // item, True)


_MATRIX = (g.MatrixFill, g.MatrixLoad, g.MatrixMultiply, g.MatrixStore)


def _subscripts(stmt: g.Stmt) -> Iterator[g.Linear]:
    for part in fields(stmt):
        value = getattr(stmt, part.name)
        if isinstance(value, tuple):
            yield from value


def _tiles(stmt: g.Stmt) -> Iterator[tuple[g.Buffer, tuple[str, ...]]]:
    if isinstance(stmt, g.MatrixMultiply):
        yield stmt.left, ("matrix_a",)
        yield stmt.right, ("matrix_b",)
    if isinstance(stmt, g.MatrixLoad):
        yield stmt.tile, ("matrix_a", "matrix_b")
    else:
        assert isinstance(stmt, (g.MatrixFill, g.MatrixMultiply, g.MatrixStore)), stmt
        yield stmt.tile, ("accumulator",)
