"""From a workload to the groups that become GPU kernels.

Producers, consumers and zeros are fused as for processors (`plan.py`). Beyond that, a guarded copy
(padding) is computed where it is read, if its readers use an element few times; groups whose rows
do not fit shared memory run nest after nest, each over all threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, tensor_shape
from loopwright.schedule.fuse import can_inline, inline
from loopwright.schedule.kernel import leaves
from loopwright.schedule.nest import Nest
from loopwright.schedule.plan import Group, fused, groups_of
from loopwright.schedule.rewrite import Program, drop_units, merge_axes, split_divisions
from loopwright.schedule.target import Gpu


def gpu_plan(workload: Workload, gpu: Gpu) -> tuple[Group, ...]:
    """The groups of a workload, in an order in which they can run."""
    program = _pads_inlined(fused(workload), workload.outputs)
    return tuple(_groups(program, workload.outputs, gpu))


def _groups(program: Program, outputs: tuple[Tensor, ...], gpu: Gpu) -> Iterator[Group]:
    start = 0
    for group in groups_of(program, program, outputs):
        stop = start + len(group.nests)
        if fits(group, gpu):
            yield finished(group)
        else:
            yield from (finished(Group((), (nest,))) for nest in program[start:stop])
        start = stop


def fits(group: Group, gpu: Gpu) -> bool:
    """Whether one row of what the group keeps to itself fits shared memory, with room for more."""
    size = sum(math.prod(tensor_shape(t)) * item_bytes(t.dtype) for t in group.local)
    return 2 * size <= gpu.shared_bytes


def finished(group: Group) -> Group:
    """The group with its nests as simple as they can be written."""
    return replace(group, nests=tuple(_finished(n) for n in group.nests))


def _finished(nest: Nest) -> Nest:
    return merge_axes(split_divisions(drop_units(nest)))


def _pads_inlined(program: Program, outputs: tuple[Tensor, ...]) -> Program:
    for nest in reversed(program):
        current = next((n for n in program if n.out is nest.out), None)
        if current is None or nest.out in outputs or not can_inline(program, current):
            continue
        if not any(leaves(r, current.extents) for r in current.reads()):
            continue
        readers = [n for n in program if any(r.tensor is nest.out for r in n.reads())]
        if readers and _few_uses(current, readers):
            program = inline(program, current)
    return program


_USES = 32  # evaluations of an element that cost less than a kernel that stores it


def _few_uses(producer: Nest, readers: list[Nest]) -> bool:
    return sum(n.steps for n in readers) <= _USES * producer.size
