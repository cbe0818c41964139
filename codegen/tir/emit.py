"""Emission: the loop tree of one config, written as TIR statements.

Buffers become flat, since the tree's views of one storage differ in shape; parallel loops that
stand directly inside each other become one; `Let`s that cannot clip lose their `min`. TVM then
vectorizes, unrolls, parallelizes and compiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from loopwright.codegen.order import OrderCall, Row
from loopwright.codegen.target import has_avx512
from loopwright.codegen.tir.bindings import Scratch, sequence
from loopwright.codegen.tir.elementary import apply, apply_scaling
from loopwright.codegen.tir.indices import (
    ZERO,
    Indices,
    KnownValue,
    expression,
    flat_buffer,
    number,
)
from loopwright.codegen.tir.loops import (
    decides,
    in_chunks,
    lanes_apart,
    overflows,
    reads_back,
    stored,
    vector_stores,
)
from loopwright.codegen.tir.sparse import BitLoops
from loopwright.codegen.tir.transposed import MOST_STEP, RowGroup, Tile, strided_load, together
from loopwright.codegen.tir.values import ValueEmitter, storage_type
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import ORDERS
from loopwright.dsl.size import Dim
from loopwright.schedule.program.footprint import LINE
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.formula import Formula, bounds, greatest
from loopwright.schedule.tree.parts import nested

_KINDS = {
    "serial": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "unrolled": ForKind.UNROLLED,
    "vectorized": ForKind.VECTORIZED,
}


_ALIGNMENT = 64  # bytes, of what we allocate: of every vector
_MOST_ON_STACK = 1 << 20  # bytes: a thread has eight times as many
_MOST_AGAIN = 1 << 18  # bytes up to which what a loop allocates again and again lies there, too
_MOST_ROWS = 32  # of vectors that are written out to be transposed


def emit(
    name: str,
    arguments: tuple[g.Buffer, ...],
    body: tuple[g.Stmt, ...],
    target: Target,
    own: bool = True,
    dims: Sequence[Dim] = (),
) -> Any:
    """A TIR function over flat arrays, `arguments` in order. If it has `dims`, an array of int64
    stands before them: the number of a program, which is not read, and the value of each.

    With one thread nothing is parallel. Without `own`, it needs nothing of our run-time but what
    TVM's has too.
    """
    sizes = {d: tirx.Var(d.name, "int32") for d in dims}
    emitter = _Emitter(arguments, target, own, sizes)
    code = emitter.thread(body)
    stmt = sequence([*emitter.at.bindings, code])
    parameters = [emitter.buffers[b.name] for b in arguments]
    if dims:
        given = tirx.decl_buffer((1 + len(dims),), "int64", "given_sizes")
        parameters.insert(0, given)
        read = [
            tirx.Bind(var, tirx.Cast("int32", tirx.BufferLoad(given, [number(k)])))
            for k, var in enumerate(sizes.values(), 1)
        ]
        stmt = sequence([*read, stmt])
    function = tirx.PrimFunc(parameters, stmt)
    return function.with_attr("global_symbol", name).with_attr("tirx.noalias", True)


def emit_tree(tree: g.Tree, target: Target) -> dict[str, Any]:
    """The functions of a tree of one config: "main", and "prepare" if it has anything to do."""
    arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
    functions = {"main": emit("main", arguments, tree.body, target)}
    if tree.prepared:
        functions["prepare"] = emit_preparation("prepare", tree, target)
    return functions


def emit_preparation(name: str, tree: g.Tree, target: Target) -> Any:
    """The function that lays the constants of a tree out, on one thread."""
    arguments = (*tree.constants, *tree.prepared)
    return emit(name, arguments, tree.prepare, replace(target, threads=1))


class _Emitter:
    def __init__(
        self, arguments: tuple[g.Buffer, ...], target: Target, own: bool, sizes: Mapping[Dim, Any]
    ) -> None:
        self.threads = target.threads
        self.dims = tuple(sizes)
        self.own, self.caches = own, target.l2_bytes * target.threads
        self.registers = target.vector_registers * target.vector_bytes
        self.stack: list[Any] = []  # what the code of the thread at hand begins with
        self.is_repeated = False  # whether the statements at hand are inside of a loop
        self.at = Indices(truncating=bool(sizes), sizes=sizes)
        self.buffers: dict[str, Any] = {}
        self.lanes: tuple[g.Var, int, Scratch] | None = None  # of the vector loop at hand
        self.group: RowGroup | None = None  # of neighbouring rows, where they are stored together
        functions = apply_scaling if has_avx512(target) else apply
        self.values = ValueEmitter(
            self.at.offset, self.at.linear, self.buffers, self.shuffled, functions
        )
        self.bit_loops = BitLoops(self.at, self.buffers, target)
        for b in arguments:  # the caller's, who may have put them anywhere
            self.buffers[b.name] = self._declare(b, item_bytes(b.dtype))

    def thread(self, body: tuple[g.Stmt, ...]) -> Any:
        """The code of a thread, behind what lays its stack out."""
        around, self.stack = self.stack, []
        code = self.block(body)
        begin, self.stack = self.stack, around
        return sequence([*begin, code])

    @contextmanager
    def inside_loop(self) -> Iterator[None]:
        """What is emitted meanwhile runs again and again."""
        around, self.is_repeated = self.is_repeated, True
        yield
        self.is_repeated = around

    def block(self, body: tuple[g.Stmt, ...]) -> Any:
        return sequence(self.statements(body))

    def statements(self, body: tuple[g.Stmt, ...]) -> list[Any]:
        stmts: list[Any] = []
        for stmt in body:
            if isinstance(stmt, g.Loop):
                stmts += self.loop(stmt)
            elif isinstance(stmt, g.Let):
                stmts += self.at.let(stmt)
            elif isinstance(stmt, g.Allocate):
                stmts += self.allocate(stmt.buffer)
            elif isinstance(stmt, g.Prefetch):
                stmts += self.prefetch(stmt)
            else:
                assert isinstance(stmt, g.Store), stmt
                stmts.append(self.store(stmt))
        return stmts

    def loop(self, loop: g.Loop) -> list[Any]:
        if loop.kind in ORDERS:
            return self.order(OrderCall.of(loop))
        if loop.kind == "parallel" and self.threads > 1:
            return self.parallel(loop)
        if loop.kind == "vectorized":
            return [self.vector(loop)]
        if loop.extent == 1 and not self._whole(loop):
            return self.guarded(loop)
        if loop.extent == 1 or self.group is not None or decides(loop):
            return [stmt for at in range(int(loop.extent)) for stmt in self.iteration(loop, at)]
        if (grouped := self.transposed(loop)) is not None:
            return grouped
        kind = _KINDS[loop.kind]
        if loop.kind == "parallel" or isinstance(loop.extent, Formula):
            kind = ForKind.SERIAL
        var = tirx.Var(loop.var.name, "int32")
        if self.bit_loops.has(loop):
            return self.bit_loops.loop(loop, var, self.statements)
        before, first = self.bit_loops.ahead(loop, var, self.at.let)
        self.at.known[loop.var] = KnownValue(
            var, 0, max(bounds(loop.extent)[1] - 1, 0), last=loop.extent - 1
        )
        with self.inside_loop():
            body = self.statements(loop.body)
        if not body:  # hints, which no C source has
            return []
        loops = tirx.For(var, number(0), self.extent(loop), kind, sequence([*first, *body]))
        return [*before, loops]

    def guarded(self, loop: g.Loop) -> list[Any]:
        """A loop of at most one iteration."""
        assert loop.bound is not None
        if self.at.range(loop.bound)[1] < 1:
            return []
        body = self.iteration(loop, 0)
        if not body:
            return []
        return [tirx.IfThenElse(self.at.linear(loop.bound) > 0, sequence(body), None)]

    def iteration(self, loop: g.Loop, at: int) -> list[Any]:
        self.at.known[loop.var] = KnownValue(at, at, at, at)
        return self.statements(loop.body)

    def vector(self, loop: g.Loop) -> Any:
        """A loop over the lanes of one store; what the store uses twice is kept per lane."""
        store, lanes = stored(loop), int(loop.extent)
        tile = None if self.group is None else self.tile(loop, self.group)
        dtype = "int64" if self.at.sizes else "int32"  # as offsets, which are then one vector's
        lane = tirx.Var(loop.var.name, dtype)
        at = tirx.Cast("int32", lane) if self.at.sizes else lane
        self.at.known[loop.var] = KnownValue(at if lanes > 1 else 0, 0, lanes - 1)
        scratch = Scratch(lane, lanes) if lanes > 1 else Scratch()
        self.lanes = (loop.var, lanes, scratch) if lanes > 1 else None
        value = self.values.stored(store.value, store.buffer.dtype, scratch)
        write = self._store(store, value) if tile is None else tile.write(value, lane)
        body = scratch.statements([write])
        self.lanes = None
        if lanes > 1:
            begin, end = (tirx.IntImm(dtype, n) for n in (0, lanes))
            body = tirx.For(lane, begin, end, ForKind.VECTORIZED, body)
        return scratch.around(body)

    def transposed(self, loop: g.Loop) -> list[Any] | None:
        """A loop over neighbours in memory around stores whose lanes stand apart: several at a
        time, transposed in registers. None for any other loop."""
        if isinstance(loop.extent, Formula) or not 2 <= loop.extent <= _MOST_ROWS:
            return None  # rows are as many at every size
        if not self._whole(loop):
            return None
        stores = vector_stores(loop.body)
        if not stores or not all(lanes_apart(s, loop.var) for s in stores) or reads_back(stores):
            return None
        stmts: list[Any] = []
        start, count = 0, int(loop.extent)
        while start < count:
            size = together(count - start)
            group, rows = RowGroup(size), []
            self.group = group if size > 1 else None
            for row in range(size):
                group.begin(row)
                rows += self.iteration(loop, start + row)
            self.group = None
            if not group.neighbours():
                return None
            stmts += (*group.declarations(), *rows, *group.stores())
            start += size
        return stmts

    def tile(self, loop: g.Loop, group: RowGroup) -> Tile:
        """Tile that a vector loop writes to, if it is stored with other rows of the group."""
        store = stored(loop)
        self.at.known[loop.var] = ZERO
        place = self.at.flat(store.buffer, store.index)
        base, step = expression(self.at.linear(place)), int(dict(place.terms)[loop.var])
        return group.tile(self.buffers[store.buffer.name], base, step, int(loop.extent))

    def _whole(self, loop: g.Loop) -> bool:
        """Return whether the loop runs over all of its extent."""
        return loop.bound is None or self.at.range(loop.bound)[0] >= bounds(loop.extent)[1]

    def order(self, call: OrderCall) -> list[Any]:
        """A row in order, by the run-time."""

        def row(r: Row) -> tuple[Any, Any]:
            return self._address(r.buffer, r.index), self._whole_number(r.step)

        places, elements = row(call.places), row(call.elements)
        return [
            *self.allocate(call.items),
            tirx.Evaluate(
                tirx.call_extern(
                    "int32",
                    "lw_order",
                    *(*places, self._whole_number(call.wanted)),
                    *(*elements, self._whole_number(call.extent)),
                    *(number(call.kind), number(int(call.greatest))),
                    self._address(call.items, (g.Linear(),)),
                )
            ),
        ]

    def _address(self, buffer: g.Buffer, index: tuple[g.Linear, ...]) -> Any:
        at = expression(self.at.offset(buffer, index))
        return tirx.address_of(tirx.BufferLoad(self.buffers[buffer.name], [at]))

    def _whole_number(self, value: g.Column) -> Any:
        return expression(self.at.size(value))

    def extent(self, loop: g.Loop) -> Any:
        """min(extent, bound), the bound left out where it never clips."""
        if loop.bound is None or self._whole(loop):
            return expression(self.at.size(loop.extent))
        bound = expression(self.at.linear(loop.bound))
        return tirx.Min(expression(self.at.size(loop.extent)), bound)

    def parallel(self, loop: g.Loop) -> list[Any]:
        """Directly nested parallel loops as one: `p ↦ (p // J, p % J)`."""
        chain = nested(loop)
        sizes = [self.at.size(each.extent) for each in chain]
        total = math.prod(sizes)
        most = math.prod(bounds(each.extent)[1] for each in chain)
        name = ".".join(each.var.name for each in chain if each.extent != 1)
        counter = tirx.Var(name, "int32")
        for place, (each, size) in enumerate(zip(chain, sizes, strict=True)):
            rest = math.prod(sizes[place + 1 :])
            # The outermost one needs no remainder, but without it LLVM's strength reduction takes
            # so many registers for what counts with that loop that inner ones spill theirs.
            at = self.at.divided(self.at.divided(counter, rest, False), size, True)
            last = bounds(each.extent)[1] - 1
            known = KnownValue(at if last else 0, 0, last, last=each.extent - 1)
            self.at.known[each.var] = known
        with self.inside_loop():
            each_thread = self.thread(chain[-1].body)
        if most == 1:
            return [each_thread]
        turns = self.own and overflows(loop, self.caches)
        return in_chunks(counter, total, most, each_thread, self.threads, self.own, turns)

    def allocate(self, buffer: g.Buffer) -> list[Any]:
        """On the stack for what is meant for registers, or small, else from the run-time's
        workspaces (TVM would take the former from there too, at a call for every tile)."""
        most = greatest(buffer.size, self.dims)
        size = most * item_bytes(buffer.dtype)
        if size > _MOST_ON_STACK:
            buffer = replace(buffer, scope="heap")
        elif self.dims and self.is_repeated and size <= _MOST_AGAIN:
            buffer = replace(buffer, scope="register")  # its size at the greatest sizes is known
        if buffer.scope == "register" and size > self.registers and self.own:
            return self.on_stack(buffer, most)
        elements = most if buffer.scope == "register" else self.at.size(buffer.size)
        self.buffers[buffer.name] = self._declare(buffer, elements=elements)
        return [tirx.AllocBuffer(self.buffers[buffer.name], _annotations(buffer))]

    def on_stack(self, buffer: g.Buffer, most: int) -> list[Any]:
        """An array on the stack, which TVM aligns to no more than 16 bytes: a vector in two cache
        lines takes twice as long, one in two pages several hundred cycles. So it begins at the
        first line in a larger one."""
        item = item_bytes(buffer.dtype)
        whole = replace(buffer, shape=(most + (LINE - 1) // item,))
        self.buffers[buffer.name] = declared = self._declare(whole)
        address = tirx.address_of(tirx.BufferLoad(declared, [number(0)]))
        start = tirx.Var(f"{buffer.name}.start", "int32")
        skip = tirx.call_extern("int32", "lw_to_line", address)
        self.at.begin(buffer, start, (LINE - 1) // item)
        self.stack.append(tirx.AllocBuffer(declared, _annotations(buffer)))
        self.stack.append(tirx.Bind(start, tirx.truncdiv(skip, number(item))))
        return []

    def store(self, store: g.Store) -> Any:
        scratch = Scratch()
        value = self.values.stored(store.value, store.buffer.dtype, scratch)
        return scratch.around(scratch.statements([self._store(store, value)]))

    def prefetch(self, hint: g.Prefetch) -> list[Any]:
        """Read soon, and again: into the second-level cache and beyond."""
        at = expression(self.at.offset(hint.buffer, hint.index, clamped=True))
        address = tirx.address_of(tirx.BufferLoad(self.buffers[hint.buffer.name], [at]))
        settings = (number(0), number(2), number(1))  # reading, the locality, data
        return [tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, *settings))]

    def _store(self, store: g.Store, value: Any) -> Any:
        at = expression(self.at.offset(store.buffer, store.index))
        return tirx.BufferStore(self.buffers[store.buffer.name], value, [at])

    def shuffled(self, x: g.Load) -> Any:
        """A load whose lanes stand a few elements apart, out of contiguous ones; else None."""
        if self.lanes is None or x.clamped:
            return None
        var, lanes, scratch = self.lanes
        place = self.at.flat(x.buffer, x.index)
        step = dict(place.terms).get(var, 0)
        if isinstance(step, Formula):
            return None
        rest = g.Linear(tuple((t, c) for t, c in place.terms if t is not var), place.const)
        if not 2 <= step <= MOST_STEP or var in g.variables(rest):
            return None
        base, buffer = expression(self.at.linear(rest)), self.buffers[x.buffer.name]
        value = strided_load(buffer, base, int(step), lanes)
        return scratch.vector(value, storage_type(x.dtype))

    def _declare(self, b: g.Buffer, alignment: int = _ALIGNMENT, elements: Any = None) -> Any:
        dtype = storage_type(b.dtype)
        return flat_buffer(b, b.name, dtype, elements, data_alignment=alignment)


def _annotations(buffer: g.Buffer) -> dict[str, Any] | None:
    return (
        {"disable_lower_builtin": tirx.IntImm("bool", 1)} if buffer.scope == "register" else None
    )
