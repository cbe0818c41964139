"""Emission: the loop tree of one config as machine code.

Loops become loops, but those that are unrolled, or that count inside of a register tile, are
written out. A parallel loop is a function of its own, whose chunks the run-time gives to threads.
"""

from __future__ import annotations

import math
import struct

from loopwright.codegen.builtin import encode as x86
from loopwright.codegen.builtin.code import FRAME, Code, Crowded, Label, Uncovered, VectorSet
from loopwright.codegen.builtin.homes import homes_of
from loopwright.codegen.builtin.loops import Loops
from loopwright.codegen.builtin.places import ITEM
from loopwright.codegen.builtin.subscripts import value_range
from loopwright.dsl.traversal import walk
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.parts import nested

_LEVEL = 2  # of a prefetch: the second cache and those behind it


def emit_tree(tree: g.Tree, threads: int, vectors: VectorSet) -> Code:
    """Code of a tree of one config. Raises `Uncovered`."""
    for homes in vectors.homes:
        try:
            return _emitted(tree, threads, Code(vectors, homes))
        except Crowded:
            continue
        except (OverflowError, struct.error):
            raise Uncovered("a number too large for an instruction") from None
    raise Uncovered("an expression that needs more vector registers than there are")


def _emitted(tree: g.Tree, threads: int, code: Code) -> Code:
    arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
    _entry("__tvm_ffi_main", arguments, tree.body, threads, code)
    if tree.prepared:
        made = (*tree.constants, *tree.prepared)
        _entry("__tvm_ffi_prepare", made, tree.prepare, 1, code)
    code.finish()
    return code


def _entry(
    name: str, arguments: tuple[g.Buffer, ...], body: tuple[g.Stmt, ...], threads: int, code: Code
) -> None:
    """A function with the calling convention of TVM's: the second argument is an array of tagged
    values, the pointers in it are of tensors, whose first member is the pointer to the data."""
    for buffer in arguments:
        if buffer.dtype != "float32":
            raise Uncovered(f"elements of {buffer.dtype}")
    emitter = Emitter(name, threads, code)
    own, given = emitter.function.number(), emitter.function.number()
    for n, buffer in enumerate(arguments):
        tensor = emitter.function.number()
        emitter.entry.items.append(("load", tensor, (given, 16 * n + 8)))
        emitter.entry.items.append(("load", tensor, (tensor, 0)))
        emitter.entry.items.append(("keep", tensor, emitter.slot(buffer.name)))
    emitter.finish(body, (own, given))


