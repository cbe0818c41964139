"""Emission: the loop tree of one config as machine code.

Loops become loops, but those that are unrolled, or that count inside of a register tile, are
written out. A place in memory is a pointer and a displacement: parts of a subscript that are known
go to the displacement, and for each set of loops that a subscript moves with there is one pointer,
which goes up with the innermost of them (strength reduction).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from loopwright.codegen.direct import encode as x86
from loopwright.codegen.direct.blocks import Vectors
from loopwright.codegen.direct.function import (
    FRAME,
    Block,
    Code,
    Crowded,
    Function,
    Label,
    Place,
    Uncovered,
)
from loopwright.codegen.direct.homes import Homes, homes_of
from loopwright.codegen.direct.values import ROWS, Values
from loopwright.dsl.expr import Binary, Const, Expr, Unary, children, walk
from loopwright.schedule.tree.grammar import (
    Allocate,
    Buffer,
    Let,
    Linear,
    Load,
    Loop,
    Position,
    Prefetch,
    Quotient,
    Remainder,
    Stmt,
    Store,
    Term,
    Tree,
    Var,
    flat,
    statements,
    variables,
)

_ITEM = 4  # bytes of an element
_MOST = 1 << 30  # of a displacement or a step
_MOST_STATEMENTS = 6000  # of a function, once it is unrolled
_LANES = 8
_SHORT, _MOST_WRITTEN_OUT = 8, 96  # iterations of a short loop, and the vectors of all of them
_HOMES = (14, 11, 8, 0)
"""Registers that tiles may have: as many as leave enough for what else there is."""
_CHEAP = frozenset(("add", "sub", "mul", "neg", "abs", "min", "max"))
_MOST_HOISTED = 9  # registers that stay, those of tiles included
_LEVEL = 2  # of a prefetch: the second cache and those behind it


def emit_tree(tree: Tree, threads: int) -> Code:
    """Code of a tree of one config. Raises `Uncovered`."""
    for homes in _HOMES:
        try:
            return _emitted(tree, threads, homes)
        except Crowded:
            continue
        except OverflowError:
            raise Uncovered("a number too large for an instruction") from None
    raise AssertionError


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


@dataclass(eq=False)
class _Variable:
    """A loop's counter, a `Let`, or a quotient or remainder of those.

    Attributes
    ----------
    order: where it is bound; those of a later one may use an earlier one.
    head: block behind the place where it is bound.
    before, behind: blocks before a loop, and at its end; None of others.
    value: its number, once one is wanted of a loop.
    start: number at which a loop begins; None for 0.
    """

    order: tuple[int, int]
    low: int
    high: int
    head: Block
    before: Block | None = None
    behind: Block | None = None
    value: int | None = None
    start: int | None = None


_Parts = tuple[tuple[_Variable, int], ...]


@dataclass(eq=False)
class _Access:
    """A subscript in bytes, split once for all copies of a statement."""

    node: object
    terms: list[tuple[Term, int]]
    const: int
    scope: int = -1  # for which the following hold
    parts: _Parts = ()
    counted: list[tuple[Var, int]] = field(default_factory=list)
    step: int = 0
    pointer: int | None = None


class Emitter:
    """The code of one function."""

    def __init__(self, name: str, threads: int, code: Code) -> None:
        self.name, self.threads, self.code = name, threads, code
        self.around: tuple[Emitter, int] | None = None  # of a task: who starts it, its frame
        self.function = Function()
        self.entry = self.function.block()
        self._allocated = self.function.block()
        self._first = self.function.block()  # behind what is allocated, before all loops
        self.vectors = Vectors(self.function)
        self.values = Values(self)
        self.fixed: dict[Var, int] = {}
        self.known: dict[Var, _Variable] = {}
        self.lane: tuple[Var, int] | None = None  # of the vector loop at hand, and its lanes
        self.split: dict[Var, tuple[_Variable, int]] = {}
        self.homes: dict[str, Homes] = {}
        self.hoisted: dict[int, int] = {}  # registers, by the identity of an expression
        self.unrolled: set[Var] = set()
        self.on_stack: dict[str, int] = {}
        self._stacked: dict[str, int] = {}  # bytes
        self._parts = 0  # tasks
        self.slots: dict[str, int] = {}  # of the pointers to buffers
        self._bases: dict[str, int] = {}
        self._pointers: dict[object, int] = {}
        self._divided: dict[object, _Variable] = {}
        self._accesses: dict[int, _Access] = {}
        self._scope = 0  # counts what is bound
        self._widths: dict[int, tuple[Loop, int]] = {}
        self._orders = self._statements = 0
        self.heap: list[tuple[str, int]] = []
        self.out = Label()
        self.real_loops = 0
        self.status = self.function.reserve(8)

    def slot(self, buffer: str) -> int:
        """Place in the frame of the pointer to a buffer."""
        if buffer not in self.slots:
            self.slots[buffer] = self.function.reserve(8)
        return self.slots[buffer]

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
        size = int(buffer.size) * _ITEM
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
        low, high = _range(const, parts)
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

    def _bind(self, var: Var, low: int, high: int) -> _Variable:
        self._orders += 1
        self._scope += 1
        self.fixed.pop(var, None)
        made = _Variable((self._orders, 0), low, high, self.function.block())
        self.known[var] = made
        return made

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
        return _range(*self._linear(loop.bound))[0] >= int(loop.extent)

    def _count(self, loop: Loop) -> int:
        """The number of iterations of a loop with a bound."""
        assert loop.bound is not None
        const, parts = self._linear(loop.bound)
        number, items = self.function.number(), self.function.current
        self._evaluate(number, const, parts, items)
        if _range(const, parts)[1] > int(loop.extent):
            items.append(("least", number, int(loop.extent)))
        return number

    def _guarded(self, loop: Loop) -> None:
        """A loop of at most one iteration."""
        assert loop.bound is not None
        const, parts = self._linear(loop.bound)
        if _range(const, parts)[1] < 1:
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
        at_least = True if whole else _range(*self._linear(loop.bound))[0] >= 1  # type: ignore[arg-type]
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
        made = self._hoist(var, vector.body if body is None and vector else body or ())
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

    # ---- vectors ----

    def _vector(self, loop: Loop) -> None:
        """A loop over the lanes of one store."""
        lanes, (store,) = int(loop.extent), loop.body
        assert isinstance(store, Store), store
        most = self._most_lanes(loop, store)
        if most > 1 and lanes == most:
            self._lanes(loop, 0, lanes)
            return
        at = 0
        while at < lanes:
            width = most
            while width > lanes - at:
                width //= 2
            self._lanes(loop, at, width)
            at += width

    def _lanes(self, loop: Loop, at: int, width: int) -> None:
        """Some lanes of a vector loop, at once."""
        (store,) = loop.body
        if loop.var not in self.fixed:
            self._scope += 1
        self.fixed[loop.var] = at
        lane = (loop.var, width) if width > 1 else None
        self.lane = lane
        self.store(store)  # type: ignore[arg-type]
        self.lane = None

    def _most_lanes(self, loop: Loop, store: Store) -> int:
        """Lanes that can be worked on at once: one, where a subscript divides their number."""
        kept = self._widths.get(id(loop))
        if kept is not None:
            return kept[1]
        places = [(store.buffer, store.index)]
        loads = [x for x in walk(store.value) if isinstance(x, Load)]
        places += [(x.buffer, x.index) for x in loads]
        width = _LANES
        at = [x.value for x in walk(store.value) if isinstance(x, Position)]
        for inner in (t for x in at for t, _ in x.terms if not isinstance(t, Var)):
            if loop.var in set(variables(inner.value)):
                return 1
        self.lane, self.fixed[loop.var] = (loop.var, int(loop.extent)), 0
        outside = [x for x in loads if x.clamped and not self.inside(x)]
        self.lane = None
        if any(loop.var in set(variables(s)) for x in outside for s in x.index):
            return 1
        for buffer, index in places:
            for subscript in index:
                for term, _ in subscript.terms:
                    if not isinstance(term, Var) and loop.var in set(variables(term.value)):
                        return 1
            if buffer.name in self.homes:
                moves = any(loop.var in set(variables(s)) for s in index)
                if moves or buffer is store.buffer:
                    width = min(width, self.homes[buffer.name].width)
        if not any(loop.var in set(variables(s)) for s in store.index):
            width = 1
        if not any(x.clamped for x in loads):
            self._widths[id(loop)] = (loop, width)
        return width

    def _transposed(self, loop: Loop) -> int:
        """Iterations of a loop over neighbours in memory around a store whose lanes stand apart:
        some at a time, transposed in registers. How many there were."""
        inner: list[Loop] = []
        body = loop.body
        while len(body) == 1 and isinstance(body[0], Loop):
            inner.append(body[0])
            body = body[0].body
        store = body[0] if len(body) == 1 else None
        if not isinstance(store, Store) or not self._apart(loop, inner, store):
            return 0
        whole = int(loop.extent) // ROWS * ROWS
        for first in range(0, whole, ROWS):
            for counts in itertools.product(*(range(int(each.extent)) for each in inner[:-1])):
                for each, count in zip(inner, counts):
                    self.fixed[each.var] = count
                self._rows(loop, first, inner[-1], store)
        return whole

    def _apart(self, loop: Loop, inner: list[Loop], store: Store) -> bool:
        """Return whether a store is one whose rows can be transposed."""
        if not inner or inner[-1].kind != "vectorized" or int(inner[-1].extent) not in (4, 8):
            return False
        if any(each.kind != "unrolled" or each.bound is not None for each in inner[:-1]):
            return False
        loads = [x for x in walk(store.value) if isinstance(x, Load)]
        if store.buffer.name in {x.buffer.name for x in loads} | self.homes.keys():
            return False
        if any(x.clamped for x in loads):
            return False
        terms = self._access(store).terms
        if any(not isinstance(term, Var) for term, _ in terms):
            return False
        steps = {term: step for term, step in terms if isinstance(term, Var)}
        lane = inner[-1]
        apart = steps.get(lane.var, 0) > _ITEM and steps.get(loop.var) == _ITEM
        return apart and self._most_lanes(lane, store) >= int(lane.extent)

    def _rows(self, loop: Loop, first: int, lane: Loop, store: Store) -> None:
        """Some rows, each a vector, stored as columns."""
        width = int(lane.extent)
        for var in (loop.var, lane.var):
            if var not in self.fixed:
                self._scope += 1
            self.fixed[var] = 0
        self.lane = (lane.var, width)
        rows = []
        for row in range(ROWS):
            self._counted()
            self.fixed[loop.var] = first + row
            rows.append(self.values.value(store.value, width))
        self.fixed[loop.var] = first
        (base, offset), step = self.place(store)
        self.lane = None
        for number, column in enumerate(self.values.columns(rows, width)):
            for half in range(width // ROWS):
                part = self.values.part(column, 4 * half)
                at = offset + (number + 4 * half) * step
                self.vectors.store(store.buffer.name, (base, at), ROWS, part)

    def _invariants(self, var: Var, body: tuple[Stmt, ...]) -> list[Expr]:
        """Quotients, roots and functions in a loop that are the same in all of its iterations."""
        inside = list(statements(body))
        bound = {var} | {s.var for s in inside if isinstance(s, (Loop, Let))}
        stores = [s for s in inside if isinstance(s, Store)]
        written = {s.buffer.name for s in stores}
        found: dict[int, Expr] = {}

        def same(x: Expr) -> bool:
            for part in walk(x):
                if isinstance(part, Load):
                    places = part.index
                    if part.buffer.name in written or part.clamped:
                        return False
                elif isinstance(part, Position):
                    places = (part.value,)
                elif not isinstance(part, (Const, Unary, Binary)):
                    return False
                else:
                    continue
                if any(bound & set(variables(place)) for place in places):
                    return False
            return True

        def look(x: Expr) -> None:
            if isinstance(x, (Unary, Binary)) and x.op not in _CHEAP and x.dtype == "float32":
                if same(x):
                    found[id(x)] = x
                    return
            for child in children(x):
                look(child)

        for store in stores:
            look(store.value)
        return list(found.values())

    def _hoist(self, var: Var, body: tuple[Stmt, ...]) -> list[int]:
        """Work out before a loop what is the same in it, as far as there are registers."""
        made: list[int] = []
        most = min(_MOST_HOISTED, self.code.homes)
        for x in self._invariants(var, body):
            if id(x) in self.hoisted or len(self.vectors.homes) >= most:
                continue
            register = self.vectors.home()
            assert register is not None
            self.values.into(x, _LANES, register)
            self.hoisted[id(x)] = register
            made.append(register)
        return made

    def _vectorizable(self, loop: Loop) -> bool:
        """Return whether iterations of a plain loop are independent and go along memory."""
        if len(loop.body) != 1 or not isinstance(store := loop.body[0], Store):
            return False
        if loop.bound is not None or int(loop.extent) < _LANES:
            return False
        loads = [x for x in walk(store.value) if isinstance(x, Load)]
        if any(x.buffer.name == store.buffer.name or x.clamped for x in loads):
            return False
        places: list[Load | Store] = [store, *loads]
        at = [x.value for x in walk(store.value) if isinstance(x, Position)]
        for inner in (t for x in at for t, _ in x.terms if not isinstance(t, Var)):
            if loop.var in set(variables(inner.value)):
                return False
        for place in places:
            step = 0
            for term, c in self._access(place).terms:
                if term is loop.var:
                    step = c
                elif not isinstance(term, Var) and loop.var in set(variables(term.value)):
                    return False
            if step not in ((_ITEM,) if place is store else (0, _ITEM)):
                return False
            if place.buffer.name in self.homes:
                return False
        return True

    def _by_vectors(self, loop: Loop) -> None:
        """A plain loop, by vectors, and what is left of it by shorter ones."""
        extent = int(loop.extent)
        whole = extent // _LANES
        if whole == 1:
            self._lanes(loop, 0, _LANES)
        else:
            outer = Var(f"{loop.var.name}.vector")
            self._repeat(outer, whole, None, True, None, None, (loop.var, _LANES), loop)
        at = whole * _LANES
        while at < extent:
            width = _LANES // 2
            while width > extent - at:
                width //= 2
            self._lanes(loop, at, width)
            at += width

    def _counted(self) -> None:
        self._statements += 1
        if self._statements > _MOST_STATEMENTS:
            raise Uncovered(f"more than {_MOST_STATEMENTS} statements once it is unrolled")

    def store(self, store: Store) -> None:
        self._counted()
        if store.buffer.dtype != "float32":
            raise Uncovered(f"elements of {store.buffer.dtype}")
        lanes = 1 if self.lane is None else self.lane[1]
        homes = self.homes.get(store.buffer.name)
        if homes is not None:
            _, offset, _ = self.where(store)
            register = homes.register(offset // _ITEM, lanes)
            self.values.into(store.value, lanes, register)
            return
        place, step = self.place(store)
        value = self.values.value(store.value, lanes)
        name = store.buffer.name
        if lanes == 1 or step == _ITEM:
            self.vectors.store(name, place, lanes, value)
            return
        base, offset = place
        for lane in range(lanes):
            element = self.values.part(value, lane)
            self.vectors.store(name, (base, offset + lane * step), 1, element)

    # ---- places ----

    def inside(self, x: Load) -> bool:
        """Return whether no subscript of a load leaves its buffer."""
        for subscript, extent in zip(x.index, x.buffer.shape, strict=True):
            low, high = _range(*self._linear(subscript))
            if self.lane is not None:
                steps = sum(int(c) for t, c in subscript.terms if t is self.lane[0])
                reach = steps * (self.lane[1] - 1)
                low, high = low + min(reach, 0), high + max(reach, 0)
            if low < 0 or high >= int(extent):
                return False
        return True

    def _access(self, node: Load | Store | Prefetch) -> _Access:
        found = self._accesses.get(id(node))
        if found is None:
            place = flat(node.buffer, node.index)
            terms = [(t, int(c) * _ITEM) for t, c in place.terms if int(c)]
            found = self._accesses[id(node)] = _Access(node, terms, int(place.const) * _ITEM)
        return found

    def where(self, node: Load | Store | Prefetch) -> tuple[_Parts, int, int]:
        """Variable parts of a place, bytes, and the step from lane to lane in bytes."""
        access = self._access(node)
        if access.scope == self._scope:
            offset, fixed = access.const, self.fixed
            for var, factor in access.counted:
                offset += fixed[var] * factor
            return access.parts, offset, access.step
        return self._split(access)

    def _split(self, access: _Access) -> tuple[_Parts, int, int]:
        """`where` for the first time in a scope."""
        offset, step, straight = access.const, 0, True
        parts: list[tuple[_Variable, int]] = []
        lane = None if self.lane is None else self.lane[0]
        counted: list[tuple[Var, int]] = []
        for term, factor in access.terms:
            if term is lane:
                step = factor
            if not isinstance(term, Var):
                const, inner = self._quotient(term)
                offset += const * factor
                parts += [(v, c * factor) for v, c in inner]
                straight = False
            elif term in self.fixed:
                offset += self.fixed[term] * factor
                counted.append((term, factor))
                if term in self.split:
                    outer, width = self.split[term]
                    parts.append((outer, factor * width))
            else:
                parts.append((self.known[term], factor))
        merged = _merged(parts)
        if straight:
            access.scope, access.parts, access.pointer = self._scope, merged, None
            access.counted, access.step = counted, step
        return merged, offset, step

    def place(self, node: Load | Store | Prefetch) -> tuple[Place, int]:
        """Pointer and displacement, and the step from lane to lane in bytes."""
        access = self._access(node)
        if access.scope == self._scope and access.pointer is not None:
            offset, fixed = access.const, self.fixed
            for var, factor in access.counted:
                offset += fixed[var] * factor
            return (access.pointer, offset), access.step
        parts, offset, step = self._split(access)
        name = node.buffer.name
        if isinstance(node, Load) and node.clamped and not self.inside(node):
            return self._nearest(node), step
        if not parts and name in self.on_stack:
            return (FRAME, self.on_stack[name] + offset), step
        if not -_MOST < offset < _MOST:
            raise Uncovered("a place too far from its pointer")
        pointer = self._pointer(name, parts)
        if access.scope == self._scope and not (isinstance(node, Load) and node.clamped):
            access.pointer = pointer
        return (pointer, offset), step

    def _nearest(self, x: Load) -> Place:
        """The place of a load whose subscripts move to the nearest legal ones."""
        items, pointer = self.function.current, self.function.number()
        place = self.on_stack.get(x.buffer.name)
        items.append(("copy", pointer, self._base(x.buffer.name)))
        step, offset = _ITEM, 0
        assert place is None or place >= 0
        for subscript, size in zip(reversed(x.index), reversed(x.buffer.shape), strict=True):
            extent = int(size)
            const, parts = self._linear(subscript)
            low, high = _range(const, parts)
            if not parts:
                offset += min(max(const, 0), extent - 1) * step
            else:
                number = self.function.number()
                self._evaluate(number, const, parts, items)
                if low < 0:
                    items.append(("greatest", number, 0))
                if high >= extent:
                    items.append(("least", number, extent - 1))
                self._scaled(number, number, step, items)
                items.append(("add", pointer, number))
            step *= extent
        return (pointer, offset)

    def position(self, x: Linear) -> tuple[int, int | None, int]:
        """A subscript as a constant, a number that is added, and the step from lane to lane."""
        const, parts = self._linear(x)
        step = 0
        if self.lane is not None:
            step = sum(int(c) for t, c in x.terms if t is self.lane[0])
        if not parts:
            return const, None, step
        number = self.function.number()
        self._evaluate(number, 0, parts, self.function.current)
        return const, number, step

    def _pointer(self, buffer: str, parts: _Parts) -> int:
        if not parts:
            return self._base(buffer)
        key = (buffer, self.on_stack.get(buffer), parts)
        found = self._pointers.get(key)
        if found is not None:
            return found
        before = self._pointer(buffer, parts[:-1])
        variable, step = parts[-1]
        number = self._pointers[key] = self.function.number()
        if not -_MOST < step < _MOST:
            raise Uncovered("a step too long for an instruction")
        if variable.behind is not None:
            assert variable.before is not None
            items = variable.before.items
            if variable.start is None:
                items.append(("copy", number, before))
            else:
                items.append(("scale", number, variable.start, step))
                items.append(("add", number, before))
            variable.behind.items.append(("add_number", number, step))
        else:
            assert variable.value is not None
            items = variable.head.items
            items.append(("scale", number, variable.value, step))
            items.append(("add", number, before))
        return number

    def _base(self, buffer: str) -> int:
        if buffer not in self._bases:
            number = self._bases[buffer] = self.function.number()
            top = self._first.items
            if buffer in self.on_stack:
                top.append(("lea", number, (FRAME, self.on_stack[buffer])))
            elif buffer in self.slots:
                top.append(("load", number, (FRAME, self.slots[buffer])))
            else:
                assert self.around is not None
                other, frame = self.around
                top.append(("load", number, (frame, other.slots[buffer])))
        return self._bases[buffer]

    # ---- subscripts ----

    def _linear(self, x: Linear) -> tuple[int, _Parts]:
        """A subscript as a number and variable parts."""
        const, parts = int(x.const), []
        for term, coefficient in x.terms:
            factor = int(coefficient)
            if isinstance(term, Var):
                if term in self.fixed:
                    const += factor * self.fixed[term]
                    if term in self.split:
                        outer, width = self.split[term]
                        parts.append((outer, factor * width))
                else:
                    parts.append((self.known[term], factor))
            else:
                more, inner = self._quotient(term)
                const += more * factor
                parts += [(v, c * factor) for v, c in inner]
        return const, _merged(parts)

    def _quotient(self, term: Term) -> tuple[int, _Parts]:
        """A quotient or remainder as a number and variable parts."""
        assert not isinstance(term, Var)
        const, parts = self._linear(term.value)
        divisor, quotient = int(term.divisor), isinstance(term, Quotient)
        low, high = _range(const, parts)
        if low // divisor == high // divisor:
            whole = low // divisor
            return (whole, ()) if quotient else (const - whole * divisor, parts)
        divides = tuple((v, c) for v, c in parts if c % divisor == 0)
        rest = tuple((v, c) for v, c in parts if c % divisor)
        if divides:  # ⌊(d·x + y) / d⌋ = x + ⌊y / d⌋
            inside = self._quotient_of(const, rest, divisor, quotient)
            if not quotient:
                return inside
            outside = tuple((v, c // divisor) for v, c in divides)
            return inside[0], _merged([*outside, *inside[1]])
        return self._quotient_of(const, parts, divisor, quotient)

    def _quotient_of(
        self, const: int, parts: _Parts, divisor: int, quotient: bool
    ) -> tuple[int, _Parts]:
        low, high = _range(const, parts)
        if low // divisor == high // divisor:
            whole = low // divisor
            return (whole, ()) if quotient else (const - whole * divisor, parts)
        key = (const, parts, divisor, quotient)
        found = self._divided.get(key)
        if found is None:
            deepest = max((v for v, _ in parts), key=lambda v: v.order)
            self._orders += 1
            order = (deepest.order[0], self._orders)
            ends = (low // divisor, high // divisor) if quotient else (0, divisor - 1)
            found = _Variable(order, *ends, deepest.head)
            items = deepest.head.items
            number = found.value = self.function.number()
            self._evaluate(number, const, parts, items)
            if divisor & divisor - 1 == 0:
                if quotient:
                    items.append(("shift", number, divisor.bit_length() - 1))
                else:
                    items.append(("mask", number, divisor - 1))
            elif low < 0:
                raise Uncovered("a division of a negative subscript")
            else:
                items.append(("divide" if quotient else "remainder", number, number, divisor))
            self._divided[key] = found
        return 0, ((found, 1),)

    def number_of(self, variable: _Variable) -> int:
        """The number of a variable; of a loop it counts up from here on."""
        if variable.value is None:
            assert variable.before is not None
            assert variable.behind is not None
            number = variable.value = self.function.number()
            if variable.start is None:
                variable.before.items.append(("set", number, 0))
            else:
                variable.before.items.append(("copy", number, variable.start))
            variable.behind.items.append(("add_number", number, 1))
        return variable.value

    def _evaluate(self, number: int, const: int, parts: _Parts, items: list) -> None:  # type: ignore[type-arg]
        """`number = const + Σ c · variable`."""
        if not parts:
            items.append(("set", number, const))
            return
        (first, factor), *rest = parts
        self._scaled(number, self.number_of(first), factor, items)
        for variable, factor in rest:
            source = self.number_of(variable)
            if factor != 1:
                scaled = self.function.number()
                self._scaled(scaled, source, factor, items)
                source = scaled
            items.append(("add", number, source))
        if const:
            items.append(("add_number", number, const))

    def _scaled(self, number: int, source: int, factor: int, items: list) -> None:  # type: ignore[type-arg]
        if factor == 1:
            items.append(("copy", number, source))
        elif -_MOST < factor < _MOST:
            items.append(("scale", number, source, factor))
        else:
            raise Uncovered("a factor too large for an instruction")

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
    return (-(-extent // _LANES) if stmt.kind == "vectorized" else extent) * sum(
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


def _merged(parts: Sequence[tuple[_Variable, int]]) -> _Parts:
    """Parts in the order in which their variables are bound."""
    if len(parts) > 1:
        total: dict[_Variable, int] = {}
        for variable, factor in parts:
            total[variable] = total.get(variable, 0) + factor
        parts = sorted(((v, c) for v, c in total.items() if c), key=lambda p: p[0].order)
    return tuple(parts)


def _range(const: int, parts: _Parts) -> tuple[int, int]:
    """The least and the greatest value."""
    low = high = const
    for variable, factor in parts:
        ends = variable.low * factor, variable.high * factor
        low, high = low + min(ends), high + max(ends)
    return low, high
