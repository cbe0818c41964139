"""Steps that are better done as one: a window over each plane, and the sum over planes behind it.

    D[y, x, c] = …                                 (a step)
    O[y, x, d] = sum over c of D[y, x, c] * V[c, d]  (the only one that reads D)
     ↦  one step, whose schedule may keep D in the caches of the cores
     (`rewrites.producer_at_blocks`)

Relax fuses what is element by element behind a convolution, never one convolution with another.
The schedules of both on their own are among those of the one step, so that nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from loopwright.dsl.expr import Expr, Read
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import map_leaves
from loopwright.dsl.workload import Workload, defined, tensor_shape, workload
from loopwright.graph.importers.tir import Imported
from loopwright.graph.network import Network, Step
from loopwright.schedule.program.nest import fresh
from loopwright.schedule.program.source import Source
from loopwright.schedule.rewrites.boundary_peeling import peel_boundaries
from loopwright.schedule.rewrites.producer_at_blocks import fused_row_choices
from loopwright.schedule.target import Target

Steps = tuple[Network, tuple[Imported | str, ...]]


def fuse_depthwise_pointwise(
    network: Network, imported: Sequence[Imported | str], target: Target
) -> Steps:
    """The network with such steps as one, and what its steps are."""
    uses = Counter(v for step in network.steps for v in step.args)
    uses.update(network.outputs)
    uses.update(v for loop in network.loops for v in loop.values())
    made = {v: n for n, step in enumerate(network.steps) for v in step.outs}
    known: dict[tuple[int, int, int], Imported | None] = {}
    steps, work = dict(enumerate(network.steps)), dict(enumerate(imported))
    done: set[int] = set()
    for number, step in enumerate(network.steps):
        for place, value in enumerate(step.args):
            first = made.get(value)
            if first is None or first in done or uses[value] != 1:
                continue
            before, after = work.get(first), work[number]
            if not (isinstance(before, Imported) and isinstance(after, Imported)):
                continue
            if not (before.moved and after.moved) or steps[first].loop is not step.loop:
                continue
            key = (id(before), id(after), place)
            if key not in known:
                known[key] = _one(before, steps[first], after, place, target)
            one = known[key]
            if one is not None:
                steps[number], work[number] = _step(steps.pop(first), step, place), one
                del work[first]
                done.add(number)
                break
    return replace(network, steps=tuple(steps.values())), tuple(work.values())


def _step(before: Step, after: Step, place: int) -> Step:
    """Both steps as one; `place` is the argument of the latter that the former computes."""
    rest = after.args[:place] + after.args[place + 1 :]
    function = f"{before.function} + {after.function}"
    return Step(function, (*before.args, *rest), after.outs, after.loop)


def _one(
    before: Imported, first: Step, after: Imported, place: int, target: Target
) -> Imported | None:
    """The work of both, if there is a schedule that gains by it."""
    if len(first.outs) != 1 or peel_boundaries(Source.of(before.workload), target) is None:
        return None
    (between,) = before.workload.outputs
    own = dict(zip(after.inputs, after.workload.inputs))
    work, new = _workload(after.workload, {own[place]: between}, before.workload)
    if not fused_row_choices(Source.of(work), target):
        return None
    numbers = dict(zip((t.name for t in before.workload.inputs), before.inputs))
    for number, tensor in own.items():
        if number != place:
            numbers[new[tensor].name] = len(first.args) + number - (number > place)
    shift = len(first.args) - 1
    return Imported(
        work,
        tuple(numbers[t.name] for t in work.inputs),
        tuple(shift + number for number in after.outputs),
        moved=True,
    )


def _workload(
    work: Workload, given: dict[Tensor, Tensor], before: Workload
) -> tuple[Workload, dict[Tensor, Tensor]]:
    """The work behind another, of which it is given some of its inputs, and its tensors there."""
    names = {t.name for t in (*before.inputs, *before.stages)}
    new = dict(given)

    def read(r: Read) -> Expr:
        return Read(new[r.tensor], r.index)

    for old in (*work.inputs, *work.stages):
        if old in new:
            continue
        copy = Tensor(fresh(old.name, names), tensor_shape(old), old.dtype, old.constant)
        if old.definition is not None:
            d = defined(old)
            body = map_leaves(d.body, read, lambda a: a)
            copy.definition = Definition(d.axes, d.reduce, d.reducer, body)
        new[old] = copy
    return workload(*(new[t] for t in work.outputs)), new
