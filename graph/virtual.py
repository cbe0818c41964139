"""Models that are more than a list of calls: they run on Relax's virtual machine.

Control flow, shapes that depend on data, and operators that call TVM's run-time need it. Functions
that the notation can say are still ours; an export needs TVM's run-time where it is loaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from loopwright.codegen.target import tvm_target
from loopwright.dsl.errors import BuildError, ShapeError
from loopwright.graph.apply import apply
from loopwright.schedule.target import Target


@dataclass(frozen=True, eq=False)
class VirtualModel:
    """A model on Relax's virtual machine; called with NumPy arrays or torch tensors.

    `notes` say why it is not a library of its own.
    """

    executable: Any
    machine: Any
    names: tuple[str, ...]
    types: tuple[tuple[tuple[int, ...], str], ...]
    notes: tuple[str, ...]

    def __call__(self, *inputs: Any) -> Any:
        """Computes; NumPy arrays come out. Raises `ShapeError` for a wrong input."""
        if len(inputs) != len(self.names):
            raise ShapeError(f"{len(inputs)} inputs; the model takes {', '.join(self.names)}")
        arrays = []
        for name, (shape, dtype), x in zip(self.names, self.types, inputs):
            array = np.asarray(x.detach() if hasattr(x, "detach") else x)
            if array.shape != shape or str(array.dtype) != dtype:
                raise ShapeError(
                    f"{name} is {array.dtype}{list(array.shape)}; it must be {dtype}{list(shape)}"
                )
            arrays.append(tvm.runtime.tensor(array))
        result = self.machine["main"](*arrays)
        if hasattr(result, "numpy"):
            return result.numpy()
        return tuple(x.numpy() for x in result)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Writes one shared object; `tvm.runtime.load_module` loads it."""
        path = Path(path)
        self.executable.export_library(str(path))
        return path


def build_virtual(
    module: Any,
    target: Target,
    records: str | os.PathLike[str] | None,
    policy: str,
    reason: str,
) -> VirtualModel:
    """Compile a fused module for the virtual machine. Raises `BuildError`."""
    main = module["main"]
    types = tuple((tuple(int(n) for n in p.ty.shape), str(p.ty.dtype)) for p in main.params)
    changed = apply(records, target, policy=policy, defaults=True)(module)
    try:
        executable = tvm.compile(changed, tvm_target(target))
        machine = relax.VirtualMachine(executable, tvm.cpu())
    except Exception as error:  # TVM's errors have no root of their own
        raise BuildError(f"TVM could not compile the model: {error}") from error
    names = tuple(p.name for p in main.params)
    note = f"it runs on TVM's virtual machine: {reason}"
    return VirtualModel(executable, machine, names, types, (note,))
