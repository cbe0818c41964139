"""The space of a workload on a GPU: the union of the spaces of its rewrites."""

from __future__ import annotations

import itertools
from dataclasses import replace

from loopwright.dsl.workload import Workload
from loopwright.schedule.assemble import known_ahead
from loopwright.schedule.gpu import (
    KernelContext,
    kernel_default,
    kernel_knobs,
    kernel_sketches,
)
from loopwright.schedule.gpu_plan import gpu_plan
from loopwright.schedule.gpu_sketch import KernelSketch
from loopwright.schedule.plan import Group
from loopwright.schedule.sketch import Knob, Sketch
from loopwright.schedule.target import Gpu

_MOST_SKETCHES = 64


def gpu_sketches(workload: Workload, gpu: Gpu) -> tuple[Sketch, ...]:
    """The sketches of a workload, the default one first."""
    return tuple(sketches_of(workload, gpu_plan(workload, gpu), gpu))


def sketches_of(workload: Workload, groups: tuple[Group, ...], gpu: Gpu) -> list[Sketch]:
    """The sketches of the groups of a workload, or of an equal one."""
    context = KernelContext(gpu, known_ahead(workload, groups))
    options = [kernel_sketches(group, context) for group in groups]
    options = [
        found[:1] if group.nests[0].out.name in context.known_ahead else found
        for group, found in zip(groups, options, strict=True)
    ]
    chosen = itertools.islice(itertools.product(*options), _MOST_SKETCHES)
    return [_sketch(workload, groups, kernels, context) for kernels in chosen]


def _sketch(
    workload: Workload,
    groups: tuple[Group, ...],
    kernels: tuple[KernelSketch, ...],
    context: KernelContext,
) -> Sketch:
    knobs: list[Knob] = []
    default: list[int] = []
    for number, kernel in enumerate(kernels):
        chosen = kernel_default(kernel, context)
        for knob in kernel_knobs(kernel, context):
            if kernel.group.nests[0].out.name in context.known_ahead:  # its speed does not matter
                knob = Knob(knob.name, (chosen[knob.name],))
            knobs.append(replace(knob, name=f"{knob.name}{number}"))
            default.append(knob.number(chosen[knob.name]))
    name = "; ".join(map(str, kernels))
    return Sketch(
        name,
        workload,
        groups,
        (),
        tuple(knobs),
        tuple(default),
        knobs_of=tuple(range(len(kernels))),
        kernels=kernels,
    )