class Emitter(Loops):
    """The code of one function."""

    def __init__(self, name: str, threads: int, code: Code) -> None:
        super().__init__(code.vectors, code.homes, threads)
        self.name, self.code = name, code
        self._stacked: dict[str, int] = {}  # bytes
        self._parts = 0  # tasks
        self.heap: list[tuple[str, int]] = []  # names and bytes
        self.out = Label()
        self.status = self.function.reserve(8)

    def finish(self, body: tuple[g.Stmt, ...], arguments: tuple[int, ...]) -> None:
        """Write the function, whose code stands behind its entry."""
        self.statements(body)
        self.vectors.flush()
        items = self.function.current
        status = self.status if self.heap or self.out.jumps or self._parts else None
        if status is not None:
            self._allocations(items, status)
        items.append(("returns", status))
        self.function.write(self.name, self.code, arguments)

    def _allocations(self, items: list, status: int) -> None:  # type: ignore[type-arg]
        """One allocation for all temporary arrays of the function, at its begin."""
        begin = self._allocated.items
        begin.append(("set_slot", status, 0))
        if not self.heap:
            items.append(("label", self.out))
            return
        failed, done = Label(), Label()
        block = self.slot("(heap)")
        begin.append(("call", "lw_allocate", ((x86.RDI, sum(s for _, s in self.heap)),)))
        begin.append(("result", block))
        begin.append(("failed", failed))
        offset = 0
        for name, size in self.heap:
            pointer = self.function.number()
            begin.append(("load", pointer, (FRAME, block)))
            begin.append(("add_number", pointer, offset))
            begin.append(("keep", pointer, self.slot(name)))
            offset += size
        items.append(("label", self.out))
        items.append(("call", "lw_release", ((x86.RDI, ("load", block)),)))
        items.append(("jump", done))
        items.append(("label", failed))
        items.append(("set_slot", status, 3))
        items.append(("label", done))

    # ---- statements ----

    def statements(self, body: tuple[g.Stmt, ...]) -> None:
        ends: list[tuple[int, str, list[int]]] = []
        for n, stmt in enumerate(body):
            if isinstance(stmt, g.Loop):
                self.loop(stmt)
            elif isinstance(stmt, g.Store):
                self.store(stmt)
            elif isinstance(stmt, g.Let):
                self.let(stmt)
            elif isinstance(stmt, g.Prefetch):
                self.hint(stmt)
            elif isinstance(stmt, g.Allocate):
                made = self.allocate(stmt.buffer, body[n + 1 :])
                if made:
                    name = stmt.buffer.name
                    last = max(k for k, s in enumerate(body) if k > n and _mentions(s, name))
                    ends.append((last, name, made))
            else:
                raise Uncovered(f"a statement {type(stmt).__name__}")
            for last, name, registers in ends:
                if last == n:  # others may have the registers from here on
                    self.vectors.leave(registers)
                    self.homes.pop(name)

    def allocate(self, buffer: g.Buffer, rest: tuple[g.Stmt, ...]) -> list[int] | None:
        """Homes of a register tile, or bytes on the stack or of the heap; the homes."""
        if buffer.dtype != "float32":
            raise Uncovered(f"elements of {buffer.dtype}")
        size = int(buffer.size) * ITEM
        if buffer.scope != "register":
            if buffer.name not in dict(self.heap):
                self.heap.append((buffer.name, size + -size % 64))
                self.slot(buffer.name)
            return None
        homes = homes_of(buffer, rest, self.most_lanes)
        if homes is not None:
            count = int(buffer.size) // homes.width
            if len(self.vectors.homes) + count <= self.code.homes:
                homes.registers = [self.vectors.home() for _ in range(count)]  # type: ignore[misc]
                self.homes[buffer.name] = homes
                self.unrolled |= homes.variables
                return homes.registers
        if self._stacked.get(buffer.name, 0) < size:
            self._stacked[buffer.name] = size
            self.on_stack[buffer.name] = self.function.reserve(size, 64)
            self._bases.pop(buffer.name, None)
        return []

    def let(self, let: g.Let) -> None:
        """`var = min(value, limit)`."""
        self._scope += 1
        const, parts = self._linear(let.value)
        low, high = value_range(const, parts)
        limit = int(let.limit)
        if not parts or low >= limit:
            self.fixed[let.var] = min(low, limit)
            return
        self.fixed.pop(let.var, None)
        number = self.function.number()
        self._evaluate(number, const, parts, self.function.current)
        if high > limit:
            self.function.current.append(("least", number, limit))
        self._bind(let.var, min(low, limit), min(high, limit)).value = number

    def hint(self, prefetch: g.Prefetch) -> None:
        """A prefetch; one outside of its buffer does no harm."""
        try:
            place, _ = self.place(prefetch)
        except Uncovered:
            return
        self.vectors.hint(_LEVEL, place)

    # ---- threads ----

    def parallel(self, loop: g.Loop) -> None:
        """Directly nested parallel loops as one, in a function of its own."""
        chain = nested(loop)
        if any(each.bound is not None for each in chain):
            raise Uncovered("a parallel loop with a bound")
        total = math.prod(int(each.extent) for each in chain)
        if self.around is not None or total == 1:
            self._nested(chain)
            return
        self.vectors.flush()
        self._parts += 1
        name = f"{self.name}.part{self._parts}"
        self._task(name, chain, total)
        items = self.function.current
        given = ((x86.RDI, ("code", name)), (x86.RSI, ("frame", 0)), (x86.RDX, total))
        items.append(("call", "lw_parallel", given))
        items.append(("result", self.status))
        items.append(("failed_status", self.out))

    def _nested(self, chain: list[g.Loop]) -> None:
        """Parallel loops on one thread."""
        body = chain[-1].body
        for each in reversed(chain):
            body = (g.Loop(each.var, each.extent, "serial", body),)
        self.statements(body)

    def _task(self, name: str, chain: list[g.Loop], total: int) -> None:
        """The function that runs a chunk of the iterations: those from ⌊total·chunk / chunks⌋."""
        task = Emitter(name, self.threads, self.code)
        task.fixed = dict(self.fixed)
        chunk, group, frame = (task.function.number() for _ in range(3))
        task.around = (self, frame)
        items = task.function.current
        first, count, chunks = (task.function.number() for _ in range(3))
        items.append(("load32", first, chunk))
        items.append(("load32", chunks, (group, 8)))
        items.append(("copy", count, first))
        items.append(("add_number", count, 1))
        for end in (first, count):
            items.append(("scale", end, end, total))
            items.append(("over", end, chunks))
        minus = task.function.number()
        items.append(("scale", minus, first, -1))
        items.append(("add", count, minus))
        loops = [each for each in chain if int(each.extent) > 1]
        for each in chain:
            task.fixed[each.var] = 0
        body = chain[-1].body
        if len(loops) == 1:
            task.fixed.pop(loops[0].var)
            task._repeat(loops[0].var, total, body, count, False, first)
        else:
            counter, rest = g.Var("iteration"), total
            lets: list[g.Stmt] = []
            for each in loops:
                rest //= int(each.extent)
                whole = g.Linear(((g.Quotient(g.Linear(((counter, 1),)), rest), 1),))
                at = g.Linear(((g.Remainder(whole, each.extent), 1),))
                lets.append(g.Let(each.var, at, each.extent - 1))
            task._repeat(counter, total, (*lets, *body), count, False, first)
        task.finish((), (chunk, group, frame))


def _mentions(stmt: g.Stmt, name: str) -> bool:
    """Return whether a statement reads or writes a buffer."""
    for each in g.statements((stmt,)):
        if isinstance(each, g.Store):
            loads = (x for x in walk(each.value) if isinstance(x, g.Load))
            if each.buffer.name == name or any(x.buffer.name == name for x in loads):
                return True
    return False
