"""Emission of C: a loop tree of one config as C11 that is meant to be read.

Vector and unrolled loops are plain loops, which compilers vectorize and unroll. A parallel loop is
a function of its own, whose iterations the run-time gives to threads; with one thread it is a loop
like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loopwright.codegen.c.places import Places
from loopwright.codegen.c.text import SUM, Text, c_name, comment
from loopwright.codegen.c.values import Values
from loopwright.codegen.c.vectors import VectorLoop
from loopwright.codegen.library.header import C_TYPES
from loopwright.codegen.order import OrderCall, Row
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.expr import ORDERS
from loopwright.schedule.tree.grammar import Allocate, Buffer, Let, Loop, Stmt, Store, Var
from loopwright.schedule.tree.parts import nested

_WIDTH = 99
_INDEX = "ptrdiff_t"


def emit_function(
    name: str,
    arguments: Sequence[Buffer],
    written: Sequence[Buffer],
    body: tuple[Stmt, ...],
    threads: int,
) -> str:
    """The function `static int NAME(arguments)`, behind those of its parallel loops. It returns 0,
    or the status of a failure; `written` are the arguments that it writes."""
    return _Function(name, threads).define(arguments, {b.name for b in written}, body)


class _Function:
    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = name, threads
        self.places = Places()
        self.values = Values(self.places, self._buffer)
        self.buffers: dict[str, str] = {}  # C names
        self.live: dict[str, str] = {}  # types of the variables in scope, by C name
        self.heap: list[str] = []  # what the code at hand has to release
        self.tasks: list[str] = []

    def define(
        self, arguments: Sequence[Buffer], written: set[str], body: tuple[Stmt, ...]
    ) -> str:
        parameters = []
        for b in arguments:
            const = "" if b.name in written else "const "
            kind = f"{const}{C_TYPES[b.dtype]} *"
            parameters.append(f"{kind}restrict {self._declare(b, kind)}")
        code = self.block(body, 1)
        unused = [n for n in map(self.buffers.get, (b.name for b in arguments)) if n]
        unused = [n for n in unused if n not in self.places.used]
        lines = [f"  (void){name};" for name in unused]
        head = f"static int {self.name}({', '.join(parameters)}) {{"
        function = "\n".join([head, *lines, *code, "  return LW_OK;", "}", ""])
        return "\n".join([*self.tasks, function])

    # ---- names ----

    def _buffer(self, b: Buffer) -> str:
        name = self.buffers[b.name]
        self.places.used.add(name)
        return name

    def _declare(self, b: Buffer, kind: str) -> str:
        name = self.buffers[b.name] = self._new(b.name, kind)
        return name

    def _variable(self, var: Var) -> str:
        self.places.fixed.pop(var, None)
        name = self.places.names[var] = self._new(var.name, f"{_INDEX} ")
        return name

    def _new(self, wanted: str, kind: str) -> str:
        """The C name of a variable that comes into scope."""
        name = c_name(wanted, set(self.live))
        self.live[name] = kind
        self.places.used.discard(name)  # another one, whose scope has ended
        return name

    # ---- statements ----

    def block(self, body: tuple[Stmt, ...], depth: int) -> list[str]:
        """The lines of a block; what it declares ends with it."""
        live, heap = dict(self.live), list(self.heap)
        lines = self._rest(body, depth)
        self.live, self.heap = live, heap
        return lines

    def _rest(self, body: tuple[Stmt, ...], depth: int) -> list[str]:
        """The lines of the rest of a block, without what nothing behind it uses."""
        pad = "  " * depth
        lines: list[str] = []
        for n, stmt in enumerate(body):
            if isinstance(stmt, Let):
                low, high = self.places.range(stmt.value)
                if low == high or low >= stmt.limit:
                    self.places.fix(stmt.var, min(low, int(stmt.limit)))
                    continue
                value = self.places.let(stmt)
                self.places.analysis.let(stmt.var, stmt.value, stmt.limit)
                name = self._variable(stmt.var)
                rest = self._rest(body[n + 1 :], depth)
                declared = f"{pad}const {_INDEX} {name} = {value};"
                return [*lines, *([declared] if name in self.places.used else []), *rest]
            if isinstance(stmt, Allocate):
                return lines + self._allocated(stmt.buffer, body[n + 1 :], depth)
            if isinstance(stmt, Loop):
                lines += self._loop(stmt, depth, alone=len(body) == 1)
            elif isinstance(stmt, Store):
                lines += self._stored(stmt, pad)
        return lines

    def _stored(self, store: Store, pad: str) -> list[str]:
        at = self.places.offset(store.buffer, store.index, False)
        place = f"{self._buffer(store.buffer)}[{at}]"
        value = self.values.stored(store.value, store.buffer.dtype)
        return _assigned(pad, place, value)

    def _allocated(self, b: Buffer, rest: tuple[Stmt, ...], depth: int) -> list[str]:
        """A temporary array, and the statements that may use it: a register tile is a local
        array, any other comes from the run-time."""
        pad, kind = "  " * depth, C_TYPES[b.dtype]
        name = self._declare(b, f"{kind} *")
        shape = "".join(f"[{int(n)}]" for n in b.shape)
        note = f" /* {shape} */" if len(b.shape) > 1 else ""
        if b.scope == "register":
            lines = self._rest(rest, depth)
            local = f"{pad}_Alignas(64) {kind} {name}[{int(b.size)}];{note}"
            return [local, *lines] if name in self.places.used else lines
        before = list(self.heap)
        failed = self._failed("LW_OUT_OF_MEMORY")
        self.heap.append(name)
        lines = self._rest(rest, depth)
        self.heap = before
        size = int(b.size) * item_bytes(b.dtype)
        return [
            f"{pad}{kind} *restrict {name} = lw_allocate({size});{note}",
            f"{pad}if (!{name}) {failed}",
            *lines,
            f"{pad}lw_release({name});",
        ]

    def _failed(self, status: str) -> str:
        """The statement that ends the function with a status."""
        released = "".join(f"lw_release({name}); " for name in reversed(self.heap))
        return f"{{ {released}return {status}; }}" if released else f"return {status};"

    def _loop(self, loop: Loop, depth: int, alone: bool) -> list[str]:
        """A loop; one that is `alone` in its block needs none of its own for what it declares."""
        if loop.kind in ORDERS:
            return self._order(OrderCall.of(loop), depth)
        if loop.kind == "parallel" and self.threads > 1:
            return self._parallel(loop, depth, alone)
        pad, bound = "  " * depth, self.places.bound(loop)
        if int(loop.extent) == 1:
            self.places.fix(loop.var, 0)
            if bound is None:
                return self._once(loop.body, depth, alone)
            inner = self.block(loop.body, depth + 1)
            return [f"{pad}if ({bound} > 0) {{", *inner, f"{pad}}}"] if inner else []
        if loop.kind == "vectorized" and (found := VectorLoop(self.values, loop).assignment()):
            return _assigned(pad, *found)
        live = dict(self.live)
        self.places.analysis.loop(loop.var, loop.extent)
        var = self._variable(loop.var)
        begin, end = f"{_INDEX} {var} = 0", str(int(loop.extent))
        if bound is not None:
            last = self._new(f"{var}_end", f"{_INDEX} ")
            begin, end = f"{begin}, {last} = lw_least({bound}, {end})", last
        body = self.block(loop.body, depth + 1)
        self.live = live
        if not body:
            return []
        note = " /* a vector */" if loop.kind == "vectorized" else ""
        unrolled = loop.kind == "unrolled" and _is_straight(body)
        before = [f"{pad}LW_UNROLL"] if unrolled else []
        return [*before, f"{pad}for ({begin}; {var} < {end}; {var}++) {{{note}", *body, f"{pad}}}"]

    def _order(self, call: OrderCall, depth: int) -> list[str]:
        """A row in order, by the run-time."""

        def row(r: Row) -> str:
            at = self.places.offset(r.buffer, r.index, False)
            return f"&{self._buffer(r.buffer)}[{at}], {int(r.step)}"

        pad, live = "  " * depth, dict(self.live)
        items = self._declare(call.items, "uint64_t *")
        failed = self._failed("LW_OUT_OF_MEMORY")
        self.live = live
        end = f"{call.kind}, {int(call.greatest)}, {items});"
        return [
            f"{pad}{{ /* the {'greatest' if call.greatest else 'least'} first */",
            f"{pad}  uint64_t *{items} = lw_allocate({8 * int(call.items.size)});",
            f"{pad}  if (!{items}) {failed}",
            f"{pad}  lw_order({row(call.places)}, {int(call.wanted)},",
            f"{pad}           {row(call.elements)}, {int(call.extent)}, {end}",
            f"{pad}  lw_release({items});",
            f"{pad}}}",
        ]

    def _once(self, body: tuple[Stmt, ...], depth: int, alone: bool) -> list[str]:
        """The body of a loop of one iteration."""
        if alone or not any(isinstance(stmt, (Let, Allocate)) for stmt in body):
            return self.block(body, depth)
        pad = "  " * depth
        return [f"{pad}{{", *self.block(body, depth + 1), f"{pad}}}"]

    def _parallel(self, loop: Loop, depth: int, alone: bool) -> list[str]:
        """Directly nested parallel loops as one, in a function of its own."""
        chain = nested(loop)
        total = math.prod(int(each.extent) for each in chain)
        if total == 1:
            for each in chain:
                self.places.fix(each.var, 0)
            return self._once(chain[-1].body, depth, alone)
        pad, around, used = "  " * depth, dict(self.live), self.places.used
        heap, self.heap, self.places.used = self.heap, [], set()
        counter, lines, rest = self._new("iteration", f"{_INDEX} "), [], total
        counters = []
        for each in chain:
            size = int(each.extent)
            rest //= size
            if size == 1:
                self.places.fix(each.var, 0)
                continue
            self.places.analysis.loop(each.var, size)
            value = counter if rest == 1 else f"{counter} / {rest}"
            value = value if rest * size == total else f"{value} % {size}"
            counters.append((self._variable(each.var), value))
        body = self.block(chain[-1].body, 2)
        for name, value in counters:
            if name in self.places.used:
                lines.append(f"    const {_INDEX} {name} = {value};")
        captured = [name for name in around if name in self.places.used]
        task = f"{self.name}_part{len(self.tasks) + 1}"
        loops = comment(", ".join(each.var.name for each in chain))
        kept = [(around[name], name) for name in captured]
        self.tasks.append(_task(task, kept, counter, total, lines + body, loops))
        self.live, self.heap = around, heap
        self.places.used = used | set(captured)
        given = ", ".join(captured)
        failed = self._failed("status")
        lines = [
            f"struct {task} with = {{{given}}};",
            f"const int status = lw_parallel({task}, &with, {total});",
            f"if (status) {failed}",
        ]
        if alone:
            return [f"{pad}{line}" for line in lines]
        return [f"{pad}{{", *(f"{pad}  {line}" for line in lines), f"{pad}}}"]


def _assigned(pad: str, place: str, value: Text) -> list[str]:
    sign, text = "=", str(value)
    if value.level == SUM and text.startswith(f"{place} + "):
        rest = text.removeprefix(f"{place} + ")
        if not _adds(rest):  # the rest of a sum of three would be added up first
            sign, text = "+=", rest
    line = f"{pad}{place} {sign} {text};"
    return [line] if len(line) <= _WIDTH else [f"{pad}{place} {sign}", f"{pad}    {text};"]


def _adds(text: str) -> bool:
    """Return whether there is a sum or difference outside of all brackets."""
    depth = 0
    for n, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if depth == 0 and text[n : n + 3] in (" + ", " - "):
            return True
    return False


def _is_straight(body: list[str]) -> bool:
    """Return whether all loops are written out. Lanes of a vector must stay a loop."""
    lines = [line.lstrip() for line in body]
    return lines.count("LW_UNROLL") == sum(line.startswith("for (") for line in lines)


def _task(
    name: str,
    captured: list[tuple[str, str]],
    counter: str,
    total: int,
    body: list[str],
    loops: str,
) -> str:
    """The function that runs a chunk of a parallel loop's iterations."""
    members = "".join(f"  {kind}{member};\n" for kind, member in captured)
    locals_ = "".join(
        f"  {kind}{'restrict ' if '*' in kind else 'const '}{member} = with->{member};\n"
        for kind, member in captured
    )
    code = "\n".join(body)
    return f"""struct {name} {{
{members}}};

/* A chunk of the {total} iterations over {loops}. */
static int {name}(int chunk, lw_group *group, void *data) {{
  const struct {name} *with = data;
{locals_}  const {_INDEX} end = lw_first({total}, chunk + 1, group);
  for ({_INDEX} {counter} = lw_first({total}, chunk, group); {counter} < end; {counter}++) {{
{code}
  }}
  return LW_OK;
}}
"""
