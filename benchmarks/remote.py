"""Remote devices on loopback: what a trial costs beside its calls, and shared machines.

    python benchmarks/remote.py                      # overhead of a trial, beside a local one
    python benchmarks/remote.py --overlap 1000       # a local and a remote tuner on one machine

A shell of this machine stands in for another one's; --device takes the URL of a real one for the
overhead. benchmarks/faults.py has what becomes of work when something fails.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import loopwright as lw
from loopwright.measure.builder import Builder, Built
from loopwright.measure.lease import MachineLease
from loopwright.measure.reference import Limits, References
from loopwright.measure.remote import processor
from loopwright.measure.remote.device import target_of
from loopwright.measure.remote.link import Link
from loopwright.measure.remote.route import Route, route
from loopwright.measure.runner import Data, Runner
from loopwright.measure.timing import Timing
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.pool import Pool
from loopwright.schedule.space import space
from loopwright.schedule.target import Target

_TIMING = Timing(cap=0.02)


def product(size: int) -> lw.Workload:
    """A product of matrices."""
    A, B = lw.tensor("A", (size, size)), lw.tensor("B", (size, size), constant=True)
    return lw.workload(lw.ops.matmul(A, B))


def loopback(folder: Path) -> Route:
    """A shell of this machine, whose workers live in a folder."""
    return Route("loopback", ("env", f"XDG_CACHE_HOME={folder}", "sh"))


@dataclass(frozen=True)
class Work:
    """Candidates that are built, and the data that they are checked with."""

    data: Data
    built: Sequence[Built]


def prepared(size: int, count: int, target: Target, runner: Runner, folder: Path) -> Work:
    """So many random candidates of a product that work."""
    workload = product(size)
    points, rng = space(workload, target), np.random.default_rng(size)
    builder = Builder(Pool(Kind("build", 0, folder), 2), 20.0)
    try:
        references = References(target, builder, runner, Limits(run=2.0), 0)
        found = [points.default, *(points.sample(rng) for _ in range(count - 1))]
        data, built = references.beside(workload, found)
        return Work(data, [b for b in built if b.failure is None])
    finally:
        builder.close()


# ---- overhead


@dataclass
class Calls:
    """Seconds that calls took on the other machine, and round trips for them."""

    seconds: float = 0.0
    count: int = 0


@contextlib.contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls of all remote candidates."""
    calls, repeat = Calls(), processor.RemoteCall.repeat

    def counting(call: processor.RemoteCall, times: int) -> tuple[float, float]:
        warm = call._warm
        elapsed, cpu = repeat(call, times)
        calls.seconds += elapsed * (1 + warm / times)
        calls.count += 1
        return elapsed, cpu

    processor.RemoteCall.repeat = counting  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        processor.RemoteCall.repeat = repeat  # type: ignore[method-assign]


def overhead(
    console: Console, way: Route, sizes: Sequence[int], trials: int, repeats: int
) -> None:
    table = Table(
        "product of", "ms a trial, local", "remote", "in calls", "overhead", "round trips",
        "first connection, s",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in sizes:
            began = time.perf_counter()
            link = Link(way)
            target = target_of(link.facts, "cpu", 1)
            connected = time.perf_counter() - began
            there = Runner(link, lease=link)
            here = Runner(Pool(Kind("run", 0, folder), 1))
            work = prepared(size, trials, target, there, folder)
            rows = []
            for _ in range(repeats):
                with counted() as calls:
                    remote = run(there, work)
                inside, trips = (n / len(work.built) for n in (calls.seconds, calls.count))
                rows.append((remote - inside, run(here, work), remote, inside, trips))
            least, local, remote, inside, trips = min(rows)  # others only ever add to it
            times = (f"{1e3 * s:.1f}" for s in (local, remote, inside, least))
            table.add_row(f"{size}²", *times, f"{trips:.0f}", f"{connected:.2f}")
            there.close()
            here.close()
    console.print(table)
    console.print("overhead: shipping, loading, checking, the lease, and messages; goal: 10 ms")


def run(runner: Runner, work: Work) -> float:
    """Seconds of wall time a trial."""
    list(runner.measure(work.data, work.built[:1], _TIMING))  # the data are there
    began = time.perf_counter()
    taken = list(runner.measure(work.data, work.built, _TIMING))
    assert all(one.failure is None for one in taken), "a candidate failed"
    return (time.perf_counter() - began) / len(taken)


# ---- one machine


class Noted:
    """A lease that notes when it was held, in nanoseconds of the machine's clock."""

    def __init__(self, lease: Any, path: Path) -> None:
        self._lease, self._path = lease, path
        self.deadline = lease.deadline

    def __enter__(self) -> None:
        self._lease.__enter__()
        self._began = time.monotonic_ns()

    def __exit__(self, *error: Any) -> None:
        ended = time.monotonic_ns()
        self._lease.__exit__(*error)
        with self._path.open("a") as file:
            file.write(f"{self._began} {ended}\n")


def tuner(remote: bool, count: int, folder: Path, log: Path) -> None:
    """Measure so many candidates, two at a time."""
    link = Link(loopback(folder))
    target = target_of(link.facts, "cpu", 1)
    work = prepared(64, 2, target, Runner(link, lease=link), folder)
    runner = Runner(Pool(Kind("run", 0, folder), 1), lease=Noted(MachineLease(), log))
    if remote:
        runner = Runner(link, lease=Noted(link, log))
    for _ in range(count // len(work.built)):
        list(runner.measure(work.data, work.built, _TIMING))
    runner.close()
    link.close()


def overlap(console: Console, count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, logs = Path(name), [Path(name) / "local", Path(name) / "remote"]
        spawn = multiprocessing.get_context("spawn")
        tuners = [
            spawn.Process(target=tuner, args=(remote, count // 2, folder, log))
            for remote, log in enumerate(logs)
        ]
        for process in tuners:
            process.start()
        for process in tuners:
            process.join()
        held = sorted((*map(int, line.split()), log.name) for log in logs for line in log.open())
    pairs = list(itertools.pairwise(held))
    console.print(
        f"{count} measurements by a local and a remote tuner, machine held {len(held)} times: "
        f"{sum(one[1] > other[0] for one, other in pairs)} overlap, "
        f"{sum(one[2] != other[2] for one, other in pairs)} changes of the holder"
    )


@click.command(help=__doc__)
@click.option("--device", help="URL of a machine; this one, by a shell, if not given.")
@click.option("--sizes", default="16,128,512", show_default=True)
@click.option("--trials", default=32, show_default=True)
@click.option("--repeats", default=5, show_default=True, help="Of which the least counts.")
@click.option("--overlap", "overlap_count", default=0)
def main(device: str | None, sizes: str, trials: int, repeats: int, overlap_count: int) -> None:
    console = Console()
    if overlap_count:
        overlap(console, overlap_count)
        return
    with tempfile.TemporaryDirectory() as name:
        way = loopback(Path(name)) if device is None else route(device)
        overhead(console, way, [int(size) for size in sizes.split(",")], trials, repeats)


if __name__ == "__main__":
    main()
