"""Loops that leave out iterations in which a load is 0: a bit for each other one.

From `for k < 64, X[k] ≠ 0: …` come bits, one for each X[k] ≠ 0, eight at a time from the signs of
a vector, and `while bits: k = trailing zeros of bits; clear that bit; …`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from loopwright.codegen.indices import ZERO, Indices, Known, expression, number
from loopwright.codegen.linker import architecture
from loopwright.schedule.target import Target
from loopwright.schedule.tree import (
    Buffer,
    Linear,
    Load,
    Loop,
    Stmt,
    Store,
    Var,
    flat,
    map_values,
    statements,
    variables,
)

_LANES = 8  # of the vectors whose signs an instruction of AVX gathers
_MOST = 64  # bits of a register


def leaves_out(loop: Loop, target: Target) -> bool:
    """Whether the code for a processor may go from bit to bit."""
    if loop.sparse is None or architecture(target.triple) != "x86_64" or target.vector_bytes < 32:
        return False
    extent = int(loop.extent)
    whole = loop.bound is None and extent % _LANES == 0 and extent <= _MOST
    return whole and not loop.sparse.load.clamped and loop.sparse.load.dtype == "float32"


def places(loop: Loop, at: Indices) -> list[Any]:
    """Where the loads of the first iteration lie, one for each value of `over`."""
    assert loop.sparse is not None
    found = []
    for values in itertools.product(*(range(int(count)) for _, count in loop.sparse.over)):
        for (var, _), value in zip(loop.sparse.over, values, strict=True):
            at.known[var] = Known(value, value, value, value)
        at.known[loop.var] = ZERO
        found.append(expression(at.offset(loop.sparse.load.buffer, loop.sparse.load.index)))
    return found


def from_bases(loop: Loop) -> tuple[list[tuple[Buffer, Buffer, Linear]], tuple[Stmt, ...]]:
    """What the body of a loop reads, seen from where that begins, and the body that reads it so.
    LLVM would add, or worse, that to the place within for each vector.

    `X[f + k] * W[g + 16 * k + l]  ↦  X' = X[f …], W' = W[g …]; X'[k] * W'[16 * k + l]`
    """
    inside = {loop.var, *(s.var for s in statements(loop.body) if isinstance(s, Loop))}
    bases: dict[tuple[str, str], tuple[Buffer, Buffer, Linear]] = {}

    def leaf(x: Any) -> Any:
        if not isinstance(x, Load) or x.clamped or x.buffer.scope == "register":
            return x
        place = flat(x.buffer, x.index)
        moving = {t for t, _ in place.terms if inside & set(_variables(t))}
        if not any(loop.var in set(_variables(t)) for t in moving):
            return x
        base = Linear(tuple((t, c) for t, c in place.terms if t not in moving), place.const)
        rest = Linear(tuple((t, c) for t, c in place.terms if t in moving))
        key = x.buffer.name, str([(id(t), c) for t, c in base.terms] + [base.const])
        name = f"{x.buffer.name}.from{len(bases)}"
        size = int(x.buffer.size)
        part = bases.setdefault(key, (Buffer(name, (size,), x.dtype, "heap"), x.buffer, base))[0]
        return Load(part, (rest,))

    def moved(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Loop):
            return replace(stmt, body=tuple(map(moved, stmt.body)))
        if isinstance(stmt, Store):
            return replace(stmt, value=map_values(stmt.value, leaf))
        return stmt

    body = tuple(map(moved, loop.body))
    return list(bases.values()), body


def _variables(term: Any) -> list[Var]:
    return list(variables(Linear(((term, 1),))))


def bit_set(name: str) -> Any:
    """A register of bits."""
    return tirx.decl_buffer((1,), "int64", name)


def allocated(bits: Any) -> Any:
    """Its allocation."""
    return tirx.AllocBuffer(bits, {"disable_lower_builtin": tirx.IntImm("bool", 1)})


def copied(source: Any, target: Any) -> Any:
    """Sets one to what another one has."""
    return tirx.BufferStore(target, tirx.BufferLoad(source, [number(0)]), [number(0)])


def made_bits(bits: Any, buffer: Any, begins: Sequence[Any], count: int) -> Any:
    """Stores the bits of those of `count` iterations in which an element of a buffer is not 0,
    `begins` saying where those of the first one lie."""
    parts = (_signs(buffer, begins, part) for part in reversed(range(0, count, _LANES)))

    def joined(high: Any, low: Any) -> Any:
        return tirx.bitwise_or(tirx.shift_left(high, _wide(_LANES)), low)

    # One after the other: what could be done at once, LLVM does in vectors, which takes longer.
    return tirx.BufferStore(bits, functools.reduce(joined, parts), [number(0)])


def while_bits(bits: Any, var: Any, body: list[Any]) -> Any:
    """The loop over the bits that are set, `var` being its counter."""
    left = tirx.BufferLoad(bits, [number(0)])
    first = tirx.call_llvm_pure_intrin("int64", "llvm.cttz.i64", left, tirx.IntImm("bool", 1))
    step = [
        tirx.Bind(var, tirx.Cast("int32", first)),
        tirx.BufferStore(bits, tirx.bitwise_and(left, left - _wide(1)), [number(0)]),
        *body,
    ]
    return tirx.While(left != _wide(0), tirx.SeqStmt(step))


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
