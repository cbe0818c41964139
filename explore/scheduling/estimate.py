"""Features of a schedule for a model of its speed: an analytical estimate, and its parts.

The inner loops are those of LoopNest's rules. A block of them needs a number of operations, of
loads, and of accumulators that are loaded and stored; caches add lines that are loaded again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.explore.scheduling.loops import State
from loopwright.schedule.cpu.inner_loops import InnerLoops, inner_loops

_LATENCY = 5.0  # operations that must be under way for one to end in every cycle
_LOADS, _PARTS, _LOOP = 1.0, 2.0, 2.0  # cycles of a load; of an accumulator in and out; of a block
_L1, _L2 = 2.0, 12.0  # cycles of a line from L2, and from beyond
_NEAR = 16  # elements of a line
_LINE = 64
_DEPTH = 5
"""Inner loops that are described one by one."""

Features = np.ndarray[Any, np.dtype[np.float32]]


def features(state: State) -> Features:
    """Numbers that say how fast a schedule runs: logarithms, so that they are of one size."""
    problem, loops = state.problem, state.loops
    registers = problem.target.vector_registers
    chosen = inner_loops(loops, problem.strides, problem.lanes, registers)
    moves = [problem.moves(loop) for loop in loops]
    numbers = [math.log2(1e-3 + x) for x in _parts(state, chosen, moves)]
    numbers += [chosen.vector, len(loops), len(loops) - chosen.outside]
    numbers += _contiguous(state, moves)
    for n in range(len(loops) - 1, len(loops) - 1 - _DEPTH, -1):
        if n < 0:
            numbers += [0.0] * 6
            continue
        *operands, result = moves[n]
        numbers += [math.log2(loops[n].size), loops[n].tail > 0, loops[n].reduce, result > 0]
        numbers += [math.log2(1 + sum(operands)), math.log2(1 + max(operands, default=0))]
    return np.array(numbers, np.float32)


def estimate(state: State) -> float:
    """Share of the peak, by the analytical estimate alone."""
    return float(2.0 ** features(state)[0])


def _parts(
    state: State, chosen: InnerLoops, moves: Sequence[tuple[int, ...]]
) -> tuple[float, ...]:
    """The share of the peak that is to be expected, and what it follows from, most of it in
    cycles of each operation of a full vector."""
    at, target, loops = chosen.outside, state.problem.target, state.loops
    sizes = [loop.size for loop in loops]
    extents = [*sizes[:-1], -(-sizes[-1] // chosen.vector)]
    vectors = math.prod(extents)
    summed = math.prod(e for e, x in zip(extents[at:], loops[at:]) if x.reduce)
    operations = chosen.registers * summed
    split = any(x.reduce and x.size > 1 for x in loops[:at])
    loads = 0
    for a in range(len(moves[0]) - 1):
        loads += math.prod(e for e, m in zip(extents[at:], moves[at:]) if m[a])
    latency = max(1.0, _LATENCY / chosen.registers)
    parts = _PARTS * chosen.registers / operations * (1.0 if split else 0.5)
    overhead = _LOOP / operations
    first, second = _misses(sizes, moves, (target.l1_bytes, target.l2_bytes))
    l1, l2 = first / vectors * _L1, second / vectors * _L2
    cycles = max(latency, loads / operations * _LOADS + parts) + overhead + l1 + l2
    wanted = math.prod(loop.size for loop in state.problem.start)  # tiles that overlap do more
    share = chosen.vector / state.problem.lanes * wanted / math.prod(sizes) / cycles
    outer = next((n for n, x in enumerate(loops) if x.reduce), 0)
    held = math.prod(e for e, x in zip(extents[outer:], loops[outer:]) if not x.reduce)
    return share, latency, loads / operations, parts, overhead, l1, l2, operations, summed, held


def _misses(
    sizes: Sequence[int], moves: Sequence[tuple[int, ...]], caches: Sequence[int]
) -> list[float]:
    """Lines that are loaded into each cache: those that the largest inner part which fits touches,
    each time that it runs with other ones."""
    count = len(moves[0])
    far, near = [1.0] * count, [1.0] * count  # elements that lie apart, and beside each other
    lines = [[1.0] * count]  # of the loops inside of each position, from the innermost one on
    for size, move in zip(reversed(sizes), reversed(moves)):
        for a, m in enumerate(move):
            if 0 < m < _NEAR:
                near[a] *= size
            elif m:
                far[a] *= size
        lines.append([f * max(1.0, n / _NEAR) for f, n in zip(far, near)])
    found = []
    for cache in caches:
        inside = 0
        while inside < len(sizes) and sum(lines[inside + 1]) * _LINE <= cache:
            inside += 1
        total = 0.0
        for a in range(count):
            times = 1
            for size, move in zip(
                reversed(sizes[: len(sizes) - inside]), reversed(moves[: len(sizes) - inside])
            ):
                if times > 1 or move[a]:  # kept, until a loop moves it
                    times *= size
            total += times * lines[inside][a]
        found.append(total)
    return found


def _contiguous(state: State, moves: Sequence[tuple[int, ...]]) -> list[float]:
    """The innermost loop of neighbours in the result: how many loops stand inside of it, how many
    iterations these have, and its size. The compiler makes vectors of it where it can."""
    inside = 1
    for n, (loop, move) in enumerate(zip(reversed(state.loops), reversed(moves))):
        if move[-1] == 1:
            return [float(n), math.log2(inside), math.log2(loop.size)]
        inside *= loop.size
    return [float(len(moves)), 0.0, 0.0]
