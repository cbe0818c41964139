"""Rows: calls of a GPU's library with fewer rows than it was built for."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from loopwright.codegen.gpu.library import GpuLibrary
from loopwright.codegen.library import calls
from loopwright.codegen.library.calls import Slot
from loopwright.codegen.library.signature import Signature
from loopwright.codegen.library.torch_tensors import any_tensor, to_torch
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Extent, Gather, Read
from loopwright.dsl.size import Size
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import walk
from loopwright.dsl.workload import Workload, defined, tensor_shape


def rows_apart(workload: Workload) -> bool:
    """Return whether rows of results follow from the same rows of the operands alone.

    The only open axis of a tensor is then the first one, and what is computed of n rows is the
    beginning of what is computed of more. Inputs of integers are refused: rows that nobody wrote
    might be divisors.
    """
    inputs = (t for t in workload.inputs if _open(t))
    return all(_is_row(t) and is_float(t.dtype) for t in inputs) and all(
        _by_rows(stage) for stage in workload.stages
    )


def _open(tensor: Tensor) -> bool:
    return any(isinstance(n, Size) for n in tensor_shape(tensor))


def _is_row(tensor: Tensor) -> bool:
    """Return whether the first axis is a dim itself, and no other is open."""
    first, *rest = tensor_shape(tensor)
    dim = isinstance(first, Size) and len(first.dims) == 1 and str(first) == first.dims[0].name
    return dim and not any(isinstance(n, Size) for n in rest)


def _by_rows(stage: Tensor) -> bool:
    definition = defined(stage)
    if _open(stage) and not _is_row(stage):
        return False
    if any(isinstance(k.extent, Size) for k in definition.reduce):
        return False
    for part in walk(definition.body):
        if isinstance(part, (Extent, Gather)):
            return False
        if isinstance(part, Read) and _open(part.tensor):
            same = _open(stage) and tensor_shape(part.tensor)[0] == tensor_shape(stage)[0]
            if not same or part.index[0].plain() != definition.axes[0]:
                return False
    return True


@dataclass(frozen=True, eq=False)
class RowsCall:
    """A GPU's library, called with arrays of fewer rows.

    Its memory holds anything in the other rows, which are computed and not read back.
    """

    library: GpuLibrary
    signature: Signature

    @functools.cached_property
    def _slots(self) -> tuple[dict[str, Slot], list[Slot]]:
        inputs = {p.name: Slot.of(p) for p in self.signature.inputs}
        return inputs, [Slot.of(p) for p in self.signature.outputs]

    def __call__(self, /, *inputs: Any, out: Any = None) -> Any:
        """Computes; see `Library.__call__`."""
        gpu, program = self.library, self.library._running
        slots, outputs = self._slots
        wanted = [array for array, _, _ in calls.take_outputs(out, outputs)]
        memory = {}
        for whole, value in zip(gpu.inputs, inputs, strict=True):
            memory[whole.name] = program.allocate(whole.nbytes)
            program.write(memory[whole.name], slots[whole.name].read(value)[0])
        results = [program.allocate(p.nbytes) for p in gpu.signature.outputs]
        memory.update(zip((p.name for p in gpu.signature.outputs), results, strict=True))
        gpu._start(program, memory)
        for each, array in zip(results, wanted, strict=True):
            program.read(each, array)
        if out is not None:
            return out
        made = tuple(map(to_torch, wanted)) if any_tensor(inputs) else tuple(wanted)
        return made[0] if len(made) == 1 else made
