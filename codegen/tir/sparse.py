"""Loops that leave out iterations in which a load is 0: a bit for each other one.

From `for k < 64, X[k] ≠ 0: …` come bits, one for each X[k] ≠ 0, eight at a time from the signs of
a vector, and `while bits: k = trailing zeros of bits; clear that bit; …`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from loopwright.codegen.library.linker import architecture
from loopwright.codegen.tir.indices import ZERO, Indices, KnownValue, expression, number
from loopwright.codegen.tir.values import storage_type
from loopwright.schedule.target import Target
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.parts import map_values

_LANES = 8  # of the vectors whose signs an instruction of AVX gathers
_MOST = 64  # bits of a register
_AVX = 32  # bytes of its vectors


class BitLoops:
    """Loops over set bits of a function."""

    def __init__(self, at: Indices, buffers: dict[str, Any], target: Target) -> None:
        self.at, self.buffers = at, buffers
        self.able = architecture(target.triple) == "x86_64" and target.vector_bytes >= _AVX
        self.made: dict[g.Var, Any] = {}  # bits that the loop around has made

    def has(self, loop: g.Loop) -> bool:
        """Return whether a loop runs over set bits."""
        if loop.sparse is None or not self.able:
            return False
        extent, load = int(loop.extent), loop.sparse.load
        whole = loop.bound is None and extent % _LANES == 0 and extent <= _MOST
        return whole and not load.clamped and load.dtype == "float32"

    def ahead(
        self, loop: g.Loop, var: Any, let: Callable[[g.Let], list[Any]]
    ) -> tuple[list[Any], list[Any]]:
        """Prepare the bits of a loop that has one of these inside. Returns what makes the bits of
        its first iteration, and what each iteration begins with: the bits of the next one. A
        processor that knows early how often a loop runs need not guess it."""
        inner = [s for s in loop.body if isinstance(s, g.Loop) and self.has(s)]
        if len(inner) != 1:
            return [], []
        bits, following = (_bit_set(f"{var.name}.{name}") for name in ("bits", "next"))
        last, made = int(loop.extent) - 1, []
        for known in (ZERO, KnownValue(tirx.Min(var + 1, number(last)), 1, last)):
            self.at.known[loop.var] = known
            lets = [stmt for s in loop.body if isinstance(s, g.Let) for stmt in let(s)]
            made.append([*lets, self._bits(inner[0], following)])
        self.made[inner[0].var] = bits
        copy = tirx.BufferStore(bits, tirx.BufferLoad(following, [number(0)]), [number(0)])
        return [_allocated(bits), _allocated(following), *made[0]], [copy, *made[1]]

    def loop(
        self, loop: g.Loop, var: Any, statements: Callable[[tuple[g.Stmt, ...]], list[Any]]
    ) -> list[Any]:
        """The loop, `var` being its counter."""
        stmts = []
        bits = self.made.pop(loop.var, None)
        if bits is None:
            bits = _bit_set(f"{var.name}.bits")
            stmts += [_allocated(bits), self._bits(loop, bits)]
        bases, body = from_bases(loop)
        for part, whole, base in bases:
            at = tirx.BufferLoad(self.buffers[whole.name], [expression(self.at.linear(base))])
            seen = tirx.decl_buffer((int(part.size),), storage_type(part.dtype), part.name)
            stmts.append(tirx.DeclBuffer(seen, data=tirx.address_of(at)))
            self.buffers[part.name] = seen
        self.at.known[loop.var] = KnownValue(var, 0, int(loop.extent) - 1)
        left = tirx.BufferLoad(bits, [number(0)])
        first = tirx.call_llvm_pure_intrin("int64", "llvm.cttz.i64", left, tirx.IntImm("bool", 1))
        step = [
            tirx.Bind(var, tirx.Cast("int32", first)),
            tirx.BufferStore(bits, tirx.bitwise_and(left, left - _wide(1)), [number(0)]),
            *statements(body),
        ]
        return [*stmts, tirx.While(left != _wide(0), tirx.SeqStmt(step))]

    def _bits(self, loop: g.Loop, bits: Any) -> Any:
        """Stores the bits of a loop's iterations."""
        assert loop.sparse is not None
        begins = []  # where the loads of the first one lie, for each value of `over`
        for values in itertools.product(*(range(int(count)) for _, count in loop.sparse.over)):
            for (var, _), value in zip(loop.sparse.over, values, strict=True):
                self.at.known[var] = KnownValue(value, value, value, value)
            self.at.known[loop.var] = ZERO
            load = loop.sparse.load
            begins.append(expression(self.at.offset(load.buffer, load.index)))
        buffer, count = self.buffers[loop.sparse.load.buffer.name], int(loop.extent)
        parts = (_signs(buffer, begins, part) for part in reversed(range(0, count, _LANES)))

        def joined(high: Any, low: Any) -> Any:
            return tirx.bitwise_or(tirx.shift_left(high, _wide(_LANES)), low)

        # One after the other: what could be done at once, LLVM does in vectors, which is slower.
        return tirx.BufferStore(bits, functools.reduce(joined, parts), [number(0)])


