"""Operators: Loopwright beside the libraries that a user would otherwise take.

    python benchmarks/operators.py --suite resnet --threads 2 --trials 256

Every contender works in a process of its own, rounds interleaved, on as many threads, with
constants prepared ahead of time where it can. All results are compared with float64 ones first.
Tuning comes before timing and goes to a record store, so the same command again only measures.
With --json, rows measured now replace those that the file has, and tables show all of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import contenders
import numpy as np
from contenders.reference import reference
from contenders.tuning import FIRST, LAST, Tuning
from options import FILE, listed, numerics
from outcomes import Outcome, load, merged, origin, outcome, save
from peers import Processes
from rich.console import Console
from suites import SUITES, select
from suites.row import Row
from tables import comparisons, markdown, summary

from loopwright.codegen.target import resolve
from loopwright.measure.roofline import Roofline, roofline

_PACKAGES = ("loopwright", "numpy", "torch", "onnxruntime", "openvino", "apache-tvm")


def measure(
    work: Sequence[tuple[Row, Sequence[int]]],
    names: Sequence[str],
    tuning: Tuning,
    rounds: int,
    peaks: dict[int, Roofline],
) -> Iterator[Outcome]:
    """One row after the other, tuned first where that is asked for."""
    with Processes() as processes, tempfile.TemporaryDirectory() as folder:
        for row, threads in work:
            expected = f"{folder}/expected.npy"
            np.save(expected, reference(row))
            for count in threads:
                every = tuning.ours(row, count, expected) + [
                    contenders.peer(name, row, count, expected, **tuning.theirs(name, row, count))
                    for name in names
                ]
                results = processes.compare(every, rounds)
                yield outcome(row, count, tuning.trials, results, peaks[count])


def shown(o: Outcome) -> str:
    return f"{o.suite} {o.row} x{o.threads}: {o.ratio:.2f} of {o.best}; {o.times}"


def about(peaks: dict[int, Roofline]) -> dict[str, object]:
    """What a file of results tells beside them."""
    measured = {n: {"FLOP/s": p.flops, "bytes/s": p.bandwidth} for n, p in peaks.items()}
    return {**origin(_PACKAGES, processor=str(resolve("cpu"))), "peaks": measured}


@click.command(help=__doc__)
@click.option("--suite", callback=listed, default=",".join(SUITES), show_default=True)
@click.option(
    "--row", "rows", multiple=True, help="Only this one: ROW or SUITE:ROW. May be given again."
)
@click.option("--threads", callback=listed, default="1,2", show_default=True)
@click.option("--trials", default=256, show_default=True, help="0 is the default schedule.")
@click.option("--default", is_flag=True, help="The default schedule: --trials 0.")
@click.option(
    "--also", type=int, multiple=True, help="And the winner of so many trials, as ours@N; again."
)
@click.option(
    "--layout",
    type=click.Choice([FIRST, LAST]),
    help="Ours with channels there alone, where both can be.  [default: both]",
)
@numerics
@click.option("--records", type=FILE, default="operators.db", show_default=True)
@click.option(
    "--peers",
    callback=listed,
    default=",".join(contenders.PEERS),
    show_default=True,
    help="metaschedule is there too, and takes minutes a row.",
)
@click.option("--rounds", default=15, show_default=True)
@click.option("--json", "json_", type=FILE, help="Keep results here.")
@click.option("--missing", is_flag=True, help="Leave out what the file of --json has.")
@click.option("--markdown", "markdown_", type=FILE, help="Write tables here, not to the screen.")
@click.option("--plot", type=FILE, help="Draw the ratios: .png, .svg, …")
def main(
    suite: list[str],
    rows: tuple[str, ...],
    threads: list[str],
    trials: int,
    default: bool,
    also: tuple[int, ...],
    layout: str | None,
    numerics: str,
    records: Path,
    peers: list[str],
    rounds: int,
    json_: Path | None,
    missing: bool,
    markdown_: Path | None,
    plot: Path | None,
) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        chosen = select(suite, rows)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if unknown := [p for p in peers if p not in contenders.FUNCTIONS]:
        raise click.UsageError(f"no peer is called {unknown[0]!r}: {', '.join(contenders.PEERS)}")
    counts = [int(count) for count in threads]
    if max(counts) > len(os.sched_getaffinity(0)):
        raise click.UsageError(f"--threads {max(counts)}: there are not as many processors")
    peaks = {count: roofline(resolve("cpu", count)) for count in counts}
    layouts = [layout] if layout else (FIRST, LAST)
    tuning = Tuning(0 if default else trials, records, also, layouts, numerics)
    found = load(json_) if json_ else []
    known = {(o.key, o.threads) for o in found} if missing else set()
    work = [(row, [n for n in counts if (row.key, n) not in known]) for row in chosen]
    for o in measure([w for w in work if w[1]], peers, tuning, rounds, peaks):
        console.print(shown(o), markup=False)
        found = merged(found, [o])
        if json_:
            save(json_, found, about(peaks))
    if markdown_:
        markdown_.write_text(markdown(found))
        click.echo("\n\n".join([summary(found), *comparisons(found)]))
    else:
        click.echo(markdown(found))
    if plot:
        from ratio_plot import draw

        draw(found, plot)


if __name__ == "__main__":
    main()
