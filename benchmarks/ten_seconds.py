"""Ten seconds of search beside two minutes: does building in milliseconds take their place?

python benchmarks/ten_seconds.py FILE.jsonl [--seconds 10] [--long 120] [--seeds 5] [--minutes 120]

Rows are C2, C6 and C9 of ResNet-18, a product of 512 and a depthwise layer of MobileNet. The long
search is today's, by LLVM. The short ones are by LLVM, by built-in code, and by built-in code with
`feedback="compiled"`. Seconds are all that a call of `lw.tune` takes. What each found then runs in
turns, in one process. Ratios are times over that of the long search: at most 1.02 is "reached".

FILE keeps what was measured: the same command goes on, and prints the table of what there is.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np
from builtin import speeds
from kept import Kept
from rich.console import Console
from rich.table import Table
from suites import select

import loopwright as lw
from loopwright.dsl.oracle import random_inputs
from loopwright.explore.tuned import Tuned
from loopwright.measure.lease import MachineLease

ROWS = ("C2", "C6", "C9", "matmul:512", "dw 256 /1 @28")
SUITES = ("resnet", "matmul", "mobilenet")
SHORT: dict[str, dict[str, str]] = {
    "LLVM": {},
    "builtin": {"codegen": "builtin"},
    "builtin, compiled": {"codegen": "builtin", "feedback": "compiled"},
}
REACHED = 1.02
PLACES = 4
"""Copies of a program's arrays, of which the fastest counts: on some pages of memory the same
program takes a fifth longer."""


def found(
    work: lw.Workload, threads: int, seed: int, seconds: float, **options: str
) -> tuple[Tuned, float]:
    """The result of a search, and the seconds of it."""
    begun = monotonic()
    tuned = lw.tune(
        work,
        threads=threads,
        minutes=seconds / 60,
        seed=seed,
        records=None,
        progress=False,
        **options,  # type: ignore[arg-type]
    )
    assert isinstance(tuned, Tuned)
    return tuned, monotonic() - begun


def measured(
    work: lw.Workload, threads: int, seed: int, seconds: float, long: float, short: Sequence[str]
) -> dict[str, Any]:
    """Seconds of a call by what each search found, and the searches' trials and seconds."""
    searches = {"long": found(work, threads, seed, long)}
    for name in short:
        searches[name] = found(work, threads, seed, seconds, **SHORT[name])
    inputs = random_inputs(work, np.random.default_rng(seed))
    given = dict(zip((t.name for t in work.inputs), inputs))
    calls = []
    for tuned, _ in searches.values():
        library = tuned.library
        bound = library.bind(**{n: given[n] for n in library.signature.constants})
        for _ in range(PLACES):
            calls.append(bound.prepare_call(*(given[p.name].copy() for p in bound.inputs)))
    with MachineLease():
        taken = iter(speeds(calls))
    return {
        name: {
            "call": min(itertools.islice(taken, PLACES)),
            "trials": len(tuned.history),
            "seconds": took,
        }
        for name, (tuned, took) in searches.items()
    }


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Ratios to the long search: of each row the geometric mean and the worst over seeds."""
    names = [name for name in SHORT if all(name in row for row in rows.values())]
    table = Table("row", "seeds", "long, µs", *(f"{n}: ratio, worst, reached" for n in names))
    of_row: dict[str, list[dict[str, Any]]] = {}
    for key, row in rows.items():
        of_row.setdefault(key.rpartition(" seed ")[0], []).append(row)
    for name, own in (of_row | {"all": list(rows.values())}).items():
        cells = []
        for n in names:
            ratios = [r[n]["call"] / r["long"]["call"] for r in own]
            mean = statistics.geometric_mean(ratios)
            cells.append(f"{mean:.3f}, {max(ratios):.3f}, {sum(x <= REACHED for x in ratios)}")
        long = statistics.fmean(r["long"]["call"] for r in own)
        table.add_row(name, str(len(own)), f"{1e6 * long:.1f}" if name != "all" else "", *cells)
    for what, form in (("trials", "{:.0f}"), ("seconds", "{:.1f}")):
        means = [statistics.fmean(r[n][what] for r in rows.values()) for n in ("long", *names)]
        table.add_row(f"{what} of a search", "", *(form.format(mean) for mean in means))
    Console(width=140).print(table)


@click.command(help=__doc__)
@click.argument("file", type=Path)
@click.option("--seconds", default=10.0, show_default=True, help="Of the short searches.")
@click.option("--long", "long_seconds", default=120.0, show_default=True, help="Of the long one.")
@click.option("--seeds", default=5, show_default=True, help="Of the searches, from 0.")
@click.option("--minutes", default=120.0, show_default=True, help="No search begins later.")
@click.option("--threads", default=1, show_default=True, help="Of the programs.")
@click.option(
    "--short",
    multiple=True,
    type=click.Choice(list(SHORT)),
    default=tuple(SHORT),
    help="Only this short search; may be given again.",
)
@click.option("--row", "only", multiple=True, help="Only this one; may be given again.")
def main(
    file: Path,
    seconds: float,
    long_seconds: float,
    seeds: int,
    minutes: float,
    threads: int,
    short: tuple[str, ...],
    only: tuple[str, ...],
) -> None:
    """Search, compare and print, as far as the time goes."""
    rows, end = Kept(file), monotonic() + 60 * minutes
    for seed in range(seeds):
        for row in select(SUITES, only or ROWS):
            name = row.name if threads == 1 else f"{row.name}, {threads} threads,"
            key = f"{name} {seconds:g} s beside {long_seconds:g} seed {seed}"
            if key in rows or monotonic() > end:
                continue
            rows[key] = measured(row.request.workload, threads, seed, seconds, long_seconds, short)
            shown = "  ".join(f"{n} {1e6 * r['call']:.1f}" for n, r in rows[key].items())
            click.echo(f"{key}: {shown} µs", err=True)
    if rows:
        show(rows)


if __name__ == "__main__":
    main()
