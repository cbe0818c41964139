"""Numerics: what "strict" and "standard" cost beside "fast", by default schedules.

    python benchmarks/numerics.py --threads 2

Each row is timed by its default schedule under each word, in turns. Rows whose default is the same
under all words are not timed: their ratio is 1.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean

import click
from ablation import compared
from suites import SUITES, select

from loopwright.codegen.target import resolve
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.space import default_sketch

WORDS = (Numerics.FAST, Numerics.STANDARD, Numerics.STRICT)


@click.command(help=__doc__)
@click.option("--suite", default=",".join(SUITES), show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=15, show_default=True)
@click.option("--csv", "csv_", type=click.Path(path_type=Path), help="Every row, here.")
def main(suite: str, threads: int, rounds: int, csv_: Path | None) -> None:
    target = resolve("cpu", threads)
    found: dict[str, list[tuple[str, list[float]]]] = defaultdict(list)
    for row in select(suite.split(","), ()):
        for form in filter(None, (row, row.last)):
            sketches = [default_sketch(form.request.workload, target, word) for word in WORDS]
            times = [1.0] * len(WORDS)
            if len({s.name for s in sketches}) > 1:
                times = compared(form, sketches, target, rounds)
            speeds = [times[0] / t for t in times]
            label = row.name if form is row else f"{row.name}, channels last"
            found[row.suite].append((label, speeds))
            click.echo(f"{row.suite} {label}: {' '.join(f'{s:.2f}' for s in speeds)}", err=True)
    lines = ["| suite | rows | fast | standard | strict |", "|---|---|---|---|---|"]
    every = [pair for pairs in found.values() for pair in pairs]
    for name, pairs in [*found.items(), ("all", every)]:
        means = [geometric_mean(speeds[n] for _, speeds in pairs) for n in range(len(WORDS))]
        lines.append(f"| {name} | {len(pairs)} | {' | '.join(f'{m:.2f}' for m in means)} |")
    click.echo("\n".join(lines))
    if csv_:
        text = [f'{s},"{r}",{",".join(map(str, v))}' for s, rows in found.items() for r, v in rows]
        csv_.write_text("\n".join(["suite,row,fast,standard,strict", *text]) + "\n")


if __name__ == "__main__":
    main()
