"""`Either`: one callable of two libraries of fixed sizes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopwright.codegen.either.held import with_held
from loopwright.codegen.either.sums import ON_GPU, DeviceChoice, Sum
from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library import calls, foreign
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.words import html_table


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

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Computes on the device that is predicted to be faster; see `Library.__call__`."""
        if named or len(inputs) != len(self._names):
            signature = self.cpu._shown
            inputs, out = calls.told_apart(inputs, named, out, self._names, signature)
        outputs = out if isinstance(out, (tuple, list)) else (out,)
        there = self._on_host == "gpu" or any(map(foreign.on_gpu, (*inputs, *outputs)))
        return (self.gpu if there else self.cpu)(*inputs, out=out)

    def explain(self, /, *inputs: Any, **named: Any) -> DeviceChoice:
        """Device that a call would run on, with the sums; nothing runs. Raises `ShapeError`."""
        inputs, _ = calls.told_apart(inputs, named, None, self._names, self.cpu._shown)
        for parameter, x in zip(self.inputs, inputs):
            shape = getattr(x, "shape", parameter.shape)
            if tuple(shape) != parameter.shape:
                raise ShapeError(
                    f"{parameter.name} has shape {tuple(shape)}; the library was built for "
                    f"{parameter.shape}"
                )
        there = {name for name, x in zip(self._names, inputs) if foreign.on_gpu(x)}
        if not there:
            return DeviceChoice(self._on_host, self._sums)
        whole = self._sums["gpu"]
        moved = {
            name: seconds
            for name, seconds in whole.transfers.items()
            if name in self._names and name not in there
        }
        return DeviceChoice("gpu", {"gpu": replace(whole, transfers=moved)}, ON_GPU)

    def bind(self, /, **values: Any) -> Either:
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
        return with_held(self.cpu, [self.gpu], path).export(path, extras)
