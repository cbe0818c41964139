"""Reshapes: workloads whose result has the elements of their input, in their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright.dsl.expr import Read
from loopwright.dsl.oracle import position
from loopwright.dsl.workload import Workload, defined, tensor_shape

_MOST = 1 << 22
"""Elements beyond which a copy is not looked into."""


def only_reshapes(workload: Workload) -> bool:
    """Return whether a workload is a reshape, a flattening, or an axis of extent 1 more or
    less."""
    if len(workload.stages) != 1 or len(workload.inputs) != 1:
        return False
    (out,), (source,) = workload.stages, workload.inputs
    definition = defined(out)
    body, shape = definition.body, tensor_shape(out)
    size = int(np.prod(shape, dtype=np.int64))
    if definition.reducer is not None or not isinstance(body, Read) or size > _MOST:
        return False
    if size != int(np.prod(tensor_shape(source), dtype=np.int64)):
        return False
    grid = dict(zip(definition.axes, np.indices(shape, np.int64, sparse=True)))
    place: Any = np.zeros((), np.int64)
    for form, extent in zip(body.index, tensor_shape(source)):
        place = place * extent + position(form, grid)
    everywhere = np.broadcast_to(place, shape).reshape(-1)
    return bool((everywhere == np.arange(size)).all())
