"""Features of a whole GPU program: counts of operations on its busiest multiprocessor, their
ratios, and how its heaviest kernel fills the GPU.

An operation of a warp, on its 32 lanes at once, counts one. Counts are summed over all kernels;
each counts with the warps that the busiest multiprocessor runs of it. Accesses inside of the
outermost unrolled or vectorized loop of a kernel count once for each distinct element, since
compilers keep what they have loaded in registers.

    column          meaning, before log₂(1 + x) is taken of every one
    arithmetic      additions, multiplications, comparisons of elements
    functions       elementary functions: exp, erf, …
    products        of matrix tiles
    barriers        waits for other threads or for copies
    written         stores to global memory
    register        reads and writes of registers, if they all were memory
    shared, global  loads and stores of shared memory, loads of global memory
    sectors         of 32 bytes of global memory, moved for loads and stores (`lanes`)
    turns           that lanes take at shared memory: operations, bank conflicts included
    iterations      iterations of loops that are not unrolled
    cycles          the least that the multiprocessor needs: its busiest unit's
    lines           cache lines that blocks touch, each block by itself
    unique          cache lines that all blocks touch together
    flops           arithmetic on elements, tiles of matrices included, all threads
    waste           flops / flops of the workload
    intensity       flops / bytes of lines: arithmetic intensity
    reuse           lines / unique lines: how often blocks read the same
    per shared      operations on elements / turns at shared memory
    per sector      operations on elements / sectors
    coalesced       bytes of lines / bytes of sectors: 1 if all that moves is used once
    conflicts       turns at shared memory / operations on it
    blocks, threads, warps
                    blocks of the heaviest kernel (most cycles), threads and warps of one
    lanes used      share of its warps' lanes that are threads
    registers       of a thread, as far as the tree tells
    shared bytes    of a block
    resident        blocks that a multiprocessor holds at once
    occupancy       share of the warps that it could hold
    waves           blocks / those that the whole GPU holds at once
    tail            that number rounded up / itself: 1 if the last wave is full
    chain           cycles of one warp by itself, without any other to hide what it waits for
    code            statements in the text of the programs, unrolled
    heap            bytes allocated: intermediate results, operands laid out anew
    kernels         launches
    multiprocessors, shared limit
                    of the target
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.features.access import GPU_ROLES, LINE, MEMORY
from loopwright.costmodel.features.batch_arithmetic import (
    Real,
    both,
    least,
    log,
    most,
    only,
    times,
    total,
    where,
)
from loopwright.costmodel.features.context import Context, LoopContext, StoreContext
from loopwright.costmodel.features.gpu_memory import LANES, SECTOR
from loopwright.costmodel.features.summary import heap
from loopwright.schedule.target import Gpu, Target
from loopwright.schedule.tree.grammar import MATRIX, Tree

_OWN = ("arithmetic", "functions", "products", "barriers")
_ENDS = ("sectors", "turns", "iterations")
COUNTS = (*_OWN, *GPU_ROLES, *_ENDS)
TOTALS = ("cycles", "lines", "unique", "flops")
RATIOS = ("waste", "intensity", "reuse", "per shared", "per sector", "coalesced", "conflicts")
SHAPE = (
    "blocks", "threads", "warps", "lanes used", "registers", "shared bytes", "resident",
    "occupancy", "waves", "tail", "chain",
)  # fmt: skip
WHOLE = ("code", "heap", "kernels", "multiprocessors", "shared limit")
_MEMORY = slice(COUNTS.index(GPU_ROLES[0]), COUNTS.index("iterations"))
_ITERATIONS = COUNTS.index("iterations")
_PLACES = {name: place for place, name in enumerate(COUNTS)}
_PRODUCT = 2.0 * MATRIX**3
"""Operations on elements of a product of tiles."""
_SPARE_REGISTERS = 24.0  # for addresses and counters
_MOST_BLOCKS = 32.0  # that a multiprocessor holds

# Operations of warps that a multiprocessor does in a cycle, about; those of recent GPUs of NVIDIA.
_ARITHMETIC, _FUNCTIONS, _ISSUE, _SECTORS = 4.0, 0.5, 4.0, 2.0
_PRODUCT_CYCLES, _BARRIER_CYCLES = 4.0, 30.0
_LATENCY = 25.0  # cycles until an access to shared memory is there


def gpu_summary_names() -> tuple[str, ...]:
    """Names of the rows of `gpu_summary`."""
    return (*COUNTS, *TOTALS, *RATIOS, *SHAPE, *WHOLE)


def gpu_summary(nodes: Sequence[Context], tree: Tree, target: Target, flops: int) -> list[Real]:
    """The columns of the module's table, as `gpu_summary_names`; `flops` are the workload's."""
    assert target.gpu is not None
    kernels = [_kernel(n, target.gpu) for n in nodes if isinstance(n, LoopContext)]
    shared = zip(*([times(c, k.busiest) for c in k.counts] for k in kernels), strict=True)
    counts = dict(zip(COUNTS, map(total, shared), strict=True))
    totals = {
        "cycles": total(k.cycles for k in kernels),
        "lines": total(k.lines for k in kernels),
        "unique": total(k.unique for k in kernels),
        "flops": total(k.flops for k in kernels),
    }
    ratios = _ratios(counts | totals, total(k.moved for k in kernels), flops)
    whole = _whole(kernels, tree, target.gpu)
    return list(
        map(log, [*counts.values(), *totals.values(), *ratios, *_heaviest(kernels), *whole])
    )


def _ratios(c: Mapping[str, Real], moved: Real, flops: int) -> Iterator[Real]:
    operations = c["arithmetic"] + c["products"] * (_PRODUCT / LANES)
    yield c["flops"] / float(max(flops, 1))
    yield c["flops"] / most(c["lines"] * LINE, 1.0)
    yield c["lines"] / most(c["unique"], 1.0)
    yield operations / most(c["turns"], 1.0)
    yield operations / most(c["sectors"], 1.0)
    yield c["lines"] * LINE / most(moved * SECTOR, 1.0)
    yield c["turns"] / most(c["shared"], 1e-3)


def _heaviest(kernels: Sequence[_Kernel]) -> list[Real]:
    cycles, shape = kernels[0].cycles, list(kernels[0].shape)
    for kernel in kernels[1:]:
        heavier = kernel.cycles > cycles
        cycles = most(cycles, kernel.cycles)
        shape = [where(heavier, new, old) for new, old in zip(kernel.shape, shape, strict=True)]
    return shape


def _whole(kernels: Sequence[_Kernel], tree: Tree, gpu: Gpu) -> Iterator[Real]:
    yield total(k.code for k in kernels)
    yield heap(tree.body)
    yield total(k.runs for k in kernels)
    yield from (float(gpu.multiprocessors), float(gpu.shared_bytes))


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Totals of one kernel.

    Attributes
    ----------
    counts: those of `COUNTS`, of one warp.
    busiest: warps that the busiest multiprocessor runs.
    cycles: the least that it needs for them.
    lines, unique, flops: as in the module's table.
    moved: sectors, all warps.
    shape: the columns of `SHAPE`.
    code: statements in its text.
    runs: 1, or 0 where it has no threads.
    """

    counts: Sequence[Real]
    busiest: Real
    cycles: Real
    lines: Real
    unique: Real
    flops: Real
    moved: Real
    shape: Sequence[Real]
    code: Real
    runs: Real


