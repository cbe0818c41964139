"""Models that are more than a list of calls: they run on Relax's virtual machine.

Control flow, shapes that depend on data, and operators that call TVM's run-time need it. Functions
that the notation can say are still ours; an export needs TVM's run-time where it is loaded.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from loopwright.codegen.library.arrays import as_array, check
from loopwright.codegen.library.calls import positional
from loopwright.codegen.library.export import check_path, check_place, write_together
from loopwright.codegen.library.signature import Parameter
from loopwright.codegen.library.torch_tensors import any_tensor, to_numpy, to_torch
from loopwright.codegen.tvm_target import tvm_target
from loopwright.dsl.errors import BuildError, LibraryError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.words import counted
from loopwright.graph.compile.relax_pass import BuildOptions, replaced, tasks_in
from loopwright.graph.importers.read import Source
from loopwright.graph.tasks import Task
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder
from loopwright.transfer.records.store import Record


@dataclass(frozen=True, eq=False)
class VmWork:
    """The work of such a model: its fused module, the distinct workloads, those with the most
    arithmetic first, the functions that keep TVM's path with the reasons, and the `reason` why it
    is more than a list of calls."""

    module: Any
    tasks: tuple[Task, ...]
    fallback: dict[str, str]
    source: Source
    reason: str
    numerics: Numerics

    @staticmethod
    def of(source: Source, module: Any, reason: str, numerics: Numerics) -> VmWork:
        """Work of a module that was fused."""
        return VmWork(module, *tasks_in(module), source, reason, numerics)

    def notes(self) -> list[str]:
        """Notes about the work, a line each."""
        paths = [f"{name} keeps TVM's path: {why}" for name, why in self.fallback.items()]
        threads = (
            "its parallel loops run on TVM's threads, as many as $TVM_NUM_THREADS says or else "
            "TVM chooses, whatever threads= is"
        )
        return [f"it runs on TVM's virtual machine: {self.reason}", threads, *paths]


@dataclass(frozen=True, eq=False, repr=False)
class VmModel:
    """A model on Relax's virtual machine; called with NumPy arrays or torch tensors.

    `work` says why it is not a library of its own, and `records` has the record that each tuned
    task was built by, by the workload's key; `left` says which could not be built. Calls from
    several threads take turns.
    """

    executable: Any
    machine: Any
    names: tuple[str, ...]
    types: tuple[tuple[tuple[int, ...], str], ...]
    work: VmWork
    records: Mapping[str, Record]
    left: tuple[str, ...]
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __repr__(self) -> str:
        tuned = f"{len(self.records)} of {counted(len(self.work.tasks), 'task')} tuned"
        return f"<VmModel: {tuned}, on TVM's virtual machine, {self.work.numerics} numerics>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes: why it is not a library of its own, and one line for everything that keeps TVM's
        path, or whose record cannot be built."""
        return (*self.work.notes(), *self.left)

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Computes. Inputs are arrays in the model's order, or by name.

        Returns arrays of the same kind, torch tensors if any input is one, else NumPy arrays, in
        a tuple where the model returns one. Raises `ShapeError` for a wrong input.
        """
        inputs = positional(inputs, named, self.names, f"model({', '.join(self.names)})")
        is_torch = any_tensor(inputs)
        if is_torch:
            inputs = tuple(to_numpy(x) for x in inputs)
        arrays = []
        for name, (shape, dtype), x in zip(self.names, self.types, inputs):
            parameter = Parameter(name, shape, dtype)
            array = as_array(x, parameter)
            check(array, parameter)
            arrays.append(tvm.runtime.tensor(array))
        with self.lock:  # a machine keeps the state of one call
            result = self.machine["main"](*arrays)
        return _given_back(result, to_torch if is_torch else np.asarray)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Writes one shared object, NAME.so; `tvm.runtime.load_module` loads it.

        Raises `LibraryError` for a bad name or place, `BuildError` where the toolchain fails.
        """
        path = Path(path)
        check_path(path)
        with TemporaryFolder() as folder:
            built = folder / path.name
            try:
                self.executable.export_library(str(built))
            except RuntimeError as error:  # of the linker
                raise BuildError(f"TVM could not link the model: {error}") from error
            code = built.read_bytes()
        write_together({path: code})
        with contextlib.suppress(LibraryError):  # what is beside is no library's of ours
            check_place(path)
            for beside in (".h", ".json"):  # of what this has taken the place of
                path.with_suffix(beside).unlink(missing_ok=True)
        return path


def build_vm(work: VmWork, target: Target, records: Mapping[str, Record]) -> VmModel:
    """Compile a model for the virtual machine, by records. Raises `BuildError`."""
    main = work.module["main"]
    types = tuple((tuple(int(n) for n in p.ty.shape), str(p.ty.dtype)) for p in main.params)
    wanted = BuildOptions(target, work.numerics, defaults=True)
    changed, failed = replaced(work.module, wanted, lambda w: records.get(w.key))
    try:
        executable = tvm.compile(changed, tvm_target(target))
        machine = relax.VirtualMachine(executable, tvm.cpu())
    except Exception as error:  # TVM's errors have no root of their own
        raise BuildError(f"TVM could not compile the model: {error}") from error
    names = tuple(p.name for p in main.params)
    used = {key: record for key, record in records.items() if key not in failed}
    left = tuple(f"its record cannot be built: {reason}" for reason in failed.values())
    return VmModel(executable, machine, names, types, work, used, left)


def _given_back(result: Any, kind: Callable[[Any], Any]) -> Any:
    """Arrays of what the machine returned; a shape is an array of int64, as in ONNX."""
    if isinstance(result, tvm_ffi.Array):
        return tuple(_given_back(each, kind) for each in result)
    return kind(result.numpy() if hasattr(result, "numpy") else np.array(result, np.int64))
