"""`PlacedModel`: a network whose steps run on the processor and on a GPU."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loopwright.codegen.either.placed import PlacedLibrary, PlacedPlan
from loopwright.codegen.either.placed_file import with_placed
from loopwright.dsl.words import brief, counted
from loopwright.graph.compile.call import ModelCall
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.errors import ModelError
from loopwright.graph.placed.path import GPU, Problem
from loopwright.graph.placed.path import Path as Way
from loopwright.graph.placed.plan import planned, runs
from loopwright.graph.placed.steps import GpuStep
from loopwright.graph.tasks import Work


@dataclass(frozen=True, eq=False)
class Placement:
    """Devices of the steps of a network, and why. Print it, or read its attributes: the `path` of
    least predicted time, and `others`, such as all steps on the processor."""

    problem: Problem
    path: Way
    others: Mapping[str, Way]
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
            functions = ", ".join(steps[n].function for n in numbers)
            lines.append(
                f"{device}: steps {numbers[0]} to {numbers[-1]} ({functions}), "
                f"{seconds * 1e6:.4g} µs" + "".join(self._moved(first, last))
            )
        lines += [f"at the end{part}" for part in self._moved(len(self.path.devices), None)]
        return "\n".join(lines)

    __repr__ = __str__

    def at(self, devices: Mapping[int, str] | Sequence[str]) -> Placement:
        """The placement with these devices, as `PlacedModel.at` takes them."""
        problem = self.problem
        if not isinstance(devices, Mapping):
            listed = isinstance(devices, Sequence) and len(devices) == len(problem.units)
            if not listed or any(d not in s for d, s in zip(devices, problem.seconds)):
                raise ModelError(
                    f'devices = {brief(devices)}: give a mapping, such as {{0: "gpu"}}, or for '
                    f"each of {counted(len(problem.units), 'unit')} a device that it can run on"
                )
            return replace(self, path=problem.along(devices))
        steps, seconds = self.work.network.steps, list(problem.seconds)
        unit_of = {n: k for k, unit in enumerate(problem.units) for n in unit.steps}
        for number, device in devices.items():
            if number not in unit_of:
                raise ModelError(f"no step {number!r}: steps are 0 to {len(steps) - 1}")
            k = unit_of[number]
            if device not in problem.seconds[k]:
                raise ModelError(
                    f"step {number}, {steps[number].function}, cannot run on {device!r}: give "
                    + " or ".join(f'"{d}"' for d in problem.seconds[k])
                )
            seconds[k] = {device: problem.seconds[k][device]}
        path = replace(problem, seconds=tuple(seconds)).shortest()
        return replace(self, path=path)

    def _moved(self, first: int, last: int | None) -> Iterator[str]:
        for m in self.path.moves:
            if first <= m.before <= (first if last is None else last):
                yield f", {m.value.name} to the {m.to} {m.seconds * 1e6:.4g} µs"


def _sum(path: Way) -> str:
    moved = sum(m.seconds for m in path.moves)
    parts = {**path.spent, "transfers": moved}
    shown = " + ".join(f"{name} {seconds * 1e6:.4g}" for name, seconds in parts.items())
    return f"{path.total * 1e6:.4g} µs = {shown}"


@dataclass(frozen=True, eq=False)
class PlacedModel:
    """A network on two devices, each step where the whole is predicted to end first.

    ::

        model = lw.build_model(net, inputs, targets=["cpu", "opencl"])
        model(x)                     # as a `TunedModel`
        model.explain()              # which step where, and the sums
        model.export("net.so")       # `lw.either(cpu=lw.load("net.so"))` runs it as here

    One call at a time runs.

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
        """The device of each step, with the predicted times; nothing runs."""
        return self.placement

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Computes, as a `TunedModel` does."""
        return self._call(*inputs, **named)

    @functools.cached_property
    def _call(self) -> ModelCall:
        return replace(self.cpu._call, library=self._runner)

    @functools.cached_property
    def _runner(self) -> PlacedLibrary:
        plan, started = self._planned
        return PlacedLibrary(self.cpu.library, [s.library for s in started if s.library], plan)

    @functools.cached_property
    def _planned(self) -> tuple[PlacedPlan, list[GpuStep]]:
        problem, path = self.placement.problem, self.placement.path
        return planned(self.cpu.linked, self.cpu.work.network, problem, path, self.steps)

    def export(self, path: str | os.PathLike[str], extras: Sequence[str] = ()) -> Path:
        """Writes NAME.so, NAME.h and NAME.json, with the code and the weights of both devices
        inside. `lw.either(cpu=lw.load(path))` runs the steps where they run here; C calls the
        processor's, which has all of them. `extras` as `Library.export` has them."""
        plan, started = self._planned
        made = with_placed(
            self.cpu.library, plan, [s.held for s in started], str(self.placement), path
        )
        return made.export(path, extras)

    def at(self, devices: Mapping[int, str] | Sequence[str]) -> PlacedModel:
        """The same network with another placement: "cpu" or "gpu" for some steps by number, all
        others where the whole then ends first, or for every unit. Raises `ModelError`."""
        return replace(self, placement=self.placement.at(devices))

    def __repr__(self) -> str:
        on_gpu = self.placement.path.devices.count(GPU)
        return f"<PlacedModel: {on_gpu} of {counted(len(self.steps), 'unit')} on the GPU>"
