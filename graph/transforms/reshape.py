"""Views: workloads whose result lies in their input as it is, such as a reshape or a first row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.dsl.expr import Read
from loopwright.dsl.index import position
from loopwright.dsl.workload import Workload, defined, tensor_shape

_MOST = 1 << 22
"""Elements beyond which a copy is not looked into."""


def only_reshapes(workload: Workload) -> bool:
    """Return whether a workload is a reshape, a flattening, or an axis of extent 1 more or
    less."""
    if len(workload.stages) != 1 or len(workload.inputs) != 1:
        return False
    (out,), (source,) = workload.stages, workload.inputs
    sizes = [math.prod(tensor_shape(t)) for t in (out, source)]
    return sizes[0] == sizes[1] and view_offset(workload) == 0


def view_offset(workload: Workload) -> int | None:
    """The number of elements before a result that is a part of the input without a gap, its
    elements in their order; None for any other workload."""
    if len(workload.stages) != 1 or len(workload.inputs) != 1:
        return None
    (out,), (source,) = workload.stages, workload.inputs
    definition = defined(out)
    body, shape = definition.body, tensor_shape(out)
    size = math.prod(shape)
    if definition.reducer is not None or not isinstance(body, Read) or size > _MOST:
        return None
    grid = dict(zip(definition.axes, np.indices(shape, np.int64, sparse=True)))
    place: Any = np.zeros((), np.int64)
    for form, extent in zip(body.index, tensor_shape(source)):
        place = place * extent + position(form, grid)
    everywhere = np.broadcast_to(place, shape).reshape(-1)
    first = int(everywhere[0])
    return first if (everywhere == np.arange(first, first + size)).all() else None
