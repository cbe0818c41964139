"""`OpenEither`: a choice at every call, for a workload whose sizes are known only then."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.codegen.either.held import with_held
from loopwright.codegen.either.rows import RowsCall, rows_apart
from loopwright.codegen.either.sums import ON_GPU, DeviceChoice, Sum, measured_call, moving
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library import calls, foreign
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.open.library import OpenLibrary
from loopwright.costmodel.models.time_model import TimeModel, inputs_of_call
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.size import Dim, named
from loopwright.dsl.words import assigned, html_table
from loopwright.dsl.workload import Workload
from loopwright.schedule.open.samples import drawn

_DRAWN = 14  # sizes, beside the ends, at which the processor's kernel is measured
_KEPT = 512  # shapes whose choice is kept
_ARRAY = np.ndarray  # one look-up less for each array

Sizes = tuple[int, ...]
"""Values of the dims, in their order."""


@dataclass(frozen=True)
class OpenCosts:
    """Measurements of libraries that are joined: seconds of a call on the processor without its
    kernel, NN+C of the kernel (None where the GPU takes no sizes but those `known`), the sum of
    each library of the GPU, and the `least` seconds of a move there, and back."""

    launch: float
    kernel: TimeModel | None
    known: Mapping[Sizes, float]
    gpu: Mapping[Sizes, Sum]
    least: tuple[float, float]


@dataclass(frozen=True)
class _There:
    """The shape of an array on the GPU."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Chosen:
    run: Callable[..., Any]
    choice: DeviceChoice


