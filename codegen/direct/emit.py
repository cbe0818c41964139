"""Emission: the loop tree of one config as machine code.

Loops become loops, but those that are unrolled, or that count inside of a register tile, are
written out. A parallel loop is a function of its own, whose chunks the run-time gives to threads.
"""

from __future__ import annotations

import math
import struct

from loopwright.codegen.direct import encode as x86
from loopwright.codegen.direct.code import FRAME, Block, Code, Crowded, Label, Uncovered
from loopwright.codegen.direct.homes import homes_of
from loopwright.codegen.direct.lanes import LANES, Lanes
from loopwright.codegen.direct.places import ITEM
from loopwright.codegen.direct.subscripts import value_range
from loopwright.codegen.direct.values import ROWS
from loopwright.dsl.expr import walk
from loopwright.schedule.tree.grammar import (
    Allocate,
    Buffer,
    Let,
    Linear,
    Load,
    Loop,
    Prefetch,
    Quotient,
    Remainder,
    Stmt,
    Store,
    Tree,
    Var,
    statements,
)

_SHORT, _MOST_WRITTEN_OUT = 8, 96  # iterations of a short loop, and the vectors of all of them
_HOMES = (14, 11, 8, 0)
"""Registers that tiles may have: as many as leave enough for what else there is."""
_LEVEL = 2  # of a prefetch: the second cache and those behind it


def emit_tree(tree: Tree, threads: int) -> Code:
    """Code of a tree of one config. Raises `Uncovered`."""
    for homes in _HOMES:
        try:
            return _emitted(tree, threads, homes)
        except Crowded:
            continue
        except (OverflowError, struct.error):
            raise Uncovered("a number too large for an instruction") from None
    raise Uncovered("an expression that needs more vector registers than there are")


def _emitted(tree: Tree, threads: int, homes: int) -> Code:
    code = Code(homes=homes)
    arguments = (*tree.inputs, *tree.prepared, *tree.outputs)
    _entry("__tvm_ffi_main", arguments, tree.body, threads, code)
    if tree.prepared:
        made = (*tree.constants, *tree.prepared)
        _entry("__tvm_ffi_prepare", made, tree.prepare, 1, code)
    code.finish()
    return code


