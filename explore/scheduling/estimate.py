"""Features of a schedule for a model of its speed: an analytical estimate, and its parts.

The inner loops are those of LoopNest's rules. A block of them needs a number of operations, of
loads, and of accumulators that are loaded and stored; caches add lines that are loaded again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.explore.scheduling.loops import State
from loopwright.schedule.cpu.inner_loops import InnerLoops, inner_loops

_LATENCY = 5.0  # operations that must be under way for one to end in every cycle
_LOADS, _PARTS, _LOOP = 1.0, 2.0, 2.0  # cycles of a load; of an accumulator in and out; of a block
_L1, _L2 = 2.0, 12.0  # cycles of a line from L2, and from beyond
_LINE, _ITEM = 64, 4
_DEPTH = 5
"""Inner loops that are described one by one."""

Features = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class _Access:
    """An access: by how many elements it moves in an iteration of every loop."""

    moves: tuple[int, ...]

    def elements(self, extents: Sequence[int], start: int) -> int:
        """Elements that the loops from `start` inwards touch, at most."""
        return math.prod(e for e, m in zip(extents[start:], self.moves[start:]) if m)

    def lines(self, extents: Sequence[int], start: int) -> float:
        """Cache lines that they touch."""
        near = math.prod(
            e for e, m in zip(extents[start:], self.moves[start:]) if 0 < m * _ITEM < _LINE
        )
        return self.elements(extents, start) / near * max(1.0, near * _ITEM / _LINE)


def features(state: State) -> Features:
    """Numbers that say how fast a schedule runs: logarithms, so that they are of one size."""
    chosen = inner_loops(state.hand, state.problem.target, state.problem.accesses)
    accesses = _accesses(state)
    parts = _parts(state, chosen, accesses)
    numbers = [math.log2(1e-3 + x) for x in parts]
    numbers += [chosen.vector, len(state.loops), len(state.loops) - chosen.outside]
    numbers += _contiguous(state, accesses[-1])
    for n in range(1, _DEPTH + 1):
        numbers += _described(state, accesses, len(state.loops) - n)
    return np.array(numbers, np.float32)


def estimate(state: State) -> float:
    """Share of the peak, by the analytical estimate alone."""
    return float(2.0 ** features(state)[0])


def _parts(
    state: State, chosen: InnerLoops, accesses: Sequence[_Access]
) -> list[float]:
    """The share of the peak that is to be expected, and what it follows from, most of it in
    cycles of each operation of a full vector."""
    at, target = chosen.outside, state.problem.target
    sizes = [loop.size for loop in state.loops]
    extents = [*sizes[:-1], -(-sizes[-1] // chosen.vector)]
    vectors = math.prod(extents)
    reduced = [e if loop.reduce else 1 for e, loop in zip(extents, state.loops)]
    summed = math.prod(reduced[at:])
    operations = chosen.registers * summed
    split = any(r > 1 for r in reduced[:at])
    loads = sum(a.elements(extents, at) for a in accesses[:-1]) / operations
    latency = max(1.0, _LATENCY / chosen.registers)
    parts = _PARTS * chosen.registers / operations * (1.0 if split else 0.5)
    overhead = _LOOP / operations
    l1 = _misses(accesses, sizes, target.l1_bytes) / vectors * _L1
    l2 = _misses(accesses, sizes, target.l2_bytes) / vectors * _L2
    cycles = max(latency, loads * _LOADS + parts) + overhead + l1 + l2
    full = chosen.vector / target.lanes(_ITEM) * _useful(state)
    first = next((n for n, loop in enumerate(state.loops) if loop.reduce), 0)
    held = math.prod(e for e, loop in zip(extents[first:], state.loops[first:]) if not loop.reduce)
    return [full / cycles, latency, loads, parts, overhead, l1, l2, operations, summed, held]


def _misses(accesses: Sequence[_Access], extents: Sequence[int], cache: int) -> float:
    """Lines of a cache that are loaded: those that the largest inner part which fits touches, each
    time that it runs with other ones."""
    start = len(extents)
    while start and sum(a.lines(extents, start - 1) for a in accesses) * _LINE <= cache:
        start -= 1
    total = 0.0
    for a in accesses:
        times, moved = 1, False
        for e, m in zip(reversed(extents[:start]), reversed(a.moves[:start])):
            moved = moved or bool(m)  # kept, until a loop moves it
            times *= e if moved else 1
        total += times * a.lines(extents, start)
    return total


def _useful(state: State) -> float:
    """Share of the operations that are not done twice, where tiles overlap."""
    wanted = math.prod(state.problem.start.nest.extents.values())
    return wanted / math.prod(x.size for x in state.loops)


def _contiguous(state: State, result: _Access) -> list[float]:
    """The innermost loop of neighbours in the result: how many loops stand inside of it, how many
    iterations these have, and its size. The compiler makes vectors of it where it can."""
    for n, loop in enumerate(reversed(state.loops)):
        if result.moves[-1 - n] == 1:
            inside = math.prod(x.size for x in state.loops[len(state.loops) - n :])
            return [float(n), math.log2(inside), math.log2(loop.size)]
    return [float(len(state.loops)), 0.0, 0.0]


def _accesses(state: State) -> list[_Access]:
    return [
        _Access(tuple(abs((a[x.place.axis] or 0) * x.place.step) for x in state.loops))
        for a in state.problem.accesses
    ]


def _described(state: State, accesses: Sequence[_Access], at: int) -> list[float]:
    """A loop: its size, tail, kind, and how far operands and the result move."""
    if at < 0:
        return [0.0] * 6
    loop = state.loops[at]
    moves = [a.moves[at] for a in accesses]
    steps = [math.log2(1 + sum(moves[:-1])), math.log2(1 + max(moves[:-1])), float(moves[-1] > 0)]
    return [math.log2(loop.size), float(loop.tail > 0), float(loop.reduce), *steps]
