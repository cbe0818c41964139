"""Summary at the end of a tuning: the estimate beside a measurement, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loopwright.dsl.words import counted
from loopwright.graph.compile.model import TunedModel
from loopwright.schedule.rewrites.activation_sparsity import ActivationSparsity
from loopwright.transfer.records.record import NETWORK

_APART = 0.1
"""A difference that is explained, relative to the estimate."""
_SMALL = 0.02
"""A part of a call that is not worth a word."""


def summary(built: TunedModel) -> Iterator[str]:
    """The estimate and a whole call, side by side, and whence a difference above 10 %."""
    whole = built.measure()
    yield f"measured   {_ms(whole)} for a whole call"
    tasks = built.work.tasks
    missing = sum(t.workload.key not in built.records for t in tasks)
    if missing or not tasks:
        none = f"{missing} of {counted(len(tasks), 'task')} without a record"
        yield f"estimate   none: {none if tasks else 'there is no task'}"
        return
    estimate = built.estimate
    assert estimate is not None
    yield f"estimate   {_ms(estimate)}, the sum of the tasks' records"
    skipping = sum(
        ActivationSparsity.name in config.sketch.derivation.names
        for config in built.linked.configs.values()
    )
    if skipping:
        yield (
            f"{skipping} of {counted(len(tasks), 'task')} skip zeros of their data, and take "
            "longer where data have fewer"
        )
    if abs(whole / estimate - 1) > _APART:
        parts = "; ".join(_parts(built, whole))
        yield f"they differ by {whole / estimate - 1:+.0%}: {parts}"


@dataclass(frozen=True)
class _Spent:
    """Seconds that a call spends on a task, by the task's record and as measured."""

    name: str
    inside: bool
    said: float
    spent: float


def _parts(built: TunedModel, whole: float) -> Iterator[str]:
    spent = built.step_seconds()
    tasks = []
    for task in built.work.tasks:
        record = built.records[task.workload.key]
        here = sum(spent.get(step, 0.0) for step in task.steps)
        inside = record.cache == NETWORK
        tasks.append(_Spent(task.name, inside, task.count * record.cost, here))
    steps, of_tasks = sum(spent.values()), sum(t.spent for t in tasks)
    yield f"inside of the call the tasks take {_ms(of_tasks)}"
    most = max(tasks, key=lambda t: abs(t.spent - t.said))
    when = "in a network before" if most.inside else "alone, where its arrays are in the caches"
    off = f"{_ms(most.spent)} for the {_ms(most.said)} of its record"
    yield f"{most.name}, the farthest off, {off}, which was measured {when}"
    if steps - of_tasks > _SMALL * whole:
        yield f"copies and functions that keep TVM's path take {_ms(steps - of_tasks)}"
    if abs(whole - steps) > _SMALL * whole:
        yield f"the steps alone, timed one by one, take {_ms(steps)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
