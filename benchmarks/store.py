"""Overhead of record stores: what a commit, a look-up and an opening take, in files and on servers.

    python benchmarks/store.py                                       # a file
    python benchmarks/store.py postgresql://user@host/db             # beside it, a server

A server's own store is not touched: its records are made up, of a workload of their own. Each line
is the median, and the 95th percentile, of as many repetitions as `--minutes` allow.
"""

from __future__ import annotations

import dataclasses
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


def workload() -> lw.Workload:
    return lw.workload(lw.ops.matmul(lw.tensor("A", (24, 36)), lw.tensor("B", (36, 48))))


def made_up(of: lw.Workload) -> Iterator[Record]:
    """Records that differ in their times alone."""
    config: Config = space(of, TARGET).default
    begin = time.time()
    m = Measurement(config, (1e-3,) * 3, None, 0.1, 0.2, "warm", TARGET.threads, begin)
    first = Record.of(of, TARGET, MACHINE, m, seed=0, session=f"benchmark {begin}")
    number = 0
    while True:
        yield dataclasses.replace(first, created=begin + number * 1e-3)
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
    of = workload()
    source = made_up(of)
    with RecordStore(place) as store:
        for size in SIZES:
            yield (
                f"add {size}",
                timed(lambda size=size: store.add([next(source) for _ in range(size)]), seconds),
            )
        key, where = of, {"machine": MACHINE}
        yield "best", timed(lambda: store.best(key, TARGET, **where), seconds)

        def reopened() -> None:
            store.close()
            store.settings()

        yield "open", timed(reopened, seconds)


@click.command()
@click.argument("servers", nargs=-1)
@click.option("--minutes", type=float, default=1.0, show_default=True)
def main(servers: tuple[str, ...], minutes: float) -> None:
    """Print a table of the milliseconds that stores take."""
    with tempfile.TemporaryDirectory() as folder:
        places = {
            "SQLite": str(Path(folder) / "r.db"),
            **{str(n): url for n, url in enumerate(servers, 1)},
        }
        seconds = 60 * minutes / len(places) / (len(SIZES) + 2)
        click.echo("| store | what | ms, median | 95 % | calls |\n|---|---|---|---|---|")
        for name, place in places.items():
            label = name if name == "SQLite" else "PostgreSQL"
            for what, times in rows(place, seconds):
                last = statistics.quantiles(times, n=20)[-1]
                click.echo(
                    f"| {label} | {what} | {statistics.median(times):.2f} | {last:.2f} | {len(times)} |"
                )


if __name__ == "__main__":
    main()
