"""Questions of emission about a loop of the tree, and parallel loops over chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from loopwright.codegen.tir.indices import MOST_ELEMENTS, expression, number
from loopwright.codegen.tir.transposed import transposes
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.traversal import walk
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.formula import Formula, bounds

_MOST = 4  # times the caches; what is kept of more is less than a quarter


def overflows(loop: g.Loop, caches: int) -> bool:
    """Return whether the arrays of a loop overflow the caches, not by so much that what is left
    there does not matter. At least half of them must be read: what is only written gains nothing.
    Loops with prefetches assume that iterations follow each other."""
    inside = list(g.statements(loop.body))
    if any(isinstance(s, g.Prefetch) for s in inside):
        return False
    stores = [s for s in inside if isinstance(s, g.Store)]
    loads = [x for s in stores for x in walk(s.value) if isinstance(x, g.Load)]
    read, touched = _bytes(loads), _bytes([*loads, *stores])
    return caches < touched <= _MOST * caches and 2 * read >= touched


def decides(loop: g.Loop) -> bool:
    """Return whether repeated copies of the body differ, for a predicate inside."""
    if loop.kind != "unrolled":
        return False
    guards = (s for s in g.statements(loop.body) if isinstance(s, g.Loop) and s.bound is not None)
    return any(loop.var in g.variables(guard.bound) for guard in guards if guard.bound is not None)


def _bytes(accesses: Sequence[g.Load | g.Store]) -> int:
    """The bytes of all arrays that are accessed, registers left out."""
    arrays = {x.buffer.name: x.buffer for x in accesses if x.buffer.scope != "register"}
    return sum(bounds(b.size)[1] * item_bytes(b.dtype) for b in arrays.values())


def stored(loop: g.Loop) -> g.Store:
    """The store of a vector loop."""
    (store,) = loop.body
    assert isinstance(store, g.Store), store
    return store


def reads_back(loops: list[g.Loop]) -> bool:
    """Return whether some of the stores read what others write."""
    stores = [stored(loop) for loop in loops]
    written = {store.buffer.name for store in stores}
    loads = (x for store in stores for x in walk(store.value) if isinstance(x, g.Load))
    return any(x.buffer.name in written for x in loads)


def vector_stores(body: tuple[g.Stmt, ...]) -> list[g.Loop]:
    """The vector loops of a body; none if it has stores elsewhere, or loops that stay."""
    found: list[g.Loop] = []
    for stmt in body:
        if isinstance(stmt, g.Let):
            continue
        if not isinstance(stmt, g.Loop):
            return []
        if stmt.kind == "vectorized":
            found.append(stmt)
            continue
        inner = vector_stores(stmt.body)
        straight = stmt.bound is None if stmt.extent == 1 else stmt.kind == "unrolled"
        if not inner or not straight:
            return []
        found += inner
    return found


def lanes_apart(loop: g.Loop, row: g.Var) -> bool:
    """Return whether the lanes of a vector loop's store stand apart and can be transposed. Those
    of other rows may lie between them."""
    store = stored(loop)
    steps = dict(g.flat(store.buffer, store.index).terms)
    divided = (g.Linear(((term, 1),)) for term in steps if not isinstance(term, g.Var))
    between = steps.get(row, 1) == 1  # else it may stand behind a `Let`
    if any(loop.var in g.variables(term) for term in divided) or not between:
        return False
    step = steps.get(loop.var, 0)
    if isinstance(step, Formula) or int(step) <= 1:
        return False
    return transposes(store.buffer.dtype, int(loop.extent))


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