def _kernel(node: LoopContext, gpu: Gpu) -> _Kernel:
    blocks, threads = (1.0, 1.0)  # type: Real, Real
    whole, block = node, node
    while node.kind == "block" and isinstance(node.children[0], LoopContext):
        blocks = blocks * node.extent
        node = block = node.children[0]
    body: Sequence[Context] = (node,)
    while len(body) == 1 and isinstance(body[0], LoopContext) and body[0].kind == "thread":
        threads = threads * body[0].extent
        body = body[0].children
    counts, code = _block(body)
    runs = only(both(blocks > 0.0, threads > 0.0), 1.0)
    warps = _up(threads / LANES)
    busiest = _up(blocks / gpu.multiprocessors) * warps
    c = {name: counts[place] for name, place in _PLACES.items()}
    registers = block.registers + _SPARE_REGISTERS
    resident = _resident(threads, registers, block.shared, gpu)
    waves = blocks / (resident * gpu.multiprocessors)
    chain = _cycles(c) + _LATENCY * (c["shared"] + c["global"] + c["barriers"])
    operations = c["arithmetic"] * LANES + c["products"] * _PRODUCT
    return _Kernel(
        counts,
        busiest,
        busiest * _cycles(c),
        times(blocks, block.lines),
        whole.lines,
        blocks * threads * (operations / LANES),
        blocks * warps * c["sectors"],
        [
            blocks,
            threads,
            warps,
            threads / most(warps * LANES, 1.0),
            registers,
            block.shared,
            resident,
            least(resident * warps * (LANES / gpu.sm_threads), 1.0),
            waves,
            _up(waves) / most(waves, 1e-6),
            chain,
        ],
        times(code, runs),
        runs,
    )


