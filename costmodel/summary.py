"""What a whole program does: counts of operations on its busiest thread, and their ratios.

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

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.access import ROLES
from loopwright.costmodel.column import Array, Real, log, most, real, rows, total
from loopwright.costmodel.context import Context, LoopContext, StoreContext
from loopwright.costmodel.relation import traffic
from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.target import Target
from loopwright.schedule.tree import Allocate, Loop, Stmt, Tree

COUNTS = ("arithmetic", "functions", *ROLES, "gathers", "iterations", "code", "flops")
BETAS = tuple(2.0 ** (9.5 + 2 * t) for t in range(8))
RATIOS = ("waste", "per vector", "per broadcast", "per line", "lanes used")
TILE = ("tile", "pressure", "chain", "issue")
WHOLE = ("parallel", "idle", "heap", "nests", "stores", "threads", "lanes", "registers")
_MEMORY = slice(COUNTS.index(ROLES[0]), COUNTS.index("gathers") + 1)
_REGISTER = ROLES.index("register")
_ITERATIONS, _CODE = COUNTS.index("iterations"), COUNTS.index("code")
_FUNCTION_COST = 8.0  # operations on vectors, about


def summary_names() -> tuple[str, ...]:
    """What the rows of `summary` are called."""
    caches = (*(f"2^{math.log2(b):.1f}B" for b in BETAS), "L1", "L2")
    return (*COUNTS, *(f"traffic {c}" for c in caches), *RATIOS, *TILE, *WHOLE)


def summary(nodes: Sequence[Context], tree: Tree, target: Target, flops: int) -> Array:
    """The rows of the module's table, in the order of `summary_names`: shape (columns, n).

    `flops` is what the workload needs, whatever the program does.
    """
    n = tree.n
    betas = np.array([*BETAS, target.l1_bytes, target.l2_bytes], np.float32)[:, None]
    nests = [_nest(node, n, betas, target) for node in nodes]
    counts: Array = sum(nest.counts * nest.share for nest in nests)  # type: ignore[assignment]
    counts[-1] = sum(nest.counts[-1] for nest in nests)
    lines: Array = sum(nest.lines * nest.share for nest in nests)  # type: ignore[assignment]
    tile = np.max([nest.tile for nest in nests], axis=0)
    named = dict(zip(COUNTS, counts, strict=True))
    derived = [*_ratios(named, lines[-1], flops), *_tile(named, tile, target)]
    whole = _whole(nests, nodes, tree, target)
    return log(np.concatenate([counts, lines, rows([*derived, *whole], n)]))


def _ratios(c: dict[str, Array], lines: Array, flops: int) -> Iterator[Real]:
    yield c["flops"] / max(flops, 1)
    yield c["arithmetic"] / most(c["vector"], 1.0)
    yield c["arithmetic"] / most(c["broadcast"], 1.0)
    yield c["arithmetic"] / most(lines, 1.0)
    yield c["flops"] / most(c["arithmetic"], 1.0)


def _tile(c: dict[str, Array], tile: Array, target: Target) -> Iterator[Real]:
    yield tile
    yield tile / target.vector_registers
    yield c["arithmetic"] / most(tile, 1.0)
    loads = (c["vector"] + c["broadcast"]) / 2
    port = most(most(c["arithmetic"] / 2, loads), c["written"])
    yield port + c["gathers"] + _FUNCTION_COST * c["functions"]


def _whole(
    nests: Sequence[_Nest], nodes: Sequence[Context], tree: Tree, target: Target
) -> Iterator[Real]:
    work = np.stack([nest.counts[0] for nest in nests])
    heaviest = work.argmax(axis=0), np.arange(tree.n)
    parallel = rows((nest.parallel for nest in nests), tree.n)
    yield parallel[heaviest]
    yield rows((nest.share for nest in nests), tree.n)[heaviest] * target.threads
    yield _heap(tree.body)
    yield float(len(nodes))
    yield float(sum(map(_stores, nodes)))
    yield from (float(target.threads), float(target.lanes(4)), float(target.vector_registers))


@dataclass(frozen=True, eq=False)
class _Nest:
    """Totals of one top-level nest.

    Attributes
    ----------
    counts: shape (counts, n), all threads.
    lines: cache lines fetched for each β, shape (β, n).
    tile: vector registers for its largest register tile, shape (n,).
    parallel: iterations shared among threads.
    share: what the busiest thread does of the work.
    """

    counts: Array
    lines: Array
    tile: Array
    parallel: Real
    share: Real


def _nest(node: Context, n: int, betas: Array, target: Target) -> _Nest:
    parallel: Real = 1.0
    outer = node
    while isinstance(outer, LoopContext) and outer.kind == "parallel":
        parallel = parallel * outer.extent
        outer = outer.children[0]
    rounds = np.ceil(np.float32(parallel) / np.float32(target.threads))
    counts, tile = _count(node, n)
    lines = np.broadcast_to(traffic(node, betas), (len(betas), n))
    return _Nest(counts, lines, tile, parallel, rounds / most(parallel, 1.0))


def _count(node: Context, n: int, kept: bool = False) -> tuple[Array, Array]:
    """The counts of one run of a loop or store, and the largest register tile in it.

    What is `kept` in registers by an unrolled loop around is left for that one to count.
    """
    if isinstance(node, StoreContext):
        return _of_store(node, n, kept), np.zeros(n, np.float32)
    flat = node.kind in ("unrolled", "vectorized")
    inner = [_count(child, n, kept or flat) for child in node.children]
    once: Array = sum(counts for counts, _ in inner)  # type: ignore[assignment]
    counts = once * node.extent
    if not flat:
        counts[_ITERATIONS] += node.extent
        counts[_CODE] = once[_CODE] * (node.extent > 0)
    if kept:
        return counts, inner[0][1]
    tile = np.max([t for _, t in inner], axis=0) * (node.extent > 0)
    if flat:
        counts[_MEMORY] = _accesses(node, n)
        tile = rows([node.touch[_REGISTER].vectors], n)[0]
    return counts, tile


def _of_store(store: StoreContext, n: int, kept: bool) -> Array:
    one = 1.0 / store.width
    made = [store.arithmetic * one, store.functions * one, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, one]
    counts = rows([*made, store.arithmetic], n)
    if not kept:
        counts[_MEMORY] = _accesses(store, n)
    return counts


def _accesses(node: Context, n: int) -> Array:
    """The rows `written` to `gathers`."""
    gathers = total(t.gathers for t in node.touch)
    return rows([*(t.vectors for t in node.touch), gathers], n)


def _heap(body: Iterable[Stmt]) -> Real:
    """Bytes allocated."""
    found: Real = 0.0
    for stmt in body:
        if isinstance(stmt, Allocate) and stmt.buffer.scope == "heap":
            found = found + real(stmt.buffer.size) * item_bytes(stmt.buffer.dtype)
        elif isinstance(stmt, Loop):
            found = found + _heap(stmt.body)
    return found


def _stores(node: Context) -> int:
    return 1 if isinstance(node, StoreContext) else sum(map(_stores, node.children))