class OpenEither:
    """A computation of open sizes on the processor, or on a GPU by libraries of fixed sizes.

    ::

        lib = lw.either(cpu=lw.build(w), gpu=[lw.build(w.at(n=n), target="opencl") for n in sizes])
        lib(x)                    # wherever it is predicted to end first
        lib.explain(x)            # which one, and the sums

    A library of the GPU serves its own sizes. Where rows are computed apart from each other, one
    of strict numerics serves fewer rows too. Other sizes run on the processor. NN+C predicts the
    time of its kernel, and transfers follow the bytes of the call.
    """

    def __init__(
        self, cpu: OpenLibrary, gpus: Mapping[Sizes, GpuLibrary], costs: OpenCosts
    ) -> None:
        """Use `either`."""
        self.cpu, self.gpus, self.costs = cpu, dict(gpus), costs
        self._workload = Workload.from_json(cpu.origin.extra["workload"])
        self._by_rows = rows_apart(self._workload)
        self._names = tuple(p.name for p in cpu.inputs)
        self._known: dict[tuple[Any, ...], _Chosen] = {}

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Inputs of a call, in order, without those bound; of the greatest sizes."""
        return self.cpu.inputs

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The numbers of the call, in order."""
        return self.cpu.dims

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Computes on the device that is predicted to be faster; see `Library.__call__`."""
        if named or len(inputs) != len(self._names):
            inputs, out = calls.told_apart(inputs, named, out, self._names, self.cpu._shown)
        return self._choose(inputs).run(*inputs, out=out)

    def explain(self, /, *inputs: Any, **named: Any) -> DeviceChoice:
        """Device that a call would run on, with the sums; nothing runs."""
        inputs, _ = calls.told_apart(inputs, named, None, self._names, self.cpu._shown)
        return self._choose(inputs).choice

    def on_gpu(self, /, *inputs: Any) -> Callable[..., Any]:
        """The library that runs calls of these shapes on the GPU, by prediction the fastest.
        Raises `ShapeError` where it has none for them."""
        values, _ = self._sizes(tuple(map(_place, inputs)))
        serving = self._serving(values, set())
        if not serving:
            raise self._missing("", values)
        return self._gpu_call(next(iter(serving)), values)

    def bind(self, /, **values: Any) -> OpenEither:
        """The computation with these inputs fixed on both devices, which moves them no more."""
        gpus = {sizes: gpu.bind(**values) for sizes, gpu in self.gpus.items()}
        return OpenEither(self.cpu.bind(**values), gpus, self.costs)  # type: ignore[arg-type]

    def export(self, path: str | os.PathLike[str], extras: Sequence[str] = ()) -> Path:
        """Write one library for all devices; see `Either.export`."""
        return with_held(self.cpu, list(self.gpus.values()), path).export(path, extras)

    def _choose(self, inputs: Sequence[Any]) -> _Chosen:
        key = tuple([x.shape if type(x) is _ARRAY else _place(x) for x in inputs])
        found = self._known.get(key)
        if found is None:
            found = self._decided(key)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = found
        return found

    def _sizes(self, key: tuple[Any, ...]) -> tuple[dict[str, int], set[str]]:
        """The values of the dims for the shapes of a call, and the inputs on the GPU."""
        there = {n for n, k in zip(self._names, key, strict=True) if isinstance(k, _There)}
        shapes = [k.shape if isinstance(k, _There) else k for k in key]
        given = dict(zip(self._names, shapes, strict=True))
        signature = self.cpu.open_signature
        return signature.solve([given.get(p.name, p.shape) for p in signature.inputs]), there

    def _decided(self, key: tuple[Any, ...]) -> _Chosen:
        values, there = self._sizes(key)
        sizes, serving = tuple(values.values()), self._serving(values, there)
        if there:
            if sizes not in serving:
                raise self._missing(f"{ON_GPU}: ", values)
            choice = DeviceChoice("gpu", {"gpu": serving[sizes]}, ON_GPU)
            return _Chosen(self.gpus[sizes], choice)
        kernel = self._kernel(sizes)
        sums = {} if kernel is None else {"cpu": Sum(self.costs.launch, {}, kernel)}
        if not serving:
            note = f"the GPU has no library for {assigned(values)}"
            return _Chosen(self.cpu._at(values), DeviceChoice("cpu", sums, note))
        own = next(iter(serving))
        sums["gpu"] = serving[own]
        device = "gpu" if sums["gpu"].total < sums["cpu"].total else "cpu"
        names = assigned(dict(zip(values, own, strict=True)))
        note = "" if own == sizes else f"the GPU's library is that of {names}"
        run = self.cpu._at(values) if device == "cpu" else self._gpu_call(own, values)
        return _Chosen(run, DeviceChoice(device, sums, note))

    def _gpu_call(self, own: Sizes, values: Mapping[str, int]) -> Callable[..., Any]:
        gpu = self.gpus[own]
        if own == tuple(values.values()):
            return gpu
        return RowsCall(gpu, self.cpu.open_signature.at(values))

    def _serving(self, values: Mapping[str, int], there: set[str]) -> dict[Sizes, Sum]:
        """The libraries of the GPU that can compute a call, the fastest one first."""
        sizes = tuple(values.values())
        found = {}
        for own, gpu in self.gpus.items():
            fits = all(n <= most for n, most in zip(sizes, own, strict=True))
            # Rows may be added to each other where numerics are not strict, as by Strassen.
            apart = self._by_rows and gpu.origin.extra.get("numerics") == "strict"
            if own == sizes or (fits and apart):
                found[own] = self._moved(own, values, there)
        return dict(sorted(found.items(), key=lambda item: item[1].total))

    def _missing(self, why: str, values: Mapping[str, int]) -> ShapeError:
        return ShapeError(
            f"{why}the GPU has no library for {assigned(values)}: it has those of "
            f"{self._shown()}; give it others, or arrays on the host"
        )

    def _kernel(self, sizes: Sizes) -> float | None:
        """Seconds of the processor's kernel: as measured, or as NN+C predicts them; None where it
        was not asked, as no GPU takes such sizes."""
        if sizes in self.costs.known or self.costs.kernel is None:
            return self.costs.known.get(sizes)
        inputs = inputs_of_call(self._workload, named(self.dims, sizes))
        return float(self.costs.kernel.predict([inputs])[0])

    def _moved(self, own: Sizes, values: Mapping[str, int], there: set[str]) -> Sum:
        """The sum of a library of the GPU, which moves as many bytes as the call has."""
        whole, signature = self.costs.gpu[own], self.cpu.open_signature
        moved = {}
        for p in (*signature.inputs, *signature.outputs):
            is_input = p in signature.inputs
            if is_input and (p.name not in self._names or p.name in there):
                continue
            if there and not is_input:
                continue
            seconds, least = whole.transfers[p.name], self.costs.least[0 if is_input else 1]
            all_of = p.at(dict(zip(values, own, strict=True))).nbytes
            part = p.at(values).nbytes / max(all_of, 1)
            moved[p.name] = seconds if seconds < least else least + part * (seconds - least)
        return replace(whole, transfers=moved)

    def _shown(self) -> str:
        return "; ".join(assigned(named(self.dims, own)) for own in self.gpus)

    def __repr__(self) -> str:
        return f"<OpenEither {self.cpu.open_signature}; GPU: {self._shown()}>"

    def _repr_html_(self) -> str:
        return html_table("OpenEither", {"cpu": self.cpu.open_signature, "gpu": self._shown()})


def _place(x: Any) -> Any:
    """The shape of an array that is none of NumPy's."""
    shape = tuple(getattr(x, "shape", None) or np.shape(x))
    return _There(shape) if foreign.on_gpu(x) else shape


