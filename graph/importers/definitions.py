"""A network operator by operator: in the notation, or by functions of TVM's; and its loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import in_order, reads
from loopwright.graph.loops import Loop
from loopwright.graph.network import Network

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Definitions:
    """The tensors that one operator defines, each after those that it reads."""

    name: str
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Foreign:
    """One operator that functions of TVM's compute: its `network` takes the `inputs` and gives the
    `tensors`, which have no definition and the inputs as `operands`."""

    name: str
    network: Network
    inputs: tuple[Tensor, ...]
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Repeated:
    """Operators that are repeated: the iterations, whose rows and states are tensors without a
    definition, the `parts` that one computes, what all read of what is outside, and the
    results."""

    name: str
    loop: Loop[Tensor]
    parts: tuple[Definitions, ...]
    inputs: tuple[Tensor, ...]
    tensors: tuple[Tensor, ...]


Part = Definitions | Foreign | Repeated


@dataclass(frozen=True, eq=False)
class Written:
    """A network in the notation: `inputs` by the names of the model, `outputs` as tensors or known
    arrays, what each operator is, and what constant tensors hold. Inputs whose values decide what
    is computed are `fixed`, and none any more. `extents` are the least of axes that inputs of
    integers index. `folded` are the known results of operators that
    definitions read, or that are outputs, by name."""

    inputs: Mapping[str, Tensor]
    outputs: Sequence[Tensor | Array]
    definitions: Sequence[Part]
    arrays: Mapping[Tensor, Array]
    fixed: Mapping[str, Array]
    extents: Mapping[Tensor, int]
    folded: Mapping[str, Array]


def defined_by(results: Sequence[Any], seen: set[Tensor]) -> list[Tensor]:
    """The tensors that results need and that are not `seen`, each after those that it reads."""
    return list(in_order([t for t in results if isinstance(t, Tensor)], read_by, seen))


def read_by(tensor: Tensor) -> list[Tensor]:
    """Tensors that one is computed from, by a definition, TVM's functions, or a loop."""
    if tensor.definition is None:
        return list(tensor.operands)
    return list(dict.fromkeys(r.tensor for r in reads(tensor.definition.body)))
