"""Overhead of record stores: what a commit, a look-up and an opening take.

    python benchmarks/store.py                                       # a file
    python benchmarks/store.py postgresql://user@host/db             # beside it, a server

The records are made up, and stay on the server: give a database that nobody else uses. Each line
is the median, and the 95th percentile, of as many repetitions as `--minutes` allow.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

import loopwright as lw
from loopwright.measure.device import Measurement
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.transfer.records.record import Record
from loopwright.transfer.records.store import RecordStore

TARGET, MACHINE = Target(threads=2), {"processor": "made up by benchmarks/store.py"}
SIZES = (1, 8, 64)
"""Records of a commit."""
FILLED = 5000
"""Records among which a look-up looks."""


def workload() -> lw.Workload:
    return lw.workload(lw.ops.matmul(lw.tensor("A", (24, 36)), lw.tensor("B", (36, 48))))


def made_up(of: lw.Workload) -> Iterator[Record]:
    """Records of a thousand configs, all of other times."""
    begin = time.time()
    default = space(of, TARGET).default
    number = 0
    while True:
        config = Config(default.sketch, (*default.values, ("made up", (number % 1000,))))
        seconds = (1e-3 + 1e-6 * (number % 1000),) * 3
        when = begin + 1e-3 * number
        m = Measurement(config, seconds, None, 0.1, 0.2, "warm", TARGET.threads, when)
        yield Record.of(of, TARGET, MACHINE, m, seed=0, session=f"benchmark {begin}")
        number += 1


def timed(work: Callable[[], object], seconds: float) -> list[float]:
    """Milliseconds of calls, for some seconds; the first is left out."""
    work()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or len(times) < 5:
        work()
        times.append(1e3 * (time.perf_counter() - began))
    return times


def rows(place: str, seconds: float) -> Iterator[tuple[str, list[float]]]:
    """What is timed, and the times in milliseconds."""
    of = workload()
    source = made_up(of)
    with RecordStore(place) as store:
        store.merge(itertools.islice(source, FILLED))
        yield "look-up", timed(lambda: store.best(of, TARGET, machine=MACHINE), seconds)

        def commit(size: int) -> None:
            store.add(list(itertools.islice(source, size)))

        for size in SIZES:
            yield f"commit of {size}", timed(functools.partial(commit, size), seconds)

        def reopened() -> None:
            store.close()
            store.settings()

        yield "opening", timed(reopened, seconds)


@click.command()
@click.argument("servers", nargs=-1)
@click.option("--minutes", type=float, default=1.0, show_default=True)
def main(servers: tuple[str, ...], minutes: float) -> None:
    """Print a table of the milliseconds that stores take."""
    with tempfile.TemporaryDirectory() as folder:
        places = [("SQLite", str(Path(folder) / "r.db")), *(("PostgreSQL", s) for s in servers)]
        seconds = 60 * minutes / len(places) / (len(SIZES) + 2)
        click.echo("| store | what | ms, median | 95 % | calls |\n|---|---|---|---|---|")
        for label, place in places:
            for what, times in rows(place, seconds):
                typical, last = statistics.median(times), statistics.quantiles(times, n=20)[-1]
                click.echo(f"| {label} | {what} | {typical:.2f} | {last:.2f} | {len(times)} |")


if __name__ == "__main__":
    main()
