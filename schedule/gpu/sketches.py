"""Sketches of a program for GPUs: one kernel for every group, in all combinations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from loopwright.schedule.gpu.heuristics import GPU
from loopwright.schedule.gpu.plan import apart, lay_out_operands, sources, without
from loopwright.schedule.gpu.rules import (
    KernelContext,
    kernel_default,
    kernel_knobs,
    kernel_sketches,
)
from loopwright.schedule.program.constants import constants_of
from loopwright.schedule.program.plan import FusionGroup
from loopwright.schedule.sketch.kernel import KernelSketch
from loopwright.schedule.sketch.leaders import knobs_of_all, leaders_of
from loopwright.schedule.sketch.naming import SketchName
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Gpu


def gpu_sketches(variant: Variant, gpu: Gpu) -> Iterator[Sketch]:
    """The sketches of a program. Nests whose results all readers compute into shared-memory tiles
    get no kernel, in the first of the sketches."""
    workload, groups, program = variant.workload, apart(variant.groups), variant.program
    known = constants_of(workload, groups)
    groups = lay_out_operands(groups, workload, known)
    known = constants_of(workload, groups)
    inside = sources(program, groups, workload, known, gpu)
    for gone in dict.fromkeys((inside, ())):
        context = KernelContext(gpu, known, gone)
        yield from _sketches(variant, without(groups, gone), context)


def _sketches(
    variant: Variant, groups: tuple[FusionGroup, ...], context: KernelContext
) -> Iterator[Sketch]:
    options = [kernel_sketches(group, context) for group in groups]
    options = [
        found[:1] if group.nests[0].out.name in context.constants else found
        for group, found in zip(groups, options, strict=True)
    ]
    nests = [found[0].group.nests for found in options]
    leaders = leaders_of(options, [own[0] if len(own) == 1 else None for own in nests])
    free = sorted(set(leaders))
    products = itertools.product(*(range(len(options[n])) for n in free))
    for numbers in itertools.islice(products, GPU.sketches):
        chosen = dict(zip(free, numbers, strict=True))
        kernels = tuple(found[chosen[n]] for n, found in zip(leaders, options, strict=True))
        yield _sketch(variant, groups, kernels, context, leaders)


def _sketch(
    variant: Variant,
    groups: tuple[FusionGroup, ...],
    kernels: tuple[KernelSketch, ...],
    context: KernelContext,
    leaders: tuple[int, ...],
) -> Sketch:
    """A sketch with the knobs of every kernel, where they are not those of the one that leads."""
    names = (kernel.group.nests[0].out.name for kernel in kernels)
    knobs_of, knobs, default = knobs_of_all(
        [tuple(kernel_knobs(kernel, context)) for kernel in kernels],
        lambda number: kernel_default(kernels[number], context),
        leaders,
        {number for number, name in enumerate(names) if name in context.constants},
    )
    return Sketch(
        SketchName(variant.derivation, "; ".join(map(str, kernels))),
        variant.workload,
        groups,
        (),
        knobs,
        default,
        variant.error_growth,
        variant.numerics,
        knobs_of,
        kernels,
    )
