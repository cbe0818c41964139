"""Part of a result that each thread writes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.parts import value_of

_NEAR = 1 / 8  # of a result, by which parts may begin elsewhere


def in_order(tree: g.Tree, threads: int) -> bool:
    """Return whether every thread writes about its own contiguous part of the results, in order.
    Steps of a network that all do so mostly read what their own core has written, which is near;
    what another core has written is far."""
    names = {buffer.name for buffer in tree.outputs}
    found = [_is_in_order(path, store, threads) for path, store in _stores(tree.body, names)]
    return bool(found) and all(found)


def _stores(
    body: tuple[g.Stmt, ...], names: set[str], path: tuple[g.Loop | g.Let, ...] = ()
) -> Iterator[tuple[tuple[g.Loop | g.Let, ...], g.Store]]:
    """The stores to some buffers, behind the loops and names around them."""
    for stmt in body:
        if isinstance(stmt, g.Loop):
            yield from _stores(stmt.body, names, (*path, stmt))
        elif isinstance(stmt, g.Let):
            path = (*path, stmt)
        elif isinstance(stmt, g.Store) and stmt.buffer.name in names:
            yield path, stmt


def _is_in_order(path: tuple[g.Loop | g.Let, ...], store: g.Store, threads: int) -> bool:
    loops = [s for s in path if isinstance(s, g.Loop) and s.kind == "parallel"]
    total, size = math.prod(int(loop.extent) for loop in loops), int(store.buffer.size)
    if total < threads:
        return False
    for thread in range(1, threads):
        rest, values = -(-total * thread // threads), Counter[g.Var]()
        for loop in reversed(loops):
            rest, values[loop.var] = divmod(rest, int(loop.extent))
        for stmt in path:
            if isinstance(stmt, g.Let):
                value = value_of(stmt.value, values.__getitem__)
                values[stmt.var] = min(int(value), int(stmt.limit))
        # Loops that are not among the values are at their start.
        begin = int(value_of(g.flat(store.buffer, store.index), values.__getitem__))
        if abs(begin - size * thread / threads) > _NEAR * size:
            return False
    return True
