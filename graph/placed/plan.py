"""From a placement to the plan of a call: parts of the processor's plan, copies, launches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from loopwright.codegen.either.placed import Copy, Launch, Part, PlacedPlan
from loopwright.codegen.library.plan import ARENA, ARGUMENTS, Place
from loopwright.graph.compile.entries import Entry
from loopwright.graph.compile.memory_plan import Lifetime, shelves
from loopwright.graph.network import Network, Value
from loopwright.graph.placed.path import GPU, Move, Path, Problem
from loopwright.graph.placed.steps import GpuStep, shared


def runs(devices: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Units that follow each other on one device: that, the first and the last one."""
    start = 0
    for device, some in itertools.groupby(devices):
        stop = start + len(list(some))
        yield device, start, stop - 1
        start = stop


class Laid(Protocol):
    """A network whose library has its entries in order, and a place for each value."""

    @property
    def entries(self) -> tuple[Entry, ...]: ...

    @property
    def arena_bytes(self) -> int: ...

    @property
    def place(self) -> Callable[[Value], Place]: ...


def planned(
    linked: Laid, network: Network, problem: Problem, path: Path, steps: Sequence[GpuStep | None]
) -> tuple[PlacedPlan, list[GpuStep]]:
    """The plan of a path, and the steps whose libraries it starts, by their numbers.

    Values lie on the processor where its own plan has them: a value that the GPU makes has its
    place there from the step that would make it to the last one that reads it.
    """
    used = [s for s, d in zip(steps, path.devices, strict=True) if d == GPU and s]
    started = [step for step in used if step.library is not None]
    if used and not started:  # reshapes have no library, and another step's has the memory
        started = [next(s for s in steps if s and s.library)]
    block, sizes = _blocks(problem, path, shared(used))
    spans = _spans(linked.entries, network, problem)
    work: list[Part | Copy | Launch] = []

    def run(first: int, stop: int) -> None:
        last = work[-1] if work else None
        if isinstance(last, Part) and last.stop == first:
            work[-1] = Part(last.first, stop)
        elif first < stop:
            work.append(Part(first, stop))

    def copy(moves: Sequence[Move]) -> None:
        for m in moves:
            place, up = linked.place(m.value), m.to == GPU
            written = place.space == ARENA or place.space >= ARGUMENTS + len(network.inputs)
            if up or written:  # else it is a part of what is there
                size = m.value.nbytes
                work.append(Copy(up, place.space, int(place.offset), size, block[m.value]))

    run(0, spans[0])
    for device, first, last in runs(path.devices):
        copy([m for m in path.moves if first <= m.before <= last])
        if device != GPU:
            run(spans[first], spans[last + 1])
            continue
        for step in steps[first : last + 1]:
            if step is not None and step.library is not None:
                blocks = {name: block[v] for name, v in step.values.items()}
                work.append(Launch(started.index(step), blocks))
    copy([m for m in path.moves if m.before == len(problem.units)])
    run(spans[-1], len(linked.entries))
    return PlacedPlan(linked.arena_bytes, tuple(sizes), tuple(work)), started


def _spans(entries: Sequence[Entry], network: Network, problem: Problem) -> list[int]:
    """The first entry of each unit, and after all the first of those that copy outputs."""
    unit_of = {n: k for k, unit in enumerate(problem.units) for n in unit.steps}
    loop_of = {
        loop: unit_of[n] for n, s in enumerate(network.steps) if (loop := s.loop) is not None
    }
    found: list[int] = []
    head = sum(1 for _ in itertools.takewhile(_copies_input, entries))
    number = head
    for number, entry in enumerate(entries[head:], head):
        if entry.step < 0 and isinstance(entry.values[1], Place):
            break
        if entry.step >= 0:
            unit = unit_of[entry.step]
        elif entry.loop is not None:
            unit = loop_of[entry.loop]
        else:  # before a loop, which comes next
            unit = next(loop_of[e.loop] for e in entries[number:] if e.loop is not None)
        found += [number] * (unit + 1 - len(found))
    else:
        number = len(entries)
    return found + [number] * (len(problem.units) + 1 - len(found))


def _copies_input(entry: Entry) -> bool:
    return entry.step < 0 and isinstance(entry.values[0], Place)


def _blocks(
    problem: Problem, path: Path, roots: Mapping[Value, Value]
) -> tuple[dict[Value, int], list[int]]:
    """The block of the GPU's memory for each value that is there at some time, and the bytes of
    each block. Values that never meet share one."""
    uses: dict[Value, list[int]] = {}
    values: dict[Value, Value] = {}

    def use(v: Value, at: int) -> None:
        values[v] = roots.get(v, v)
        uses.setdefault(values[v], []).append(at)

    for k, (unit, device) in enumerate(zip(problem.units, path.devices, strict=True)):
        for v in (*unit.reads, *unit.makes) if device == GPU else ():
            use(v, k)
    first = {k: start for _, start, last in runs(path.devices) for k in range(start, last + 1)}
    for m in path.moves:  # those of a run are made before it
        use(m.value, m.before)
        use(m.value, first.get(m.before, m.before))
    lives = [Lifetime(v.number, v.nbytes, min(at), max(at)) for v, at in uses.items()]
    found = shelves(lives)
    numbers = {life.key: n for n, shelf in enumerate(found) for life in shelf}
    sizes = [max(life.nbytes for life in shelf) for shelf in found]
    return {v: numbers[root.number] for v, root in values.items()}, sizes
