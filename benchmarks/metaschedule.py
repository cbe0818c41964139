"""Loopwright against TVM's MetaSchedule: equal trials, the time they take, and both winners.

    python benchmarks/metaschedule.py

Both tune alone on the machine; the winners are then timed in processes of their own, interleaved.
`operators.py --peers metaschedule` compares winners for more workloads.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

import click
import contenders
import numpy as np
from contenders.metaschedule_peer import tuned
from contenders.reference import reference
from peers import compare
from rich.console import Console
from rich.table import Table
from suites import SUITES, select

import loopwright as lw


@click.command(help=__doc__)
@click.option(
    "--row", "rows", multiple=True, default=("matmul:512", "resnet:C6"), show_default=True
)
@click.option("--trials", default=128, show_default=True)
@click.option("--rounds", default=21, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(rows: tuple[str, ...], trials: int, rounds: int, threads: int) -> None:
    table = Table(
        "row", "trials", "MetaSchedule ms", "ours ms", "speed-up", "its s", "our s", "ratio"
    )
    for row in select(list(SUITES), rows):
        with tempfile.TemporaryDirectory() as folder:
            expected = f"{folder}/expected.npy"
            np.save(expected, reference(row))
            start = perf_counter()
            workload = row.request.workload
            config = lw.tune(workload, trials=trials, threads=threads, records=None).config
            our_seconds = perf_counter() - start
            their_seconds = tuned(row, threads, trials, Path(folder))
            theirs, ours = contenders.METASCHEDULE, contenders.OURS
            peers = [
                contenders.peer(theirs, row, threads, expected, folder=folder),
                contenders.peer(ours, row, threads, expected, config=config.to_json()),
            ]
            times = compare(peers, rounds)
        table.add_row(
            row.name,
            str(trials),
            f"{1e3 * times[theirs]:.3f}",
            f"{1e3 * times[ours]:.3f}",
            f"{times[theirs] / times[ours]:.2f}",
            f"{their_seconds:.0f}",
            f"{our_seconds:.0f}",
            f"{our_seconds / their_seconds:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
