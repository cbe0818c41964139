"""rfactor: reductions in parts, where results are too few to keep every thread busy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from loopwright.dsl.dtypes import HALVES
from loopwright.dsl.elements import REDUCERS
from loopwright.dsl.expr import Expr, Read, Reduce
from loopwright.dsl.index import Index
from loopwright.dsl.scans import scan_of
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import map_reads, map_subscripts
from loopwright.dsl.workload import Workload, defined, reads, workload
from loopwright.schedule.gpu.plan import gpu_plan, gpu_program
from loopwright.schedule.gpu.rules import reads_along
from loopwright.schedule.program.canonical import Program, placed, unused
from loopwright.schedule.program.nest import extent, fresh
from loopwright.schedule.program.plan import grouped
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.contract import Rewrite, Rewritten
from loopwright.schedule.rewrites.heuristics import REWRITE
from loopwright.schedule.sketch.variant import Variant
from loopwright.schedule.target import Gpu, Target


class Rfactor(Rewrite):
    """`P[p, i] += f(i, K/parts·p + k); S[i] += P[p, i]`: a reduction in parts, then the parts.

    `stage` numbers the definition. Known as rfactor (Suriana et al. 2017), and as split-K.
    """

    name = "rfactor"
    needs = "a reduction much longer than its results are many, of an extent that threads divide"
    gpu = True

    def choices(self, base: Variant, target: Target) -> Iterator[Mapping[str, int]]:
        if target.gpu is not None:
            yield from _gpu_choices(base.workload, target.gpu)
            return
        for number, stage in enumerate(base.workload.stages):
            if _is_long(stage) and not _is_scan(stage):
                for parts in (target.threads, 4 * target.threads):
                    if parts > 1:
                        yield {"stage": number, "parts": parts}

    def make(self, base: Variant, target: Target, **parameters: int) -> Rewritten | None:
        number, parts = parameters["stage"], parameters["parts"]
        form = split_reduction(base.workload, number, parts)
        if form is None:
            return None
        source, stage = Source.of(form), base.workload.stages[number]
        if target.gpu is not None:
            program = gpu_program(source)
            groups = gpu_plan(program, source.outputs, target.gpu)
            prior = REWRITE.rfactor_prior if _leaves_idle(stage, base.program, target.gpu) else 1.0
            return Rewritten(groups, 1.0, source.numerics, form, program, prior)
        groups = grouped(source.program, source.program, source.outputs)
        # Many elements are parallel work as they are, and rows of their own.
        many = _work(stage)[0] >= REWRITE.rfactor_results_per_thread * target.threads
        prior = 1.0 if many else REWRITE.rfactor_prior
        return Rewritten(groups, 1.0, source.numerics, form, prior=prior)


def _gpu_choices(source: Workload, gpu: Gpu) -> Iterator[Mapping[str, int]]:
    """Reductions split among blocks where their results alone do not keep a GPU busy."""
    for number, stage in enumerate(source.stages):
        size, steps = _work(stage)
        wanted = min(
            gpu.multiprocessors * REWRITE.gpu_busy_results // size, steps // REWRITE.gpu_part_steps
        )
        most = 1 << max(wanted.bit_length() - 1, 0)
        for parts in (2 * most, most, most // 4):
            if parts > 1 and parts * REWRITE.gpu_part_steps <= steps:
                yield {"stage": number, "parts": parts}


def _leaves_idle(stage: Tensor, program: Program, gpu: Gpu) -> bool:
    """Return whether the threads that compute a definition are much too few, each of them for
    long: teams of threads, or tiles of results."""
    size, steps = _work(stage)
    if any(n.result.name == stage.name and reads_along(n) for n in program if n.reducer):
        team = min(steps // REWRITE.gpu_steps_per_thread, REWRITE.gpu_team_threads)
        few, long = size * team, REWRITE.gpu_long_team_steps
        return few <= gpu.multiprocessors * REWRITE.gpu_idle_threads and steps >= long
    halves = any(r.tensor.dtype in HALVES for r in reads(defined(stage).body))
    long = REWRITE.gpu_long_mma_steps if halves and gpu.tensor_cores else REWRITE.gpu_long_steps
    return size <= gpu.multiprocessors * REWRITE.gpu_idle_results and steps >= long


def split_reduction(source: Workload, number: int, parts: int) -> Workload | None:
    """Reduce stage `number` in parts, then the parts; None if no reduction axis divides.

    `S[i] += f(i, k)  ↦  P[p, i] += f(i, K/parts·p + k);  S[i] += P[p, i]`
    """
    stage = source.stages[number]
    d = defined(stage)
    axis = next((k for k in d.reduce if extent(k) % parts == 0), None)
    if d.reducer not in REDUCERS or axis is None:
        return None
    part = Index(unused("p", tuple(d.extents)), parts)
    rest = Index(axis.name, extent(axis) // parts)
    values = {axis: part * extent(rest) + rest}
    taken = {t.name for t in (*source.inputs, *source.stages)}
    partial = Tensor(fresh(f"{stage.name}_part", taken))
    left = tuple(Index(i.name, i.extent) for i in d.axes)
    body = _declared(map_subscripts(d.body, lambda p: placed(p, values)), d.extents, rest)
    partial[(part, *left)] = Reduce(d.reducer, body)
    return _replace_stage(source, stage, partial, part, left, d.reducer)


def _declared(body: Expr, extents: dict[Index, int], *others: Index) -> Expr:
    """Say every range outright: what inference would find from other subscripts may differ."""
    known = {i: Index(i.name, n) for i, n in extents.items()} | {i: i for i in others}
    return map_subscripts(body, lambda p: placed(p, known))


def _replace_stage(
    source: Workload,
    stage: Tensor,
    partial: Tensor,
    part: Index,
    left: tuple[Index, ...],
    reducer: str,
) -> Workload:
    whole = Tensor(stage.name, stage.shape, stage.dtype)
    whole[left] = Reduce(reducer, partial[(part, *left)])
    new: dict[Tensor, Tensor] = {stage: whole}
    for other in source.stages:
        if other is stage:
            continue
        d = defined(other)

        def read(r: Read) -> Expr:
            return Read(new.get(r.tensor, r.tensor), r.index)

        copy = Tensor(other.name, other.shape, other.dtype)
        body = _declared(map_reads(d.body, read), d.extents)
        copy[d.axes] = body if d.reducer is None else Reduce(d.reducer, body)
        new[other] = copy
    return workload(*(new[t] for t in source.outputs), inputs=source.inputs)


def _work(stage: Tensor) -> tuple[int, int]:
    """Results of a definition, and the steps of each."""
    d = defined(stage)
    return math.prod(map(extent, d.axes)), math.prod(map(extent, d.reduce))


def _is_scan(stage: Tensor) -> bool:
    """Return whether it is a loop that keeps its result: `ScanInParts` splits these."""
    d = defined(stage)
    return scan_of(d.axes, d.reduce, d.reducer, d.body) is not None


def _is_long(stage: Tensor) -> bool:
    size, steps = _work(stage)
    if size <= 2 * steps and steps >= REWRITE.rfactor_deep_steps:
        return True  # its operands' tiles leave the cache before they are used again
    return (
        size <= REWRITE.rfactor_few_results
        and size * steps >= REWRITE.rfactor_long_steps
        and steps > size
    )
