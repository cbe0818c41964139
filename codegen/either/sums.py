"""Predicted seconds of a call on each device, and the few calls that they are measured by."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.codegen.devices.device import DeviceProgram
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library import arrays
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter

_SAMPLES = 7
_CALLS = 5  # of a kernel, for one sample


@dataclass(frozen=True)
class Sum:
    """Predicted seconds of a call on one device. `launch` includes its arguments and memory;
    `transfers` are of arrays, by name."""

    launch: float
    transfers: Mapping[str, float]
    kernel: float

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return self.launch + sum(self.transfers.values()) + self.kernel

    def __str__(self) -> str:
        parts = {"launch": self.launch, **self.transfers, "kernel": self.kernel}
        shown = " + ".join(f"{name} {seconds * 1e6:.4g}" for name, seconds in parts.items())
        return f"{self.total * 1e6:.4g} µs = {shown}"


@dataclass(frozen=True)
class DeviceChoice:
    """The device that a call runs on, and why. Print it, or read its attributes.

    Attributes
    ----------
    device: "cpu" or "gpu".
    sums: predicted seconds by device; of the GPU alone where an array lies there, of the
        processor alone where the GPU has no library for the sizes.
    note: why there is one sum alone, or which of several libraries runs.
    """

    device: str
    sums: Mapping[str, Sum]
    note: str = ""

    def __str__(self) -> str:
        lines = [
            f"{device}: {total}{', chosen' if device == self.device else ''}"
            for device, total in self.sums.items()
        ]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    __repr__ = __str__


ON_GPU = "an array lies on the GPU"


def measured(cpu: Library, gpu: GpuLibrary) -> dict[str, Sum]:
    """Sums of both devices for arrays on the host, from a few calls; medians."""
    return {"cpu": measured_call(cpu), "gpu": measured_call(gpu)}


def measured_call(library: Library) -> Sum:
    """Seconds of a call with arrays of ones on the host, from a few calls; medians."""
    given = [ones(p) for p in library.inputs]
    prepared = library.prepare_call(*given)
    prepared()
    kernel = median(lambda: float(prepared.repeat(_CALLS)[0]) / _CALLS)
    whole = median(timed(lambda: library(*given)))
    moved = _transfers(library, given) if isinstance(library, GpuLibrary) else {}
    return Sum(max(whole - kernel - sum(moved.values()), 0.0), moved, kernel)


def _transfers(gpu: GpuLibrary, given: Sequence[arrays.Array]) -> dict[str, float]:
    """Seconds of moving each input to the GPU, and each output back."""
    inputs = ((p, a, True) for p, a in zip(gpu.inputs, given))
    outputs = ((p, ones(p), False) for p in gpu.signature.outputs)
    return {p.name: moving(gpu._running, a, up) for p, a, up in (*inputs, *outputs)}


def moving(program: DeviceProgram, array: arrays.Array, up: bool) -> float:
    """Seconds of moving an array to the GPU, or back from there."""
    memory = program.allocate(array.nbytes)
    program.write(memory, array)

    def once() -> None:
        (program.write if up else program.read)(memory, array)
        program.finish()

    return median(timed(once))


def ones(parameter: Parameter) -> arrays.Array:
    """An array for a parameter whose elements are 1."""
    made = arrays.empty(parameter)
    made[...] = np.ones((), made.dtype)
    return made


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """A function that returns the seconds of some work."""

    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return seconds


def median(sample: Callable[[], float]) -> float:
    """The median of a few samples, after one that warms up."""
    sample()
    return statistics.median(sample() for _ in range(_SAMPLES))
