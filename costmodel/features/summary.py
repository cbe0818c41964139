"""Features of a whole program: counts of operations on its busiest thread, and their ratios.

Counts are summed over all stores; each top-level nest counts with the share of its work that the
busiest thread does. An operation on a vector register counts one. Accesses inside of the
outermost unrolled or vectorized loop of a nest count once for each distinct element, since
compilers keep what they have loaded in registers.

    column          meaning, before log₂(1 + x) is taken of every one
    arithmetic      additions, multiplications, comparisons of elements
    functions       elementary functions: exp, erf, …
    written         stores
    register        reads of accumulators, if they all had to be loaded
    vector          loads of vectors, or of neighbours one by one
    broadcast       loads of one element for all lanes
    gathers         those accesses that move a vector element by element
    iterations      iterations of loops that are not unrolled
    code            operations in the text of the program, unrolled
    flops           arithmetic on elements, all threads
    traffic β       cache lines fetched by a cache of β bytes (`relation.traffic`), and by the
                    target's first- and second-level caches
    waste           flops / flops of the workload
    per vector      arithmetic / loads of vectors
    per broadcast   arithmetic / loads of one element
    per line        arithmetic / lines fetched into the second-level cache
    lanes used      flops / arithmetic
    tile            vector registers that the largest register tile needs
    pressure        tile / vector registers of the target
    chain           arithmetic / tile: operations that must wait for each other
    issue           operations by the busiest port, max(arithmetic / 2, loads / 2, stores),
                    plus gathers plus 8 · functions
    parallel        iterations shared among threads, of the nest with most arithmetic
    idle            threads · share of the busiest one, in that nest: 1 if balanced
    heap            bytes allocated: packing, padding, intermediate results
    nests, stores   top-level nests, and stores in the text
    threads         of the target; so are
    lanes           of a vector of 4-byte elements, and
    registers       vector registers
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.features.access import ROLES
from loopwright.costmodel.features.batch_arithmetic import (
    Array,
    Mask,
    Real,
    log,
    most,
    only,
    real,
    times,
    total,
    where,
)
from loopwright.costmodel.features.context import Context, LoopContext, StoreContext
from loopwright.costmodel.features.relation import traffic
from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Allocate, Loop, Stmt, Tree

COUNTS = ("arithmetic", "functions", *ROLES, "gathers", "iterations", "code", "flops")
BETAS = tuple(2.0 ** (9.5 + 2 * t) for t in range(8))
RATIOS = ("waste", "per vector", "per broadcast", "per line", "lanes used")
TILE = ("tile", "pressure", "chain", "issue")
WHOLE = ("parallel", "idle", "heap", "nests", "stores", "threads", "lanes", "registers")
_MEMORY = slice(COUNTS.index(ROLES[0]), COUNTS.index("gathers") + 1)
_REGISTER = ROLES.index("register")
_ITERATIONS, _CODE, _FLOPS = map(COUNTS.index, ("iterations", "code", "flops"))
_FLAT = ("unrolled", "vectorized")
_LOOSE = len(COUNTS)  # counted like these, and no column of this module's
_FUNCTION_COST = 8.0  # operations on vectors, about


def summary_names() -> tuple[str, ...]:
    """Names of the rows of `summary`."""
    caches = (*(f"2^{math.log2(b):.1f}B" for b in BETAS), "L1", "L2")
    return (*COUNTS, *(f"traffic {c}" for c in caches), *RATIOS, *TILE, *WHOLE)


def summary(nests: Sequence[Totals], tree: Tree, target: Target, flops: int) -> list[Real]:
    """The columns of the module's table, in the order of `summary_names`; those of all β are one,
    of shape (β, n) or (β, 1).

    `nests` are the `totals` of the tree's; `flops` is what the workload needs, whatever the
    program does.
    """
    shared = zip(*([c * nest.share for c in nest.counts] for nest in nests), strict=True)
    named = dict(zip(COUNTS, map(total, shared), strict=True))
    named["flops"] = total(nest.counts[_FLOPS] for nest in nests)
    lines = np.zeros_like(_betas(target)) + total(nest.lines * nest.share for nest in nests)
    fetched = total(nest.fetched * nest.share for nest in nests)
    tile = functools.reduce(most, (nest.tile for nest in nests))
    derived = [*_ratios(named, fetched, flops), *_tile(named, tile, target)]
    whole = _whole(nests, tree, target)
    return list(map(log, [*named.values(), lines, *derived, *whole]))


def _ratios(c: Mapping[str, Real], lines: Real, flops: int) -> Iterator[Real]:
    yield c["flops"] / max(flops, 1)
    yield c["arithmetic"] / most(c["vector"], 1.0)
    yield c["arithmetic"] / most(c["broadcast"], 1.0)
    yield c["arithmetic"] / most(lines, 1.0)
    yield c["flops"] / most(c["arithmetic"], 1.0)


def _tile(c: Mapping[str, Real], tile: Real, target: Target) -> Iterator[Real]:
    yield tile
    yield tile / target.vector_registers
    yield c["arithmetic"] / most(tile, 1.0)
    loads = (c["vector"] + c["broadcast"]) / 2
    port = most(most(c["arithmetic"] / 2, loads), c["written"])
    yield port + c["gathers"] + _FUNCTION_COST * c["functions"]


def _whole(nests: Sequence[Totals], tree: Tree, target: Target) -> Iterator[Real]:
    most_work, parallel, share = nests[0].counts[0], nests[0].parallel, nests[0].share
    for nest in nests[1:]:
        heavier = nest.counts[0] > most_work
        most_work = most(most_work, nest.counts[0])
        parallel = where(heavier, nest.parallel, parallel)
        share = where(heavier, nest.share, share)
    yield parallel
    yield share * float(target.threads)
    yield heap(tree.body)
    yield total(only(nest.runs, 1.0) for nest in nests)
    yield total(nest.stores for nest in nests)
    yield from (float(target.threads), float(target.lanes(4)), float(target.vector_registers))


@dataclass(frozen=True, eq=False)
class Totals:
    """Counts of one top-level nest.

    Attributes
    ----------
    counts: those of `COUNTS`, all threads.
    lines: cache lines fetched for each β.
    fetched: cache lines fetched into the second-level cache.
    tile: vector registers for its largest register tile.
    parallel: iterations shared among threads.
    share: what the busiest thread does of the work.
    runs: whether it has iterations.
    stores: in the text.
    loose: vectors that are loaded or stored across two cache lines, all threads.
    """

    counts: Sequence[Real]
    lines: Real
    fetched: Real
    tile: Real
    parallel: Real
    share: Real
    runs: Mask
    stores: Real
    loose: Real

    @property
    def operations(self) -> Real:
        """Operations of its busiest thread: arithmetic, loads of vectors and stores."""
        kinds = (COUNTS.index(name) for name in ("arithmetic", "vector", "written"))
        return total(self.counts[k] for k in kinds) * self.share


def totals(node: Context, target: Target) -> Totals:
    """Counts of a top-level nest."""
    parallel: Real = 1.0
    outer = node
    while isinstance(outer, LoopContext) and outer.kind == "parallel":
        parallel = parallel * outer.extent
        outer = outer.children[0]
    share = -(-parallel // float(target.threads)) / most(parallel, 1.0)
    counts, tile = _count(node)
    lines, fetched = traffic(node, _betas(target)), traffic(node, float(target.l2_bytes))
    own, loose = counts[:_LOOSE], counts[_LOOSE]
    return Totals(own, lines, fetched, tile, parallel, share, _runs(node), _stores(node), loose)


def _betas(target: Target) -> Array:
    return np.array([*BETAS, target.l1_bytes, target.l2_bytes], np.float32)[:, None]


def _count(node: Context, kept: bool = False) -> tuple[list[Real], Real]:
    """The counts of one run of a loop or store, and the largest register tile in it.

    What is `kept` in registers by an unrolled loop around is left for that one to count.
    """
    if isinstance(node, StoreContext):
        return _of_store(node, kept), 0.0
    flat = node.kind in _FLAT
    first = node.children[0]
    if flat and node.same and isinstance(first, LoopContext) and first.kind in _FLAT:
        return _count(first, kept)
    inner = [_count(child, kept or flat) for child in node.children]
    once = inner[0][0]
    if len(inner) > 1:
        once = [total(parts) for parts in zip(*(counts for counts, _ in inner), strict=True)]
    counts = list(once) if node.same else [times(c, node.extent) for c in once]
    if not flat:
        counts[_ITERATIONS] = counts[_ITERATIONS] + node.extent
        counts[_CODE] = only(_runs(node), once[_CODE])
    if kept:
        return counts, inner[0][1]
    tile = only(_runs(node), functools.reduce(most, (tile for _, tile in inner)))
    if flat:
        counts[_MEMORY], counts[_LOOSE] = _accesses(node), _loose(node)
        tile = node.touch[_REGISTER].vectors
    return counts, tile


def _of_store(store: StoreContext, kept: bool) -> list[Real]:
    one = 1.0 / store.width
    counts: list[Real] = [0.0] * (len(COUNTS) + 1)
    counts[0], counts[1] = store.arithmetic * one, store.functions * one
    counts[_CODE], counts[_FLOPS] = one, store.arithmetic
    if not kept:
        counts[_MEMORY], counts[_LOOSE] = _accesses(store), _loose(store)
    return counts


def _accesses(node: Context) -> list[Real]:
    """The columns `written` to `gathers`."""
    return [*(t.vectors for t in node.touch), total(t.gathers for t in node.touch)]


def _loose(node: Context) -> Real:
    return total(t.loose for t in node.touch)


def heap(body: Iterable[Stmt]) -> Real:
    """Bytes allocated."""
    found: Real = 0.0
    for stmt in body:
        if isinstance(stmt, Allocate) and stmt.buffer.scope == "heap":
            found = found + real(stmt.buffer.size) * item_bytes(stmt.buffer.dtype)
        elif isinstance(stmt, Loop):
            found = found + heap(stmt.body)
    return found


def _runs(node: Context) -> Mask:
    return isinstance(node, StoreContext) or node.extent > 0.0


def _stores(node: Context) -> Real:
    if isinstance(node, StoreContext):
        return 1.0
    return only(_runs(node), total(map(_stores, node.children)))
