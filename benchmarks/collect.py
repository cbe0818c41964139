"""Collect records to learn from: many workloads of every kind, random and searched configs.

    python benchmarks/collect.py [--records collect.db] [--seconds 60] [--visits 3]

Workloads are drawn (`suites/drawn.py`), none of which the benchmarks measure, so that these can
judge what was learned. They are visited in turns, each on one thread and on all; a visit measures
a few configs, half of them chosen by the search that a user would run, half of them random. What
was measured counts: the same command goes on where the last one ended, for as many seconds as are
given. It prints one line for each visit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from suites import SUITES
from suites.drawn import drawn
from suites.row import Row

from loopwright.explore.points import Seen
from loopwright.explore.tuner import Tuner
from loopwright.measure.device import DeviceError
from loopwright.measure.local import LocalDevice
from loopwright.measure.machine import processors
from loopwright.measure.reference import Limits
from loopwright.measure.timing import Timing
from loopwright.schedule.sketch import Config
from loopwright.schedule.space import space
from loopwright.transfer.records import Record, RecordStore

SEED = 5
TIMING = Timing(relative=0.03, cap=0.03, retries=10)
LIMITS = Limits(run=2.0, oracle=10.0)


@dataclass(frozen=True)
class Job:
    """A workload on so many threads."""

    row: Row
    threads: int

    @property
    def key(self) -> tuple[str, int]:
        return self.row.request.workload.key, self.threads


def jobs(workloads: int, counts: tuple[int, ...]) -> list[Job]:
    """Every workload on every number of threads, neighbours of different kinds."""
    others = [row for suite in SUITES.values() for row in suite()]
    rows = drawn(workloads, SEED, others)
    shifts = range(len(counts))
    return [Job(row, counts[(n + s) % len(counts)]) for s in shifts for n, row in enumerate(rows)]


def ordered(work: list[Job], store: RecordStore, size: int, visits: int) -> Iterator[Job]:
    """Those with the fewest visits first, until each has had enough."""
    records = {job.key: 0 for job in work}
    for s in store.settings():
        if (s.workload_key, s.threads) in records:
            records[s.workload_key, s.threads] += s.measured + s.failed
    had = {key: -(-count // size) for key, count in records.items()}
    for least in range(visits):
        yield from (job for job in work if had[job.key] <= least)


def visit(job: Job, device: LocalDevice, store: RecordStore, size: int) -> list[Record]:
    """Measure `size` more configs of a workload, and store them."""
    workload, machine = job.row.request.workload, device.fingerprint()
    points = space(workload, device.target)
    known = store.measured(workload, device.target, machine)
    seed = len(known)
    tuner = Tuner(points, seed=seed)
    tuner.tell(list(known), known.values())
    chosen = tuner.ask(size // 2 if known else size)
    domain, taken = tuner.strategy.domain, Seen()
    taken.add(domain.points([*known, *chosen]))
    rest = domain.fresh(size - len(chosen), taken, np.random.default_rng(seed))
    configs: list[Config] = [*chosen, *domain.configs(rest)]
    session = f"collect-{time.time_ns():x}"
    records = [
        Record.of(workload, device.target, machine, m, seed=seed, session=session)
        for m in device.measure(workload, configs)
    ]
    store.add(records)
    return records


@click.command(help=__doc__)
@click.option("--records", type=click.Path(path_type=Path), default="collect.db")
@click.option("--seconds", default=60.0, show_default=True, help="No visit begins later.")
@click.option("--workloads", default=112, show_default=True)
@click.option("--visits", default=3, show_default=True, help="Of each workload and threads.")
@click.option("--size", default=24, show_default=True, help="Configs of a visit.")
def main(records: Path, seconds: float, workloads: int, visits: int, size: int) -> None:
    end = time.monotonic() + seconds
    work = jobs(workloads, tuple(sorted({1, len(processors())})))
    with RecordStore(records) as store, ExitStack() as stack:
        devices: dict[int, LocalDevice] = {}
        for job in ordered(work, store, size, visits):
            if time.monotonic() > end:
                return
            if job.threads not in devices:
                device = LocalDevice("cpu", job.threads, timing=TIMING, limits=LIMITS)
                devices[job.threads] = stack.enter_context(device)
            start = time.monotonic()
            try:
                found = visit(job, devices[job.threads], store, size)
            except DeviceError as error:
                click.echo(f"{job.row.name} x{job.threads}: {error}", err=True)
                continue
            failed = sum(r.failure is not None for r in found)
            click.echo(
                f"{job.row.name} x{job.threads}: {len(found)} configs, {failed} failed, "
                f"{time.monotonic() - start:.1f} s"
            )
        click.echo(f"every workload has had {visits} visits")


if __name__ == "__main__":
    main()
