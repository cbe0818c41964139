"""Steps of a network as programs of a GPU, and their times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.codegen.build import build_fixed
from loopwright.codegen.devices.device import DeviceProgram
from loopwright.codegen.either.sums import moving, ones, timed
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library.arrays import Array
from loopwright.dsl.errors import LoopwrightError
from loopwright.graph.importers.tir import Imported
from loopwright.graph.network import Value
from loopwright.graph.placed.path import GPU
from loopwright.graph.tasks import Work
from loopwright.graph.transforms.reshape import only_reshapes
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

_SAMPLES = 5
_CALLS = 4  # of a step, for one sample: one is started while another runs
_LARGE = 1 << 20  # bytes by which the rate of transfers is measured


@dataclass(frozen=True, eq=False)
class GpuStep:
    """A step on a GPU: its library with the weights bound, and the value of each other argument. A
    reshape has no library. `plain` is the library before binding, which equal steps share."""

    library: GpuLibrary | None
    values: Mapping[str, Value]
    plain: GpuLibrary | None = None
    weights: Mapping[str, Array] = field(default_factory=dict)

    @property
    def held(self) -> tuple[GpuLibrary, Mapping[str, Array]]:
        """The library with nothing bound, and its weights, as files hold them."""
        assert self.plain is not None
        return self.plain, self.weights


def placeable(work: Work, number: int) -> bool:
    """Return whether a step may run on the GPU, if it has a program for it. Loops stay on the
    processor, and so does what indexes, which is checked there."""
    step = work.network.steps[number]
    return step.loop is None and all(v.extent is None for v in step.args)


@dataclass
class GpuSteps:
    """Builds the steps of a network for a GPU, by `configs` of the workload's key; equal work is
    compiled and timed once. `notes` say why steps stay on the processor."""

    work: Work
    target: Target
    configs: Mapping[str, Config]
    notes: list[str] = field(default_factory=list)
    _built: dict[str, GpuLibrary | None] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def step(self, number: int) -> GpuStep | None:
        """A step, by its number; None where it has no program for the GPU."""
        step, said = self.work.network.steps[number], self.work.imported[number]
        if not isinstance(said, Imported) or not placeable(self.work, number):
            return None
        given = (*step.args, *step.outs)
        workload = said.workload
        inputs = {t.name: given[i] for t, i in zip(workload.inputs, said.inputs, strict=True)}
        outputs = {t.name: given[i] for t, i in zip(workload.outputs, said.outputs, strict=True)}
        plain = {name: v for name, v in inputs.items() if v.data is None}
        if plain and only_reshapes(workload):
            return GpuStep(None, plain | outputs)
        library = self._library(number, said)
        if library is None:
            return None
        known = {p.name: p for p in library.signature.inputs}
        weights = {
            name: np.ascontiguousarray(v.data).reshape(known[name].shape)
            for name, v in inputs.items()
            if v.data is not None
        }
        bound = library.bind(**weights) if weights else library
        assert isinstance(bound, GpuLibrary)
        return GpuStep(bound, plain | outputs, library, weights)

    def seconds(self, number: int, step: GpuStep) -> float:
        """Seconds of a step among others: its start, and its kernels."""
        if step.library is None:
            return 0.0
        said = self.work.imported[number]
        assert isinstance(said, Imported)
        key = said.workload.key
        if key not in self._seconds:
            self._seconds[key] = _seconds(step.library)
        return self._seconds[key]

    def _library(self, number: int, said: Imported) -> GpuLibrary | None:
        key, name = said.workload.key, self.work.network.steps[number].function
        if key not in self._built:
            self._built[key] = None
            try:
                config = self.configs.get(key)
                made = build_fixed(said.workload, config, self.target, name, self.work.numerics)
                assert isinstance(made, GpuLibrary)
                made._running  # noqa: B018 - raises where this machine has no such GPU
                self._built[key] = made
            except LoopwrightError as error:
                reason = str(error).splitlines()[0]
                self.notes.append(f"{name} stays on the processor: {reason}")
        return self._built[key]


def _seconds(library: GpuLibrary) -> float:
    program = library._running
    held: dict[str, Any] = dict(library._bound)
    for p in library.signature.main_parameters:
        if p.name not in held:
            held[p.name] = program.allocate(p.nbytes)
            program.write(held[p.name], ones(p))
    arguments = [held[p.name] for p in library.signature.main_parameters]

    def some() -> None:
        for _ in range(_CALLS):
            program.run("main", arguments)
        program.finish()

    some()
    return statistics.median(timed(some)() for _ in range(_SAMPLES)) / _CALLS


def transfer_times(program: DeviceProgram) -> Callable[[int, str], float]:
    """Seconds of moving so many bytes to a device, on a line through two measured sizes."""
    sizes = (64, _LARGE)
    lines = {}
    for up in (True, False):
        least, most = (moving(program, np.ones(n, np.uint8), up) for n in sizes)
        lines[up] = least, max(most - least, 0.0) / (sizes[1] - sizes[0])

    def seconds(nbytes: int, device: str) -> float:
        least, rate = lines[device == GPU]
        return least + rate * nbytes

    return seconds


def shared(steps: Sequence[GpuStep]) -> dict[Value, Value]:
    """The value in whose memory each result of a reshape lies."""
    roots: dict[Value, Value] = {}
    for step in steps:
        if step.library is None:
            source, result = step.values.values()
            roots[result] = roots.get(source, source)
    return roots
