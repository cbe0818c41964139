"""Questions of emission about a loop of the tree."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.traversal import walk
from loopwright.schedule.tree.formula import bounds
from loopwright.schedule.tree.grammar import Load, Loop, Prefetch, Store, statements, variables

_MOST = 4  # times the caches; what is kept of more is less than a quarter


def overflows(loop: Loop, caches: int) -> bool:
    """Return whether the arrays that a loop touches overflow the caches. They must not be so large
    that what is left there does not matter. At least half of them must be read: what is only
    written gains nothing. Loops with prefetches are excluded, since these assume that iterations
    follow each other."""
    inside = list(statements(loop.body))
    if any(isinstance(s, Prefetch) for s in inside):
        return False
    stores = [s for s in inside if isinstance(s, Store)]
    loads = [x for s in stores for x in walk(s.value) if isinstance(x, Load)]
    read, touched = _bytes(loads), _bytes([*loads, *stores])
    return caches < touched <= _MOST * caches and 2 * read >= touched


def decides(loop: Loop) -> bool:
    """Return whether repeated copies of the body differ, for a predicate inside."""
    if loop.kind != "unrolled":
        return False
    guards = (s for s in statements(loop.body) if isinstance(s, Loop) and s.bound is not None)
    return any(loop.var in variables(guard.bound) for guard in guards if guard.bound is not None)


def _bytes(accesses: Sequence[Load | Store]) -> int:
    """The bytes of all arrays that are accessed, registers left out."""
    arrays = {x.buffer.name: x.buffer for x in accesses if x.buffer.scope != "register"}
    return sum(bounds(b.size)[1] * item_bytes(b.dtype) for b in arrays.values())


def stored(loop: Loop) -> Store:
    """The store of a vector loop."""
    (store,) = loop.body
    assert isinstance(store, Store), store
    return store


def reads_back(loops: list[Loop]) -> bool:
    """Return whether some of the stores read what others write."""
    stores = [stored(loop) for loop in loops]
    written = {store.buffer.name for store in stores}
    loads = (x for store in stores for x in walk(store.value) if isinstance(x, Load))
    return any(x.buffer.name in written for x in loads)
