"""Ablation: what each rewrite is worth, by default schedules with and without it.

    python benchmarks/ablation.py --numerics fast --threads 2

Only rows whose default schedule uses a rewrite can change when that is off: these are timed in
rounds, with it and without it in turns. A rewrite pays where a suite's geometric mean changes by
1 %, or a row by 10 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from clock import prepared
from suites import SUITES, select
from suites.row import Row

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.space import default_sketch
from loopwright.schedule.target import Target

SAMPLE = 0.01
"""Seconds of one sample."""


@dataclass(frozen=True)
class Change:
    """A row by its default schedule and by that without one rewrite, in seconds."""

    suite: str
    row: str
    rewrite: str
    derivation: str
    instead: str
    with_it: float
    without: float

    @property
    def ratio(self) -> float:
        """How many times as long it takes without."""
        return self.without / self.with_it


def changes(row: Row, target: Target, numerics: Numerics, rounds: int) -> Iterator[Change]:
    """What becomes of a row, in each layout, when a rewrite of its default is off."""
    for form in filter(None, (row, row.last)):
        workload = form.request.workload
        usual = default_sketch(workload, target, numerics)
        names = list(dict.fromkeys(usual.derivation.names))
        others = [default_sketch(workload, target, numerics, frozenset({n})) for n in names]
        times = compared(form, [usual, *others], target, rounds) if names else []
        for name, other, seconds in zip(names, others, times[1:], strict=True):
            label = row.name if form is row else f"{row.name}, channels last"
            derived = str(usual.derivation), str(other.derivation)
            yield Change(row.suite, label, name, *derived, times[0], seconds)


def compared(row: Row, sketches: Sequence[Sketch], target: Target, rounds: int) -> list[float]:
    """The median seconds of a call by each sketch's default, sampled in turns."""
    inputs = row.inputs()
    work = row.request.workload
    calls = [prepared(lw.build(work, s.at(s.default), target), inputs) for s in sketches]
    counts = []
    for call in calls:
        call.repeat(3)
        once = min(call.repeat(1)[0] for _ in range(3))
        counts.append(max(1, round(SAMPLE / max(once, 1e-7))))
    samples: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds):
        order = range(len(calls)) if turn % 2 else reversed(range(len(calls)))
        for n in order:
            samples[n].append(calls[n].repeat(counts[n])[0] / counts[n])
    return list(map(statistics.median, samples))


def table(found: Sequence[Change], rows: int) -> str:
    """The changes of each rewrite, as Markdown."""
    lines = [
        "| rewrite | rows that it makes | without it, geometric mean | largest | all rows |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(c.rewrite for c in found):
        own = [c for c in found if c.rewrite == name]
        logs = [math.log(c.ratio) for c in own]
        most = max(own, key=lambda c: c.ratio)
        every = math.exp(sum(logs) / rows)
        lines.append(
            f"| {name} | {len(own)} | {math.exp(statistics.mean(logs)):.2f} | "
            f"{most.ratio:.2f}, {most.suite} {most.row} | {every:.3f} |"
        )
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--suite", default=",".join(SUITES), show_default=True)
@click.option("--numerics", default="standard", show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=9, show_default=True)
@click.option("--csv", "csv_", type=click.Path(path_type=Path), help="Every row, here.")
def main(suite: str, numerics: str, threads: int, rounds: int, csv_: Path | None) -> None:
    target, found, forms = resolve("cpu", threads), [], 0
    for row in select(suite.split(","), ()):
        forms += 1 + (row.last is not None)
        for change in changes(row, target, Numerics.of(numerics), rounds):
            found.append(change)
            click.echo(
                f"{change.ratio:.2f} {change.suite} {change.row}: {change.derivation} "
                f"for {change.instead}",
                err=True,
            )
    click.echo(table(found, forms))
    if csv_:
        lines = [",".join(map(str, (c.suite, f'"{c.row}"', c.rewrite, c.ratio))) for c in found]
        csv_.write_text("\n".join(["suite,row,rewrite,ratio", *lines]) + "\n")


if __name__ == "__main__":
    main()