def _resident(threads: Real, registers: Real, shared: Real, gpu: Gpu) -> Real:
    """Blocks of a multiprocessor at once, by threads, registers and shared memory."""
    by_threads = gpu.sm_threads / most(threads, 1.0)
    by_registers = gpu.sm_registers / most(threads * registers, 1.0)
    by_shared = gpu.sm_shared_bytes / most(shared, 1.0)
    found = least(least(by_threads, by_registers), least(by_shared, _MOST_BLOCKS))
    return most(-_up(-found), 1.0)


def _up(a: Real) -> Real:
    """⌈a⌉."""
    return float(math.ceil(a)) if isinstance(a, float) else np.ceil(a)


def _cycles(c: Mapping[str, Real]) -> Real:
    """Cycles of the busiest unit, for the counts of a warp."""
    issued = c["arithmetic"] / 2.0 + c["shared"] + c["global"] + c["written"]
    units = (
        c["arithmetic"] / (2.0 * _ARITHMETIC),
        c["functions"] / _FUNCTIONS,
        c["products"] * _PRODUCT_CYCLES,
        c["turns"],
        c["sectors"] / _SECTORS,
        issued / _ISSUE,
    )
    return functools.reduce(most, (0.0, *units))


def _block(nodes: Sequence[Context], kept: bool = False) -> tuple[list[Real], Real]:
    """The counts of one run of statements after each other, and statements in their text."""
    parts = [_count(node, kept) for node in nodes]
    counts = [total(column) for column in zip(*(c for c, _ in parts), strict=True)]
    return counts or [0.0] * len(COUNTS), total(code for _, code in parts)


def _count(node: Context, kept: bool) -> tuple[list[Real], Real]:
    """The counts of one run of a loop or store, and statements in its text. What is `kept` in
    registers by an unrolled loop around is left for that one to count."""
    if isinstance(node, StoreContext):
        counts: list[Real] = [0.0] * len(COUNTS)
        counts[: len(_OWN)] = node.arithmetic, node.functions, node.products, node.barriers
        if not kept:
            counts[_MEMORY] = _accesses(node)
        return counts, 1.0
    flat = node.kind in ("unrolled", "vectorized")
    once, code = _block(node.children, kept or flat)
    counts = [times(c, node.extent) for c in once]
    if not flat:
        counts[_ITERATIONS] = counts[_ITERATIONS] + node.extent
        return counts, only(node.extent > 0.0, code)
    if not kept:
        counts[_MEMORY] = _accesses(node)
    return counts, times(code, node.extent)


def _accesses(node: Context) -> list[Real]:
    """The columns `written` to `turns`."""
    written, _, shared, read = (node.touch[r] for r in range(len(GPU_ROLES)))
    assert len(MEMORY) + 1 == len(node.touch)
    sectors = written.gathers + read.gathers
    return [*(t.vectors for t in node.touch), sectors, shared.gathers]
