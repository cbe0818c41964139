"""Emission for GPUs: every kernel of a tree as a device function of TIR.

Block loops become `blockIdx.x`, thread loops `threadIdx.x`, by division. What a thread does is
scalar code: wide are only the loads and stores of vector loops, where both ends allow it. TVM's
code generators write that down as CUDA or OpenCL C; none of TVM's passes is needed but the one
that spells out floor division.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from tvm import ir, tirx
from tvm.tirx import ForKind

from loopwright.codegen.gpu.mma import FRAGMENTS, MmaEmitter
from loopwright.codegen.gpu.values import GpuValues, Names, gpu_storage_type
from loopwright.codegen.tir.bindings import sequence
from loopwright.codegen.tir.elementary import apply
from loopwright.codegen.tir.indices import (
    ZERO,
    Indices,
    KnownValue,
    expression,
    flat_buffer,
    number,
)
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import BuildError
from loopwright.dsl.traversal import walk
from loopwright.schedule.tree import grammar as g

VECTOR_BYTES = 16
ALIGNMENT = 128  # of what is allocated here, in bytes
_WIDE = (2, 4, 8, 16)  # lanes that both languages have vectors of


@dataclass(frozen=True)
class GpuKernel:
    """A device function of TIR, for `grid` blocks of `block` threads."""

    function: Any
    grid: int
    block: int


def emit_kernel(name: str, stmt: g.Stmt, parameters: list[g.Buffer], language: str) -> GpuKernel:
    """The kernel of a top-level statement; `parameters` are its buffers in global memory."""
    emitter = _KernelEmitter(language)
    pointers, declared = [], []
    for b in parameters:
        buffer = emitter.declare(b, "global")
        dtype = ir.PrimType(gpu_storage_type(b.dtype))
        pointers.append(tirx.Var(f"{buffer.name}_ptr", ir.PointerType(dtype, "global")))
        declared.append(tirx.DeclBuffer(buffer, data=pointers[-1]))
    body, grid, block = emitter.kernel(stmt)
    function = tirx.PrimFunc(pointers, tirx.SeqStmt([*declared, body]))
    function = function.with_attr("global_symbol", name).with_attr("tirx.noalias", True)
    return GpuKernel(function, grid, block)


def written_buffers(stmt: g.Stmt) -> set[str]:
    """The names of the buffers that a statement writes to."""
    if isinstance(stmt, g.Loop):
        return set().union(*map(written_buffers, stmt.body))
    target = getattr(stmt, "target", getattr(stmt, "buffer", None))
    return set() if target is None or isinstance(stmt, g.Allocate) else {target.name}


def buffers(stmt: g.Stmt) -> Iterator[g.Buffer]:
    """All buffers in a statement."""
    if isinstance(stmt, g.Loop):
        for inner in stmt.body:
            yield from buffers(inner)
        return
    if isinstance(stmt, g.Store):
        yield from (x.buffer for x in walk(stmt.value) if isinstance(x, g.Load))
    for field in fields(stmt):
        if isinstance(value := getattr(stmt, field.name), g.Buffer):
            yield value


class _KernelEmitter:
    def __init__(self, language: str) -> None:
        self.language = language
        self.at = Indices(truncating=True)
        self.buffers: dict[str, Any] = {}
        self.shared: list[Any] = []  # allocated at the top of the kernel, where OpenCL wants them
        self.wide: dict[int, tuple[Any, g.Linear]] = {}  # loads of the vector loop at hand, by id
        self.values = GpuValues(
            self.at.offset, self.at.linear, self.buffers, self._from_vector, apply
        )
        self.values.language = language
        self.matrices = MmaEmitter(language, self.at, self.buffers)

    def kernel(self, stmt: g.Stmt) -> tuple[Any, int, int]:
        """The statement, and the numbers of blocks and of threads of a block."""
        if not isinstance(stmt, g.Loop):
            raise BuildError("a kernel is a loop over blocks or threads")
        grid, blocks, inside = self._chain((stmt,), "block", self.block_index)
        block, threads, inside = self._chain(inside, "thread", self.thread_index)
        body = self.block(inside)
        top = [*map(tirx.AllocBuffer, self.shared), *blocks, *threads, body]
        stmt = tirx.SeqStmt(top)
        for tag, var, extent in (
            ("threadIdx.x", self.thread_index, block),
            ("blockIdx.x", self.block_index, grid),
        ):
            axis = tirx.IterVar(None, var, 1, tag)
            stmt = tirx.AttrStmt(axis, "thread_extent", number(extent), stmt)
        return stmt, grid, block

    block_index = tirx.Var("blockIdx_x", "int32")
    thread_index = tirx.Var("threadIdx_x", "int32")

    def _chain(
        self, body: tuple[g.Stmt, ...], kind: str, index: Any
    ) -> tuple[int, list[Any], tuple[g.Stmt, ...]]:
        """Nested loops of a kind with the `Let`s between them: how many iterations there are in
        all, statements that make their variables of `index`, and what is inside of them."""
        total = rest = _iterations(body, kind)
        made: list[Any] = []
        while isinstance(first := body[0], g.Let) or (
            isinstance(first, g.Loop) and first.kind == kind
        ):
            if isinstance(first, g.Let):
                made += self.at.let(first)
                body = body[1:]
                continue
            body = first.body
            size, before = int(first.extent), rest
            rest //= size
            if size == 1:
                self.at.known[first.var] = ZERO
                continue
            at = index if rest == 1 else self.at.divided(index, rest, False)
            at = at if before == total else self.at.divided(at, size, True)
            var = tirx.Var(first.var.name, "int32")
            made.append(tirx.Bind(var, at))
            self.at.known[first.var] = KnownValue(var, 0, size - 1)
        return total, made, body

    def block(self, body: tuple[g.Stmt, ...]) -> Any:
        stmts: list[Any] = []
        for stmt in body:
            if isinstance(stmt, g.Loop):
                stmts.append(self.loop(stmt))
            elif isinstance(stmt, g.Let):
                stmts += self.at.let(stmt)
            elif isinstance(stmt, g.Allocate):
                stmts += self._allocate(stmt.buffer)
            elif isinstance(stmt, g.Store):
                stmts.append(self._scalar(stmt))
            elif isinstance(stmt, g.Barrier):
                stmts.append(tirx.Evaluate(tirx.call_extern("int32", "lw_barrier")))
            elif isinstance(stmt, (g.AsyncCopy, g.AsyncCommit, g.AsyncWait)):
                stmts += self._async(stmt)
            elif not isinstance(stmt, g.Prefetch):
                stmts.append(self.matrices.emit(stmt))
        return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(stmts)

    def loop(self, loop: g.Loop) -> Any:
        extent = int(loop.extent)
        clips = loop.bound is not None and self.at.range(loop.bound)[0] < extent
        if loop.kind == "vectorized" and not clips and extent in _WIDE:
            return self._vector(loop)
        bound = expression(self.at.linear(loop.bound)) if loop.bound and clips else None
        if extent == 1:
            self.at.known[loop.var] = ZERO
            body = self.block(loop.body)
            return body if bound is None else tirx.IfThenElse(bound > number(0), body, None)
        var = tirx.Var(loop.var.name, "int32")
        self.at.known[loop.var] = KnownValue(var, 0, extent - 1)
        end = number(extent) if bound is None else tirx.Min(number(extent), bound)
        kind = ForKind.UNROLLED if loop.kind in ("unrolled", "vectorized") else ForKind.SERIAL
        return tirx.For(var, number(0), end, kind, self.block(loop.body))

    # ---- stores ----

    def _scalar(self, store: g.Store) -> Any:
        names = Names()
        value = self.values.stored(store.value, store.buffer.dtype, names)
        at = expression(self.at.offset(store.buffer, store.index))
        stored = tirx.BufferStore(self.buffers[store.buffer.name], value, [at])
        return sequence([*names.statements, stored])

    def _vector(self, loop: g.Loop) -> Any:
        """A store of several lanes: wide loads, lane by lane what is between, a wide store."""
        (store,) = loop.body
        assert isinstance(store, g.Store), store
        lanes, value = int(loop.extent), store.value
        to = self._contiguous(store.buffer, store.index, loop)
        if to is not None and isinstance(value, g.Load) and value.dtype == store.buffer.dtype:
            source = None if value.clamped else self._contiguous(value.buffer, value.index, loop)
            if source is not None:
                return self._move(to, source, lanes, value.dtype)
        stmts: list[Any] = []
        for x in walk(value):
            if isinstance(x, g.Load) and not x.clamped and id(x) not in self.wide:
                source = self._contiguous(x.buffer, x.index, loop)
                if source is not None:
                    part = self._local("v", lanes, x.dtype)
                    stmts += [
                        tirx.AllocBuffer(part),
                        self._move(_first(part), source, lanes, x.dtype),
                    ]
                    self.wide[id(x)] = part, g.Linear(((loop.var, 1),))
        result = None if to is None else self._local("w", lanes, store.buffer.dtype)
        if result is not None:
            stmts.append(tirx.AllocBuffer(result))
        for lane in range(lanes):
            self.at.known[loop.var] = KnownValue(lane, lane, lane, lane)
            names = Names()
            stored = self.values.stored(value, store.buffer.dtype, names)
            if result is None:
                at = expression(self.at.offset(store.buffer, store.index))
                put = tirx.BufferStore(self.buffers[store.buffer.name], stored, [at])
            else:
                put = tirx.BufferStore(result, stored, [number(lane)])
            stmts += [*names.statements, put]
        self.wide = {}
        if result is not None:
            stmts.append(self._move(to, _first(result), lanes, store.buffer.dtype))
        return tirx.SeqStmt(stmts)

    def _contiguous(self, buffer: g.Buffer, index: tuple[g.Linear, ...], loop: g.Loop) -> Any:
        """The first lane of a vector as an element of its buffer; None where the lanes are not
        neighbours, aligned, and in memory."""
        lanes = int(loop.extent)
        place = g.flat(buffer, index)
        rest = g.Linear(tuple((t, c) for t, c in place.terms if t is not loop.var), place.const)
        near = dict(place.terms).get(loop.var, 0) == 1 and loop.var not in g.variables(rest)
        small = lanes * item_bytes(buffer.dtype) <= VECTOR_BYTES
        if not near or not small or buffer.scope == "register" or self.at.step(rest) % lanes:
            return None
        at = expression(self.at.linear(rest))
        return tirx.BufferLoad(self.buffers[buffer.name], [at])

    def _move(self, to: Any, source: Any, lanes: int, dtype: str) -> Any:
        """A wide copy between places that are given by their first elements. (TVM has vectors of
        its own, but takes them apart where it cannot prove that they are aligned.)"""
        width = f"<{lanes * item_bytes(dtype)}>" if self.language == "cuda" else str(lanes)
        ends = tirx.address_of(to), tirx.address_of(source)
        return tirx.Evaluate(tirx.call_extern("int32", f"lw_move{width}", *ends))

    def _from_vector(self, x: g.Load) -> Any:
        """The element of a vector that was loaded as a whole; None for other loads."""
        if id(x) not in self.wide:
            return None
        part, lane = self.wide[id(x)]
        return tirx.BufferLoad(part, [expression(self.at.linear(lane))])

    def _local(self, name: str, size: int, dtype: str) -> Any:
        return tirx.decl_buffer(
            (size,), gpu_storage_type(dtype), name, scope="local", data_alignment=VECTOR_BYTES
        )

    # ---- copies beside other work ----

    def _async(self, stmt: g.AsyncCopy | g.AsyncCommit | g.AsyncWait) -> list[Any]:
        cuda = self.language == "cuda"
        if isinstance(stmt, g.AsyncCopy):
            return [self._async_copy(stmt)]
        if not cuda:
            return []
        name = "lw_async_commit"
        if isinstance(stmt, g.AsyncWait):
            name = f"lw_async_wait<{int(stmt.pending)}>"
        return [tirx.Evaluate(tirx.call_extern("int32", name))]

    def _async_copy(self, stmt: g.AsyncCopy) -> Any:
        """An asynchronous copy. A copy that is not contiguous is done at once."""
        count = int(stmt.count)
        lane = g.Var("lane")
        index = (*stmt.index[:-1], stmt.index[-1] + g.Linear(((lane, 1),)))
        at = (*stmt.at[:-1], stmt.at[-1] + g.Linear(((lane, 1),)))
        store = g.Store(stmt.buffer, index, g.Load(stmt.source, at))
        loop = g.Loop(lane, count, "vectorized", (store,))
        size = count * item_bytes(stmt.buffer.dtype)
        ends = [(stmt.buffer, stmt.index), (stmt.source, stmt.at)]
        aligned = not any(self.at.step(g.flat(b, i)) % count for b, i in ends)
        if self.language != "cuda" or size not in (4, 8, 16) or not aligned:
            return self.loop(loop)
        places = [
            tirx.address_of(
                tirx.BufferLoad(self.buffers[b.name], [expression(self.at.offset(b, i))])
            )
            for b, i in ends
        ]
        return tirx.Evaluate(tirx.call_extern("int32", f"lw_async_copy<{size}>", *places))

    # ---- buffers ----

    def _allocate(self, b: g.Buffer) -> list[Any]:
        if b.scope == "shared":
            self.shared.append(self.declare(b, "shared"))
            return []
        if b.scope in FRAGMENTS:
            return [tirx.AllocBuffer(self.matrices.declare(b))]
        return [tirx.AllocBuffer(self.declare(b, "local"))]

    def declare(self, b: g.Buffer, scope: str) -> Any:
        """The flat TIR buffer of a buffer of the tree."""
        alignment = VECTOR_BYTES if scope == "local" else ALIGNMENT
        options = {"scope": scope, "data_alignment": alignment}
        self.buffers[b.name] = flat_buffer(b, b.name, gpu_storage_type(b.dtype), **options)
        return self.buffers[b.name]


def _iterations(body: tuple[g.Stmt, ...], kind: str) -> int:
    """Iterations of the nested loops of a kind that a kernel begins with."""
    total = 1
    for stmt in body:
        if isinstance(stmt, g.Loop) and stmt.kind == kind:
            total *= int(stmt.extent) * _iterations(stmt.body, kind)
    return total


def _first(buffer: Any) -> Any:
    return tirx.BufferLoad(buffer, [number(0)])