def from_bases(
    loop: g.Loop,
) -> tuple[list[tuple[g.Buffer, g.Buffer, g.Linear]], tuple[g.Stmt, ...]]:
    """Rebase what the body of a loop reads on where that begins, and the body likewise. LLVM would
    add, or worse, that to the place within for each vector.

    `X[f + k] * W[g + 16 * k + l]  ↦  X' = X[f …], W' = W[g …]; X'[k] * W'[16 * k + l]`
    """
    inside = {loop.var, *(s.var for s in g.statements(loop.body) if isinstance(s, g.Loop))}
    bases: dict[tuple[str, str], tuple[g.Buffer, g.Buffer, g.Linear]] = {}

    def leaf(x: Any) -> Any:
        if not isinstance(x, g.Load) or x.clamped or x.buffer.scope == "register":
            return x
        place = g.flat(x.buffer, x.index)
        moving = {t for t, _ in place.terms if inside & set(_variables(t))}
        if not any(loop.var in set(_variables(t)) for t in moving):
            return x
        base = g.Linear(tuple((t, c) for t, c in place.terms if t not in moving), place.const)
        rest = g.Linear(tuple((t, c) for t, c in place.terms if t in moving))
        key = x.buffer.name, str([(id(t), c) for t, c in base.terms] + [base.const])
        name = f"{x.buffer.name}.from{len(bases)}"
        size = int(x.buffer.size)
        part = bases.setdefault(key, (g.Buffer(name, (size,), x.dtype, "heap"), x.buffer, base))[0]
        return g.Load(part, (rest,))

    def moved(stmt: g.Stmt) -> g.Stmt:
        if isinstance(stmt, g.Loop):
            return replace(stmt, body=tuple(map(moved, stmt.body)))
        if isinstance(stmt, g.Store):
            return replace(stmt, value=map_values(stmt.value, leaf))
        return stmt

    body = tuple(map(moved, loop.body))
    return list(bases.values()), body


def _variables(term: Any) -> list[g.Var]:
    return list(g.variables(g.Linear(((term, 1),))))


def _bit_set(name: str) -> Any:
    """A register of bits."""
    return tirx.decl_buffer((1,), "int64", name)


def _allocated(bits: Any) -> Any:
    return tirx.AllocBuffer(bits, {"disable_lower_builtin": tirx.IntImm("bool", 1)})


def _signs(buffer: Any, begins: Sequence[Any], part: int) -> Any:
    """The bits of some iterations. Compared so, what is no number is not 0."""
    zero, minus = (tirx.Broadcast(tirx.FloatImm("float32", x), _LANES) for x in (0.0, -1.0))
    loads = (tirx.BufferLoad(buffer, [tirx.Ramp(at + part, number(1), _LANES)]) for at in begins)
    signs = [tirx.Select(x == zero, zero, minus) for x in loads]
    either = functools.reduce(tirx.Min, signs)
    found = tirx.call_llvm_pure_intrin("int32", "llvm.x86.avx.movmsk.ps.256", either)
    return tirx.Cast("int64", found)


def _wide(value: int) -> Any:
    return tirx.IntImm("int64", value)
