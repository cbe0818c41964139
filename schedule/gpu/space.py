"""The space of a workload on a GPU: the union of the spaces of its rewrites."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from loopwright.dsl.workload import Workload, defined
from loopwright.schedule.gpu.plan import apart, gpu_plan, gpu_program, relaid, sources, without
from loopwright.schedule.gpu.rules import (
    KernelContext,
    kernel_default,
    kernel_knobs,
    kernel_sketches,
    reads_along,
)
from loopwright.schedule.program.canonical import Program
from loopwright.schedule.program.constants import known_ahead
from loopwright.schedule.program.nest import extent
from loopwright.schedule.program.plan import Group, has_reuse
from loopwright.schedule.rewrites.im2col import im2col
from loopwright.schedule.rewrites.rfactor import split_reduction
from loopwright.schedule.rewrites.winograd.winograd import RESULTS, winograd
from loopwright.schedule.sketch.kernel import KernelSketch
from loopwright.schedule.sketch.sketch import Knob, Sketch
from loopwright.schedule.target import Gpu, Target

_MOST_SKETCHES = 64
_COLUMNS_BYTES = 16 << 20  # of a copy of all windows, half as much as is worth writing
_BUSY = 4096  # elements of a result that keep a multiprocessor busy: a tile of 64×64
_FEW = 256  # that leave it nearly idle
_LONG = 1024  # steps of a reduction that is split if its results are so few
_STEPS = 16  # of a thread that shares a reduction
_TEAM = 256  # threads that share one
_LEAST_STEPS = 32  # of one part


def gpu_sketches(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a workload, the default one first."""
    gpu = target.gpu
    assert gpu is not None, target
    found: list[Sketch] = []
    for label, form in _splits(workload, gpu):
        program = gpu_program(form)
        groups = gpu_plan(program, form.outputs, gpu)
        made = sketches_of(form, groups, gpu, program)
        found += [replace(s, name=label + s.name) for s in made]
    columns = im2col(workload, replace(target, l2_bytes=_COLUMNS_BYTES))
    if columns is not None:
        made = sketches_of(workload, columns, gpu)
        found += [replace(s, name=f"im2col {s.name}") for s in made]
    for results in RESULTS:
        faster = winograd(workload, results, padded=True)
        if faster is not None:
            groups, growth = faster
            made = sketches_of(workload, groups, gpu)
            label = f"winograd={results} "
            found += [replace(s, name=label + s.name, growth=growth) for s in made]
    return tuple(found)


def _splits(workload: Workload, gpu: Gpu) -> Iterator[tuple[str, Workload]]:
    """The workload and its variants with a reduction split among blocks, where its results alone
    do not keep the GPU busy; first those that are much too few."""
    later: list[tuple[str, Workload]] = [("", workload)]
    nests = {n.result.name: n for n in gpu_program(workload) if n.reducer is not None}
    teams = {
        number
        for number, stage in enumerate(workload.stages)
        if stage.name in nests and reads_along(nests[stage.name])
    }
    for number, stage in enumerate(workload.stages):
        d = defined(stage)
        size = math.prod(map(extent, d.axes))
        steps = math.prod(map(extent, d.reduce))
        wanted = min(gpu.multiprocessors * _BUSY // size, steps // _LEAST_STEPS)
        most = 1 << max(wanted.bit_length() - 1, 0)
        for parts in (most, most // 4):
            form = split_reduction(workload, number, parts) if parts > 1 else None
            if form is None:
                continue
            variant = (f"split{number}={parts} ", form)
            threads = size * (min(steps // _STEPS, _TEAM) if number in teams else 1)
            few = threads <= gpu.multiprocessors * _FEW and steps >= _LONG
            if few and len(later) == 1:
                yield variant
            else:
                later.append(variant)
    yield from later


def sketches_of(
    workload: Workload, groups: tuple[Group, ...], gpu: Gpu, program: Program = ()
) -> Iterator[Sketch]:
    """The sketches of the groups of a workload, or of an equal one. Nests of `program` whose
    results are staged by all who read them get no kernel, in the first of the sketches."""
    groups = apart(groups)
    known = known_ahead(workload, groups)
    groups = relaid(groups, workload, known)
    known = known_ahead(workload, groups)
    inside = sources(program, groups, workload, known, gpu)
    for gone in dict.fromkeys((inside, ())):
        context = KernelContext(gpu, known, gone)
        yield from _sketches(workload, without(groups, gone), context)


def _sketches(
    workload: Workload, groups: tuple[Group, ...], context: KernelContext
) -> Iterator[Sketch]:
    options = [kernel_sketches(group, context) for group in groups]
    options = [
        found[:1] if group.nests[0].out.name in context.known_ahead else found
        for group, found in zip(groups, options, strict=True)
    ]
    leaders = _leaders(options)
    free = sorted(set(leaders))
    products = itertools.product(*(range(len(options[n])) for n in free))
    for numbers in itertools.islice(products, _MOST_SKETCHES):
        chosen = dict(zip(free, numbers, strict=True))
        kernels = tuple(found[chosen[n]] for n, found in zip(leaders, options, strict=True))
        yield _sketch(workload, groups, kernels, context, leaders)


def _leaders(options: Sequence[tuple[KernelSketch, ...]]) -> tuple[int, ...]:
    """For each kernel the first one that is like it, which chooses for both: many phases or
    layers have a space as small as that of one."""
    leaders: list[int] = []
    for number, found in enumerate(options):
        earlier = (n for n in range(number) if leaders[n] == n)
        leaders.append(next((n for n in earlier if _alike(options[n], found)), number))
    return tuple(leaders)


def _alike(first: tuple[KernelSketch, ...], second: tuple[KernelSketch, ...]) -> bool:
    if list(map(str, first)) != list(map(str, second)):
        return False
    one, other = first[0].group, second[0].group
    if len(one.nests) != 1 or len(other.nests) != 1:
        return False
    same = list(one.nests[0].extents.values()) == list(other.nests[0].extents.values())
    return has_reuse(one.nests[0]) and (same or one.nests[0].out.name == other.nests[0].out.name)


def _sketch(
    workload: Workload,
    groups: tuple[Group, ...],
    kernels: tuple[KernelSketch, ...],
    context: KernelContext,
    leaders: tuple[int, ...],
) -> Sketch:
    """A sketch with the knobs of every kernel, where they are not those of the one that leads."""
    all_knobs = [tuple(kernel_knobs(kernel, context)) for kernel in kernels]
    knobs_of = tuple(
        leader if all_knobs[leader] == all_knobs[number] else number
        for number, leader in enumerate(leaders)
    )
    knobs: list[Knob] = []
    default: list[int] = []
    for number in sorted(set(knobs_of)):
        chosen = kernel_default(kernels[number], context)
        for knob in all_knobs[number]:
            if kernels[number].group.nests[0].out.name in context.known_ahead:
                knob = Knob(knob.name, (chosen[knob.name],))  # its speed does not matter
            knobs.append(replace(knob, name=f"{knob.name}{number}"))
            default.append(knob.number(chosen[knob.name]))
    return Sketch(
        "; ".join(map(str, kernels)),
        workload,
        groups,
        (),
        tuple(knobs),
        tuple(default),
        knobs_of=knobs_of,
        kernels=kernels,
    )