def joined(cpu: OpenLibrary, gpus: Mapping[Sizes, GpuLibrary]) -> OpenEither:
    """The libraries with their costs, measured now on arrays of ones."""
    workload, dims = Workload.from_json(cpu.origin.extra["workload"]), cpu.dims
    wanted = dict.fromkeys(gpus)
    if rows_apart(workload):
        most = [max(own[k] for own in gpus) for k in range(len(dims))]
        box = [replace(d, high=n) for d, n in zip(dims, most, strict=True)]
        wanted.update(dict.fromkeys(drawn(box, _DRAWN)))
    all_values = [named(dims, sizes) for sizes in wanted]
    sums = {
        s: measured_call(cpu._at(values)) for s, values in zip(wanted, all_values, strict=True)
    }
    kernel = None
    if len(sums) > len(gpus):
        kernel = TimeModel([*(d.name for d in dims), "c"])
        rows = [inputs_of_call(workload, values) for values in all_values]
        kernel.fit(rows, [max(each.kernel, 1e-9) for each in sums.values()])
    program, few = next(iter(gpus.values()))._running, np.ones(1, np.float32)
    costs = OpenCosts(
        statistics.median(each.launch for each in sums.values()),
        kernel,
        {sizes: each.kernel for sizes, each in sums.items()},
        {sizes: measured_call(gpu) for sizes, gpu in gpus.items()},
        (moving(program, few, True), moving(program, few, False)),
    )
    return OpenEither(cpu, gpus, costs)


def sized(cpu: OpenLibrary, gpu: GpuLibrary) -> Sizes:
    """The sizes of a GPU's library. Raises `ShapeError` where it is of another workload or has
    other inputs bound, `RangeError` for sizes that the dims do not take."""
    signature = cpu.open_signature
    values = signature.solve([p.shape for p in gpu.signature.inputs])
    at: Signature = signature.at(values)
    pairs = ((at.inputs[1:], gpu.signature.inputs), (at.outputs, gpu.signature.outputs))
    same = all([_kind(p) for p in a] == [_kind(p) for p in b] for a, b in pairs)
    if not same or [p.name for p in cpu.inputs] != [p.name for p in gpu.inputs]:
        raise ShapeError(
            f"{signature} on the processor, {gpu.signature} on the GPU: build both of one "
            "workload, and bind the same inputs"
        )
    return tuple(values.values())


def _kind(p: Parameter) -> tuple[str, tuple[int, ...], str]:
    return p.name, p.shape, p.dtype
