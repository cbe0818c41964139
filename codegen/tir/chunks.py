"""Parallel loops, as loops over the chunks of all threads."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from loopwright.codegen.tir.indices import MOST_ELEMENTS, expression, number

_CHUNKS = 32  # of each thread, as in runtime.c, where `lw_turn` reverses them


def in_chunks(
    counter: Any, total: Any, most: int, body: Any, threads: int, own: bool, turns: bool
) -> list[Any]:
    """A parallel loop as one over the chunks of all threads: chunk s of S begins with iteration
    ⌈total · s / S⌉, so that each thread has as much of it, be it shorter than S. There are at most
    `most` iterations. Without `own`, nothing is called of our run-time.

    With `turns`, each thread goes through its chunks forwards in one call and backwards in the
    next, to begin with what the last one has left in the caches."""
    chunks = threads * _CHUNKS
    if most * (chunks + 1) > MOST_ELEMENTS:
        return [tirx.For(counter, number(0), expression(total), ForKind.PARALLEL, body)]
    chunk = at = tirx.Var("share", "int32")
    before = []
    if turns:
        direction = tirx.Var("turn", "int32")
        before.append(tirx.Bind(direction, tirx.call_extern("int32", "lw_turn")))
        at = tirx.bitwise_xor(chunk, direction)
    # A power of two for each thread, so that those of the loop divide evenly, and as few as hold
    # one iteration each at most: empty ones cost, too.
    if own and (not isinstance(total, int) or -(-total // threads) <= _CHUNKS // 2):
        dealing = ("lw_deal", expression(total), number(threads))
        before.append(tirx.Evaluate(tirx.call_extern("int32", *dealing)))

    def begin(at: Any) -> Any:
        return tirx.floordiv(at * total + (chunks - 1), number(chunks))

    first = begin(at)
    inner = tirx.For(counter, first, begin(at + 1) - first, ForKind.SERIAL, body)
    return [*before, tirx.For(chunk, number(0), number(chunks), ForKind.PARALLEL, inner)]
