"""A network as it is written in the notation, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import reads

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Definitions:
    """The tensors that one operator defines, each after those that it reads."""

    name: str
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Written:
    """A network in the notation.

    Attributes
    ----------
    inputs: by the names of the model.
    outputs: tensors, or arrays where they are known.
    definitions: those of each operator, in order.
    arrays: what constant tensors hold.
    fixed: inputs of the model whose values decide what is computed: they are no inputs any more.
    """

    inputs: Mapping[str, Tensor]
    outputs: Sequence[Tensor | Array]
    definitions: Sequence[Definitions]
    arrays: Mapping[Tensor, Array]
    fixed: Mapping[str, Array]


def defined_by(results: Sequence[Any], seen: set[Tensor]) -> list[Tensor]:
    """The tensors that results need and that are not `seen`, each after those that it reads."""
    order: dict[Tensor, None] = {}
    stack = [(t, False) for t in reversed(results) if isinstance(t, Tensor)]
    while stack:
        tensor, done = stack.pop()
        if tensor in order or tensor in seen:
            continue
        if done or tensor.definition is None:
            order[tensor] = None
            continue
        stack.append((tensor, True))
        inner = dict.fromkeys(r.tensor for r in reads(tensor.definition.body))
        stack.extend((t, False) for t in reversed(inner))
    return list(order)
