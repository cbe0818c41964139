"""`either`: one callable of two libraries, on the processor and on the GPU."""

from __future__ import annotations

import base64
import copy
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.gpu.library import GpuLibrary, load_code
from loopwright.codegen.library import arrays, calls, foreign
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Origin, Parameter, Signature
from loopwright.codegen.open.library import OpenLibrary
from loopwright.dsl.errors import LibraryError, ShapeError, TargetError
from loopwright.dsl.words import html_table

_HELD = "gpu"  # name of the GPU's code in the manifest of the processor's library
_SAMPLES = 7
_CALLS = 5  # of a kernel, for one sample


@dataclass(frozen=True)
class Sum:
    """Predicted seconds of a call on one device.

    Attributes
    ----------
    launch: of the call itself: arguments, memory, start.
    transfers: of each array that is moved, by name.
    kernel: of the program.
    """

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
    sums: predicted seconds by device; of the GPU alone where an array lies there.
    """

    device: str
    sums: Mapping[str, Sum]

    def __str__(self) -> str:
        lines = [
            f"{device}: {total}{', chosen' if device == self.device else ''}"
            for device, total in self.sums.items()
        ]
        return "\n".join([*lines, *([] if len(lines) > 1 else ["an array lies on the GPU"])])

    __repr__ = __str__


class Either:
    """A computation on the processor or on the GPU, wherever a call is predicted to end first.

    ::

        lib = lw.either(cpu=a, gpu=b)
        lib(x)                    # on one of them
        lib.explain(x)            # which one, and the sums
        lib.bind(W=w)(x)          # W laid out on both: it is moved no more

    The sum of a device is that of its launch, of transfers and of its kernel. On a tie it is the
    processor. A call with an array on the GPU runs there, where its results are wanted.
    """

    def __init__(self, cpu: Library, gpu: GpuLibrary, sums: Mapping[str, Sum]) -> None:
        """Use `either`. `sums` are those of a call whose arrays are on the host."""
        self.cpu, self.gpu, self._sums = cpu, gpu, dict(sums)
        self._names = tuple(p.name for p in cpu.inputs)
        self._on_host = "gpu" if sums["gpu"].total < sums["cpu"].total else "cpu"

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Inputs of a call, in order, without those bound."""
        return self.cpu.inputs

    def __repr__(self) -> str:
        return f"<Either {self.cpu.signature}; arrays of the host: {self._on_host}>"

    def _repr_html_(self) -> str:
        return html_table("Either", {name: str(total) for name, total in self._sums.items()})

    def _choose(self, inputs: Sequence[Any]) -> str:
        return "gpu" if any(map(foreign.on_gpu, inputs)) else self._on_host

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Computes on the device that is predicted to be faster; see `Library.__call__`."""
        if named or len(inputs) != len(self._names):
            signature = str(self.cpu.signature)
            inputs, out = calls.told_apart(inputs, named, out, self._names, signature)
        outputs = out if isinstance(out, (tuple, list)) else (out,)
        chosen = self._choose((*inputs, *outputs))
        return (self.gpu if chosen == "gpu" else self.cpu)(*inputs, out=out)

    def explain(self, /, *inputs: Any, **named: Any) -> DeviceChoice:
        """Device that a call would run on, with the sums; nothing runs."""
        inputs, _ = calls.told_apart(inputs, named, None, self._names, str(self.cpu.signature))
        there = {name for name, x in zip(self._names, inputs) if foreign.on_gpu(x)}
        if not there:
            return DeviceChoice(self._on_host, self._sums)
        whole = self._sums["gpu"]
        moved = {
            name: seconds
            for name, seconds in whole.transfers.items()
            if name in self._names and name not in there
        }
        return DeviceChoice("gpu", {"gpu": replace(whole, transfers=moved)})

    def bind(self, **values: Any) -> Either:
        """The computation with these inputs fixed on both devices, which moves them no more."""
        gpu = self._sums["gpu"]
        moved = {name: s for name, s in gpu.transfers.items() if name not in values}
        sums = {**self._sums, "gpu": replace(gpu, transfers=moved)}
        bound = self.gpu.bind(**values)
        assert isinstance(bound, GpuLibrary)
        return Either(self.cpu.bind(**values), bound, sums)

    def export(self, path: str | os.PathLike[str], extras: Sequence[str] = ()) -> Path:
        """Write the processor's library to `path` as `Library.export` does, with the GPU's code
        inside. `lw.either(cpu=lw.load(path))` joins both again; C calls the processor's.

        Raises `LibraryError` where something is bound or was loaded from a file, `BuildError`
        where the toolchain fails.
        """
        if self.gpu._bound or not self.gpu.code.image:
            raise LibraryError(
                f"{path}: what is bound or was loaded lies on the GPU, and a file has no place "
                "for it: export the libraries as they were built, and bind after loading"
            )
        held = {
            "signature": self.gpu.signature.to_json(),
            "target": self.gpu.origin.target,
            "code": base64.b64encode(self.gpu.code.to_bytes()).decode(),
        }
        cpu = copy.copy(self.cpu)
        cpu.origin = replace(cpu.origin, extra={**cpu.origin.extra, _HELD: held})
        return cpu.export(path, extras)


def either(
    *, cpu: Library, gpu: Library | None = None, sums: Mapping[str, Sum] | None = None
) -> Either:
    """Join two libraries of one computation, on the processor and on the GPU.

    Parameters
    ----------
    cpu, gpu: libraries with equal inputs and outputs, of fixed sizes. Without `gpu`, `cpu` was
        loaded from a file that `Either.export` wrote.
    sums: predicted seconds by "cpu" and "gpu" of a call whose arrays are on the host. If None, a
        few calls are measured now, on arrays of ones.

    Raises `TargetError` for libraries of other devices and where this machine has no such GPU,
    `ShapeError` for unlike ones, `LibraryError` where there is no code for a GPU.
    """
    gpu = _held(cpu) if gpu is None else gpu
    if isinstance(cpu, GpuLibrary) or not isinstance(gpu, GpuLibrary):
        found = [type(x).__name__ for x in (cpu, gpu)]
        raise TargetError(
            f"cpu={found[0]}, gpu={found[1]}: give a library of the processor as cpu, and one of "
            'a GPU as gpu, such as lw.build(workload, target="opencl")'
        )
    if isinstance(cpu, OpenLibrary):
        raise ShapeError(
            "the library for the processor has open sizes, which no library of a GPU has: give "
            f"that of one size, cpu.at({', '.join(f'{d.name}=…' for d in cpu.dims)})"
        )
    kinds = [
        [(p.name, p.shape, str(p.dtype)) for p in (*lib.inputs, *lib.signature.outputs)]
        for lib in (cpu, gpu)
    ]
    if kinds[0] != kinds[1]:
        raise ShapeError(
            f"{cpu.signature} on the processor, {gpu.signature} on the GPU: build both of one "
            "workload, and bind the same inputs"
        )
    if sums is None:
        sums = measured(cpu, gpu)
    if set(sums) != {"cpu", "gpu"}:
        raise LibraryError(f"sums of {', '.join(sums) or 'nothing'}: give those of cpu and gpu")
    return Either(cpu, gpu, sums)


def _held(cpu: Library) -> GpuLibrary:
    """The library of the GPU's code that a file holds beside the processor's."""
    held = cpu.origin.extra.get(_HELD)
    if held is None:
        raise LibraryError(
            f"{cpu.signature.name} holds no code for a GPU: give a library as gpu, or load a file "
            "that the `export` of lw.either(…) wrote"
        )
    origin = Origin(target=held["target"])
    return load_code(
        Signature.from_json(held["signature"]), base64.b64decode(held["code"]), origin
    )


def measured(cpu: Library, gpu: GpuLibrary) -> dict[str, Sum]:
    """Sums of both devices for arrays on the host, from a few calls; medians."""
    given = [_ones(p) for p in cpu.inputs]
    sums = {}
    for device, library in (("cpu", cpu), ("gpu", gpu)):
        prepared = library.prepare_call(*given)
        prepared()
        kernel = _median(lambda call=prepared: call.repeat(_CALLS)[0] / _CALLS)  # type: ignore[misc]
        whole = _median(_timed(lambda call=library: call(*given)))  # type: ignore[misc]
        moved = _transfers(gpu, given) if device == "gpu" else {}
        launch = max(whole - kernel - sum(moved.values()), 0.0)
        sums[device] = Sum(launch, moved, kernel)
    return sums


def _transfers(gpu: GpuLibrary, given: Sequence[arrays.Array]) -> dict[str, float]:
    """Seconds of moving each input to the GPU, and each output back."""
    program, moved = gpu._running, {}
    inputs = zip(gpu.inputs, given)
    outputs = ((p, _ones(p)) for p in gpu.signature.outputs)
    for move, pairs in ((program.write, inputs), (program.read, outputs)):
        for parameter, array in pairs:
            memory = program.allocate(parameter.nbytes)
            program.write(memory, array)

            def once(move: Any = move, memory: Any = memory, array: Any = array) -> None:
                move(memory, array)
                program.finish()

            moved[parameter.name] = _median(_timed(once))
    return moved


def _ones(parameter: Parameter) -> arrays.Array:
    made = arrays.empty(parameter)
    made[...] = np.ones((), made.dtype)
    return made


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return seconds


def _median(sample: Callable[[], float]) -> float:
    sample()  # warms up
    return statistics.median(sample() for _ in range(_SAMPLES))
