"""Texts that the commands for networks print."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from loopwright.graph.compile.model import TunedModel


def largest(built: TunedModel, share: float) -> list[int]:
    """Numbers of the tasks that take the most time, up to a share of all."""
    if share >= 1:
        return list(range(len(built.work.tasks)))
    spent = built.step_seconds()
    cost = [sum(spent[n] for n in task.steps) for task in built.work.tasks]
    ordered = sorted(range(len(cost)), key=lambda number: -cost[number])
    before = itertools.accumulate((cost[n] for n in ordered), initial=0.0)
    return [n for n, done in zip(ordered, before) if done < share * sum(cost) or n == ordered[0]]


def show_tasks(built: TunedModel) -> None:
    """One line for each task, its share of the time by measurement, and for all other steps."""
    spent = built.step_seconds()
    total = sum(spent.values())

    def timed(seconds: float) -> str:
        return f"{seconds / total:6.1%}  {seconds * 1e3:8.4f}" if total else f"{'–':>6}  {'–':>8}"

    click.echo("task  count    MFLOPs   share        ms  record  function")
    for number, task in enumerate(built.work.tasks, 1):
        record = built.records.get(task.workload.key)
        shown = "none" if record is None else str(record.id)
        click.echo(
            f"{number:4}  {task.count:5}  {task.workload.flops / 1e6:8.2f}  "
            f"{timed(sum(spent.pop(step, 0.0) for step in task.steps))}  {shown:>6}  {task.name}"
        )
    if spent:
        left = timed(sum(spent.values()))
        click.echo(f"{'–':>4}  {'–':>5}  {'–':>8}  {left}  {'–':>6}  copies, TVM's path")
    for note in built.notes:
        click.echo(note)


def saved(built: TunedModel) -> str:
    """Description of what an exported library holds."""
    size = built.linked.weight_bytes / 2**20
    return f"{size:.1f} MiB of weights, {built.library.signature}"


def show_untuned(built: TunedModel, remedy: str) -> int:
    """One line on what has no record, and the command that changes that; how many tasks."""
    missing = [t for t in built.work.tasks if t.workload.key not in built.records]
    if missing:
        total = sum(t.flops for t in built.work.tasks) or 1
        share = sum(t.flops for t in missing) / total
        click.echo(
            f"{len(missing)} of {len(built.work.tasks)} tasks, {share:.0%} of the arithmetic, "
            f"{have(len(missing))} no record, so the default schedule serves; to tune: "
            f"{remedy}",
            err=True,
        )
    return len(missing)


def have(count: int) -> str:
    """The verb for so many."""
    return "has" if count == 1 else "have"
