"""Zero-shot tuning against a search: how fast the choice is, and how soon it is there.

    python benchmarks/instant.py [--suite resnet] [--row C2 --row C6] [--threads 2] [--trials 512]
    python benchmarks/instant.py --drawn 56

For every row: the best of a search without transfer (from the store, or searched now), the global
model's choice (trials=0), and the best of eight (effort="instant"), all three and the default then
measured side by side. Times include building, but neither imports nor the start of Python; the
rows are none that the shipped model learned from. With --drawn the rows are drawn as those of
`collect.py` are, by another seed; nothing is searched, and speeds are relative to the default's.
Geometric means come last.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from suites import SUITES, select
from suites.drawn import drawn

import loopwright as lw
from loopwright.explore.tune import tune
from loopwright.explore.tuned import Tuned
from loopwright.measure.local import LocalDevice
from loopwright.schedule import registry
from loopwright.schedule import space as spaces
from loopwright.schedule.sketch.sketch import Config

ROUNDS = 9


@dataclass(frozen=True)
class Result:
    """Speeds relative to the search's best, or the default's, and the seconds until each choice
    was there, built."""

    row: str
    default: float
    chosen: float
    instant: float
    choosing: float
    measuring: float


def found(work: lw.Workload, threads: int, trials: int, records: Path) -> Config:
    """The best of a search."""
    best = tune(work, threads=threads, trials=0, records=records, transfer=None)
    if len(best.history) < trials:
        best = lw.tune(work, threads=threads, trials=trials, records=records, transfer=None)
    return best.config


def compared(
    work: lw.Workload, name: str, threads: int, transfer: str, best: Config | None
) -> Result:
    """One row, against a config or, without one, the default."""
    chosen, choosing = timed(
        lambda: tune(work, threads=threads, trials=0, records=None, transfer=transfer)
    )
    instant, measuring = timed(
        lambda: tune(work, threads=threads, effort="instant", records=None, transfer=transfer)
    )
    default = lw.space(work, threads=threads).default
    configs = [best or default, default, chosen.config, instant.config]
    with LocalDevice("cpu", threads) as device:
        samples = device.compare(work, configs, ROUNDS).samples
    reference, *others = (float(np.median(s)) for s in samples)
    return Result(name, *(reference / s for s in others), choosing, measuring)


def timed(search: Callable[[], Tuned]) -> tuple[Tuned, float]:
    """What a search found, and the seconds until it could be called, the derivation of its space
    among them, as in a process that tunes for the first time."""
    for derived in (registry.direct, spaces._space, spaces._default, spaces._found):
        derived.cache_clear()
    start = time.perf_counter()
    tuned = search()
    _ = tuned.library
    return tuned, time.perf_counter() - start


def shown(r: Result) -> str:
    return (
        f"{r.row:<28} default {r.default:5.2f}  trials=0 {r.chosen:5.2f} in {r.choosing:5.2f} s  "
        f"instant {r.instant:5.2f} in {r.measuring:5.2f} s"
    )


def means(results: list[Result]) -> Result:
    columns = zip(*((r.default, r.chosen, r.instant, r.choosing, r.measuring) for r in results))
    return Result("geometric mean", *map(statistics.geometric_mean, columns))


@click.command(help=__doc__)
@click.option("--suite", default="resnet", show_default=True, help="Some, with commas.")
@click.option(
    "--row", "rows", multiple=True, help="Only this one: ROW or SUITE:ROW. May be given again."
)
@click.option("--threads", default=2, show_default=True)
@click.option("--trials", default=512, show_default=True, help="Of the search.")
@click.option("--records", type=click.Path(path_type=Path), default="instant.db")
@click.option("--transfer", default="auto", show_default=True, help="Or a model file.")
@click.option("--seconds", type=float, help="No row begins later.")
@click.option("--skip", default=0, help="Leave so many rows out.")
@click.option("--drawn", "count", type=click.IntRange(1), help="So many drawn rows instead.")
@click.option("--seed", default=7, show_default=True, help="Of the draw.")
def main(
    suite: str,
    rows: tuple[str, ...],
    threads: int,
    trials: int,
    records: Path,
    transfer: str,
    seconds: float | None,
    skip: int,
    count: int | None,
    seed: int,
) -> None:
    try:
        chosen = select(suite.split(","), rows) if count is None else drawn(count, seed)
    except ValueError as error:
        raise click.UsageError(f"{error}; suites: {', '.join(SUITES)}") from error
    begun, results = time.monotonic(), []
    for row in chosen[skip:]:
        if seconds is not None and time.monotonic() - begun > seconds:
            break
        work = row.request.workload
        best = found(work, threads, trials, records) if count is None else None
        results.append(compared(work, row.key, threads, transfer, best))
        click.echo(shown(results[-1]))
    if results:
        click.echo(shown(means(results)))


if __name__ == "__main__":
    main()
