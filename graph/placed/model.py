"""`PlacedModel`: a network whose steps run on the processor and on a GPU."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopwright.codegen.devices.device import DeviceProgram, Memory
from loopwright.codegen.library import arrays, calls
from loopwright.codegen.library.calls import Slot
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.words import counted
from loopwright.graph.compile.call import ModelCall
from loopwright.graph.compile.link import link
from loopwright.graph.compile.memory_plan import Lifetime, shelves
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.network import Network, Step, Value
from loopwright.graph.placed.path import GPU, Path, Problem
from loopwright.graph.placed.steps import GpuStep, shared
from loopwright.graph.tasks import Work


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the steps of a network run, and why. Print it, or read its attributes.

    Attributes
    ----------
    path: the one of least predicted time.
    others: those of all steps on the processor, and of all that can be on the GPU.
    """

    problem: Problem
    path: Path
    others: Mapping[str, Path]
    work: Work

    def __str__(self) -> str:
        steps = self.work.network.steps
        on_gpu = sum(
            len(u.steps) for u, d in zip(self.problem.units, self.path.devices) if d == GPU
        )
        lines = [f"{on_gpu} of {counted(len(steps), 'step')} on the GPU: {_sum(self.path)}"]
        lines += [f"{name}: {_sum(path)}" for name, path in self.others.items()]
        for device, first, last in runs(self.path.devices):
            units = range(first, last + 1)
            numbers = [n for k in units for n in self.problem.units[k].steps]
            seconds = sum(self.problem.seconds[k][device] for k in units)
            lines.append(
                f"{device}: steps {numbers[0]} to {numbers[-1]}, {seconds * 1e6:.4g} µs"
                + "".join(self._moved(first, last))
            )
        lines += [f"at the end{part}" for part in self._moved(len(self.path.devices), None)]
        return "\n".join(lines)

    __repr__ = __str__

    def _moved(self, first: int, last: int | None) -> Iterator[str]:
        for m in self.path.moves:
            if first <= m.before <= (first if last is None else last):
                yield f", {m.value.name} to the {m.to} {m.seconds * 1e6:.4g} µs"


def _sum(path: Path) -> str:
    moved = sum(m.seconds for m in path.moves)
    parts = {**path.spent, "transfers": moved}
    shown = " + ".join(f"{name} {seconds * 1e6:.4g}" for name, seconds in parts.items())
    return f"{path.total * 1e6:.4g} µs = {shown}"