def _entry(
    name: str, arguments: tuple[Buffer, ...], body: tuple[Stmt, ...], threads: int, code: Code
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


class Emitter(Lanes):
    """The code of one function."""

    def __init__(self, name: str, threads: int, code: Code) -> None:
        super().__init__(code.homes)
        self.name, self.threads, self.code = name, threads, code
        self.unrolled: set[Var] = set()  # loops that count inside of register tiles
        self._stacked: dict[str, int] = {}  # bytes
        self._parts = 0  # tasks
        self.heap: list[tuple[str, int]] = []  # names and bytes
        self.out = Label()
        self.real_loops = 0
        self.status = self.function.reserve(8)

    def finish(self, body: tuple[Stmt, ...], arguments: tuple[int, ...]) -> None:
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

    def statements(self, body: tuple[Stmt, ...]) -> None:
        ends: list[tuple[int, str, list[int]]] = []
        for n, stmt in enumerate(body):
            if isinstance(stmt, Loop):
                self.loop(stmt)
            elif isinstance(stmt, Store):
                self.store(stmt)
            elif isinstance(stmt, Let):
                self.let(stmt)
            elif isinstance(stmt, Prefetch):
                self.hint(stmt)
            elif isinstance(stmt, Allocate):
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

    def allocate(self, buffer: Buffer, rest: tuple[Stmt, ...]) -> list[int] | None:
        """Homes of a register tile, or bytes on the stack or of the heap; the homes."""
        if buffer.dtype != "float32":
            raise Uncovered(f"elements of {buffer.dtype}")
        size = int(buffer.size) * ITEM
        if buffer.scope != "register":
            if buffer.name not in dict(self.heap):
                self.heap.append((buffer.name, size + -size % 64))
                self.slot(buffer.name)
            return None
        homes = homes_of(buffer, rest)
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

    def let(self, let: Let) -> None:
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

    def hint(self, prefetch: Prefetch) -> None:
        """A prefetch; one outside of its buffer does no harm."""
        try:
            place, _ = self.place(prefetch)
        except Uncovered:
            return
        self.vectors.hint(_LEVEL, place)

    def loop(self, loop: Loop) -> None:
        if loop.sparse is not None:
            raise Uncovered("a loop that leaves zeros out")
        extent = int(loop.extent)
        if loop.kind == "parallel" and self.threads > 1:
            self._parallel(loop)
        elif loop.kind == "vectorized":
            self._vector(loop)
        elif extent == 1 and loop.bound is not None and not self._whole(loop):
            self._guarded(loop)
        elif extent == 1 or self._is_unrolled(loop):
            if loop.bound is not None and not self._whole(loop):
                self._some(loop)
                return
            if loop.var not in self.fixed:
                self._scope += 1
            done = self._transposed(loop) if extent >= ROWS else 0
            for at in range(done, extent):
                self.fixed[loop.var] = at
                self.statements(loop.body)
        elif self._vectorizable(loop):
            self._by_vectors(loop)
        else:
            self._real(loop)

    def _is_unrolled(self, loop: Loop) -> bool:
        """Return whether iterations are written out: where the tree says so, inside of register
        tiles, and where there are few, which costs less than to guess wrong at their end."""
        if loop.kind == "unrolled" or loop.var in self.unrolled:
            return True
        if loop.kind != "serial" or loop.bound is not None or int(loop.extent) > _SHORT:
            return False
        return _size(loop) <= _MOST_WRITTEN_OUT

    def _some(self, loop: Loop) -> None:
        """Iterations that are written out, of which the last ones may not run."""
        assert loop.bound is not None
        self.vectors.flush()
        count, end = self._count(loop), Label()
        for at in range(int(loop.extent)):
            self.function.current.append(("skip", count, end))
            self.fixed[loop.var] = at
            self.statements(loop.body)
            self.vectors.flush()
            self.function.current.append(("add_number", count, -1))
        self.function.current.append(("label", end))

    def _whole(self, loop: Loop) -> bool:
        """Return whether a loop runs over all of its extent."""
        if loop.bound is None:
            return True
        return value_range(*self._linear(loop.bound))[0] >= int(loop.extent)

    def _count(self, loop: Loop) -> int:
        """The number of iterations of a loop with a bound."""
        assert loop.bound is not None
        const, parts = self._linear(loop.bound)
        number, items = self.function.number(), self.function.current
        self._evaluate(number, const, parts, items)
        if value_range(const, parts)[1] > int(loop.extent):
            items.append(("least", number, int(loop.extent)))
        return number

    def _guarded(self, loop: Loop) -> None:
        """A loop of at most one iteration."""
        assert loop.bound is not None
        const, parts = self._linear(loop.bound)
        if value_range(const, parts)[1] < 1:
            return
        self.vectors.flush()
        number, end = self.function.number(), Label()
        self._evaluate(number, const, parts, self.function.current)
        self.function.current.append(("skip", number, end))
        self.fixed[loop.var] = 0
        self.statements(loop.body)
        self.vectors.flush()
        self.function.current.append(("label", end))

    def _real(self, loop: Loop) -> None:
        whole = self._whole(loop)
        counter = None if whole else self._count(loop)
        at_least = True if whole else value_range(*self._linear(loop.bound))[0] >= 1  # type: ignore[arg-type]
        self._repeat(loop.var, int(loop.extent), counter, at_least, None, loop.body)

    def _repeat(
        self,
        var: Var,
        extent: int,
        counter: int | None,
        at_least_one: bool,
        start: int | None,
        body: tuple[Stmt, ...] | None,
        split: tuple[Var, int] | None = None,
        vector: Loop | None = None,
    ) -> None:
        """A loop of `extent` iterations, or of as many as `counter` says, from `start` on."""
        function = self.function
        inside: tuple[Stmt, ...] = (vector,) if vector is not None else body or ()
        made = self._hoist(var, inside)
        self.vectors.flush()
        end, label = Label(), Label()
        if counter is None:
            counter = function.number()
            function.current.append(("set", counter, extent))
        elif not at_least_one:
            function.current.append(("skip", counter, end))
        before = function.block()
        function.current.append(("loop", counter, label))
        variable = self._bind(var, 0, extent - 1)
        behind = Block()
        variable.before, variable.behind, variable.start = before, behind, start
        outer, self.real_loops = self.real_loops, 0
        if vector is not None:
            assert split is not None
            self.split[split[0]] = (variable, split[1])
            self._lanes(vector, 0, split[1])
            del self.split[split[0]]
            self._scope += 1
        else:
            assert body is not None
            self.statements(body)
        self.vectors.flush()
        function.current.append(("inside", behind))
        function.current.append(("end", counter, label))
        function.current.append(("label", end))
        if made:
            self.vectors.leave(made)
            self.hoisted = {x: r for x, r in self.hoisted.items() if r not in made}
        label.aligned = not self.real_loops
        self.real_loops = outer + 1

    def repeat_vectors(self, var: Var, count: int, loop: Loop) -> None:
        self._repeat(var, count, None, True, None, None, (loop.var, LANES), loop)

    # ---- threads ----

    def _parallel(self, loop: Loop) -> None:
        """Directly nested parallel loops as one, in a function of its own."""
        chain = [loop]
        while len(inside := chain[-1].body) == 1 and isinstance(inner := inside[0], Loop):
            if inner.kind != "parallel":
                break
            chain.append(inner)
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

    def _nested(self, chain: list[Loop]) -> None:
        """Parallel loops on one thread."""
        body = chain[-1].body
        for each in reversed(chain):
            body = (Loop(each.var, each.extent, "serial", body),)
        self.statements(body)

    def _task(self, name: str, chain: list[Loop], total: int) -> None:
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
            task._repeat(loops[0].var, total, count, False, first, body)
        else:
            counter, rest = Var("iteration"), total
            lets: list[Stmt] = []
            for each in loops:
                rest //= int(each.extent)
                whole = Linear(((Quotient(Linear(((counter, 1),)), rest), 1),))
                at = Linear(((Remainder(whole, each.extent), 1),))
                lets.append(Let(each.var, at, each.extent - 1))
            task._repeat(counter, total, count, False, first, (*lets, *body))
        task.finish((), (chunk, group, frame))


def _size(stmt: Stmt) -> int:
    """Vectors that a statement stores, once it is unrolled."""
    if not isinstance(stmt, Loop):
        return int(isinstance(stmt, Store))
    extent = int(stmt.extent)
    return (-(-extent // LANES) if stmt.kind == "vectorized" else extent) * sum(
        map(_size, stmt.body)
    )


def _mentions(stmt: Stmt, name: str) -> bool:
    """Return whether a statement reads or writes a buffer."""
    for each in statements((stmt,)):
        if isinstance(each, Store):
            loads = (x for x in walk(each.value) if isinstance(x, Load))
            if each.buffer.name == name or any(x.buffer.name == name for x in loads):
                return True
    return False
