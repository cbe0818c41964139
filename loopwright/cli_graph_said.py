"""What the commands for whole models say."""

from __future__ import annotations

import shlex
import statistics
from typing import TYPE_CHECKING

import click

from loopwright.cli_command import STORE

if TYPE_CHECKING:
    from loopwright.graph.model import TunedModel


def say_tasks(built: TunedModel) -> None:
    """One line for each task, its share of the time by measurement."""
    seconds: dict[int, float] = {}
    for number, (_, spent) in zip(built.composed.steps, built.profile()):
        seconds[number] = seconds.get(number, 0.0) + spent
    total = sum(seconds.values()) or 1.0
    click.echo("task  count    MFLOPs   share        ms  record  function")
    for number, task in enumerate(built.work.tasks, 1):
        spent = sum(seconds.get(step, 0.0) for step in task.steps)
        record = built.records.get(task.workload.key)
        shown = "none" if record is None else str(record.id)
        click.echo(
            f"{number:4}  {task.count:5}  {task.workload.flops / 1e6:8.2f}  {spent / total:6.1%}  "
            f"{spent * 1e3:8.4f}  {shown:>6}  {task.name}"
        )
    for note in built.notes:
        click.echo(note)


def say_untuned(built: TunedModel) -> int:
    """One line on what has no record, and the command that changes that."""
    missing = [t for t in built.work.tasks if t.workload.key not in built.records]
    if missing:
        total = sum(t.flops for t in built.work.tasks) or 1
        share = sum(t.flops for t in missing) / total
        click.echo(
            f"{len(missing)} of {len(built.work.tasks)} tasks, {share:.0%} of the arithmetic, "
            f"{have(len(missing))} no record, so the default schedule serves; to tune: "
            f"{_tune_command()}",
            err=True,
        )
    return len(missing)


def have(count: int) -> str:
    """The verb for so many."""
    return "has" if count == 1 else "have"


def _tune_command() -> str:
    """What makes the records that the command under way looked for."""
    given = click.get_current_context().params
    words = ["loopwright", "tune", str(given["model"])]
    for shape in given["shapes"]:
        words += ["--shape", shape]
    if given["threads"] is not None:
        words += ["--threads", str(given["threads"])]
    if given["records"] != STORE:
        words += ["--records", str(given["records"])]
    if not given["check"]:
        words += ["--no-check"]
    return shlex.join(words)


def say_end(built: TunedModel) -> None:
    """The tuner's estimate and a whole call, side by side."""
    whole = built.measure()
    click.echo(f"measured   {whole * 1e3:.4g} ms for a whole call")
    if not built.estimate:  # not all tasks have records, or there is no task
        return
    click.echo(f"estimate   {built.estimate * 1e3:.4g} ms, the sum of the tasks' records")
    ratio = whole / built.estimate
    if abs(ratio - 1) > 0.1:
        steps = [spent for _, spent in built.profile()]
        click.echo(
            f"they differ by {ratio - 1:+.0%}: inside of the call the steps take "
            f"{sum(steps) * 1e3:.4g} ms, as each one finds other data in the caches than where it "
            f"was measured alone, and {statistics.fmean(steps) * 1e6:.3g} µs is a mean step"
        )