def runs(devices: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Units that follow each other on one device: that, the first and the last one."""
    start = 0
    for device, some in itertools.groupby(devices):
        stop = start + len(list(some))
        yield device, start, stop - 1
        start = stop


@dataclass(frozen=True, eq=False)
class PlacedModel:
    """A network on two devices, each step where the whole is predicted to end first.

    ::

        model = lw.build_model(net, inputs, targets=["cpu", "opencl"])
        model(x)                     # as a `TunedModel`
        model.explain()              # which step where, and the sums

    It cannot be exported, and one call at a time runs.

    Attributes
    ----------
    cpu: the network on the processor alone, of which the steps that stay there are.
    steps: the program of each unit on the GPU; None where there is none.
    """

    cpu: TunedModel
    placement: Placement
    steps: tuple[GpuStep | None, ...]
    notes: tuple[str, ...]

    def explain(self) -> Placement:
        """Which step runs where, with the predicted times; nothing runs."""
        return self.placement

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Computes, as a `TunedModel` does."""
        return self._call(*inputs, **named)

    @functools.cached_property
    def _call(self) -> ModelCall:
        return replace(self.cpu._call, library=self._runner)

    @functools.cached_property
    def _runner(self) -> Runner:
        return Runner(self.cpu, self.placement, self.steps)

    def at(self, devices: Sequence[str]) -> PlacedModel:
        """The same network with another placement: "cpu" or "gpu" for every unit."""
        path = self.placement.problem.along(devices)
        return replace(self, placement=replace(self.placement, path=path))

    def __repr__(self) -> str:
        on_gpu = self.placement.path.devices.count(GPU)
        return f"<PlacedModel: {on_gpu} of {counted(len(self.steps), 'unit')} on the GPU>"


class Runner:
    """Runs the units of a network in order; a library for those that follow each other on the
    processor, programs in one order for those on the GPU."""

    def __init__(
        self, cpu: TunedModel, placement: Placement, steps: Sequence[GpuStep | None]
    ) -> None:
        self.network, self.inputs = cpu.work.network, cpu.library.inputs
        self._shown = str(cpu.library.signature)
        self._slots = [Slot.of(p) for p in self.inputs]
        self._lock = threading.Lock()
        path, units = placement.path, placement.problem.units
        used = [s for s, d in zip(steps, path.devices, strict=True) if d == GPU and s]
        # A reshape has no program of its own, but another step has: see `build.py`.
        program = next((s.library._running for s in steps if s and s.library), None)
        self._memory = {} if program is None else _memory(program, placement, used)
        self._do: list[Callable[[dict[Value, arrays.Array]], None]] = []
        for device, first, last in runs(path.devices):
            moves = [m for m in path.moves if first <= m.before <= last]
            self._do += [self._copy(m.value, m.to, program) for m in moves]
            if device == GPU:
                assert program is not None
                for k in range(first, last + 1):
                    step = steps[k]
                    if step is not None and step.library is not None:
                        self._do.append(_ignoring(step.launched(program, self._memory)))
                continue
            part = units[first : last + 1]
            made = [v for u in part for v in u.makes]
            read = dict.fromkeys(v for u in part for v in u.reads if v not in made)
            later = {v for u in units[last + 1 :] for v in u.reads} | set(self.network.outputs)
            wanted = [v for v in made if v in later]
            numbers = [n for u in part for n in u.steps]
            library = _linked(cpu, numbers, list(read), wanted)
            self._do.append(functools.partial(_compute, library, list(read), wanted))
        self._do += [
            self._copy(m.value, m.to, program) for m in path.moves if m.before == len(units)
        ]

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Outputs for arrays of the host, which are all copies."""
        names = [p.name for p in self.inputs]
        inputs = calls.positional(inputs, named, names, self._shown)
        given = [slot.read(value)[0] for slot, value in zip(self._slots, inputs)]
        with self._lock:
            here = dict(zip(self.network.inputs, given, strict=True))
            for work in self._do:
                work(here)
        taken = set(self.network.inputs)
        results = []
        for v in self.network.outputs:
            array = v.data if v.data is not None else here[v]
            known = v.data is not None or v in taken
            results.append(arrays.aligned_copy(array) if known else array)
            taken.add(v)
        return results[0] if len(results) == 1 else tuple(results)

    def _copy(
        self, value: Value, to: str, program: DeviceProgram | None
    ) -> Callable[[dict[Value, arrays.Array]], None]:
        assert program is not None, "only what was on the GPU is moved"
        memory = self._memory[value]

        def work(here: dict[Value, arrays.Array]) -> None:
            if to == GPU:
                program.write(memory, here[value])
            else:
                here[value] = arrays.empty(Parameter(value.name, value.shape, value.dtype))
                program.read(memory, here[value])

        return work


def _ignoring(start: Callable[[], None]) -> Callable[[Any], None]:
    return lambda here: start()


def _compute(
    library: Library, read: list[Value], made: list[Value], here: dict[Value, arrays.Array]
) -> None:
    results = library(*(here[v] for v in read))
    here.update(zip(made, results if isinstance(results, tuple) else (results,), strict=True))


def _memory(
    program: DeviceProgram, placement: Placement, steps: Sequence[GpuStep]
) -> dict[Value, Memory]:
    """Memory of the GPU for each value that is there at some time; values that never meet share
    one block."""
    path, units = placement.path, placement.problem.units
    roots = shared(steps)
    uses: dict[Value, list[int]] = {}
    values: dict[Value, Value] = {}

    def use(v: Value, at: int) -> None:
        values[v] = roots.get(v, v)
        uses.setdefault(values[v], []).append(at)

    for k, (unit, device) in enumerate(zip(units, path.devices, strict=True)):
        for v in (*unit.reads, *unit.makes) if device == GPU else ():
            use(v, k)
    first = {k: start for _, start, last in runs(path.devices) for k in range(start, last + 1)}
    for m in path.moves:  # those of a run are made before it
        use(m.value, m.before)
        use(m.value, first.get(m.before, m.before))
    lives = {
        root.number: Lifetime(root.number, root.nbytes, min(at), max(at))
        for root, at in uses.items()
    }
    blocks: dict[int, Memory] = {}
    for shelf in shelves(list(lives.values())):
        block = program.allocate(max(life.nbytes for life in shelf))
        blocks |= {life.key: block for life in shelf}
    return {v: blocks[root.number] for v, root in values.items()}


def _linked(
    cpu: TunedModel, numbers: Sequence[int], read: list[Value], made: list[Value]
) -> Library:
    """The library of some steps of a network, which reads and makes these values."""
    work, network = cpu.work, cpu.work.network
    taken = {v.name for v in network.inputs}
    names = (n for k in itertools.count() if (n := f"between{k}") not in taken)
    new = {v: v if v in network.inputs else replace(v, name=next(names)) for v in read}

    def known(v: Value) -> Value:
        return new.get(v, v)

    loops = {loop: loop.map(known) for loop in network.loops}
    steps = tuple(
        Step(s.function, tuple(map(known, s.args)), s.outs, s.loop and loops[s.loop])
        for s in (network.steps[n] for n in numbers)
    )
    part = Network(network.functions, tuple(new.values()), steps, tuple(made), len(made) > 1)
    imported = tuple(work.imported[n] for n in numbers)
    some = replace(work, network=part, imported=imported, tasks=(), source=None)
    return link(some, cpu.linked.configs, cpu.target, "segment").library
