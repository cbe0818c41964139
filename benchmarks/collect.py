"""Collect records to learn from: many workloads of every kind, random and searched configs.

    python benchmarks/collect.py [--records collect.db] [--seconds 60] [--visits 3]

Nothing else should run meanwhile. Most of the time goes into building, which does not mind: with
--ahead visits are prepared, to wait on a --shelf, and later ones without it take them from there.

With --again a visit measures what was measured before: a model that is to be judged is judged by
times that are sure. Two measurements of a program, minutes apart and in another process, differ
by a few percent.

With --adopt FOLDER the records of the paper's figures are added, and nothing is measured.

Workloads are drawn (`suites/drawn.py`), none of which the benchmarks measure, so that these can
judge what was learned. They are visited in turns, each on one thread and on all; a visit measures
a few configs, half of them chosen by the search that a user would run, half of them random. What
was measured counts: the same command goes on where the last one ended, for as many seconds as are
given. It prints one line for each visit.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from suites import SUITES
from suites.drawn import drawn
from suites.row import Row

from loopwright.codegen.target import resolve
from loopwright.dsl.workload import Workload
from loopwright.explore.strategies.encoded_space import Seen
from loopwright.explore.tuner import Tuner
from loopwright.measure.builder import Task
from loopwright.measure.device import Device, DeviceError, Failure, Measurement
from loopwright.measure.local import LocalDevice
from loopwright.measure.machine import fingerprint, hardware, processors
from loopwright.measure.reference import Limits
from loopwright.measure.timing import Timing
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.schedule.target import Target
from loopwright.transfer.records.store import Record, RecordStore

sys.path.append(str(Path(__file__).parent / "paper"))
from ahead import Shelf
from recorded import Recorded

TIMING = Timing(cap=0.06)
LIMITS = Limits(run=2.0, oracle=10.0)
_MOST_WAITING = 40


@dataclass(frozen=True)
class Job:
    """A workload, and what it is compiled for: so many threads of this machine."""

    row: Row
    target: Target

    @property
    def workload(self) -> Workload:
        return self.row.request.workload

    @property
    def threads(self) -> int:
        return self.target.threads

    @property
    def key(self) -> tuple[str, str, int]:
        return self.workload.key, str(self.target), self.threads


def jobs(workloads: int, targets: tuple[Target, ...], seed: int) -> list[Job]:
    """Every workload for every target, neighbours of different kinds."""
    others = [row for suite in SUITES.values() for row in suite()]
    rows = drawn(workloads, seed, others)
    shifts = range(len(targets))
    return [Job(r, targets[(n + s) % len(targets)]) for s in shifts for n, r in enumerate(rows)]


def ordered(
    work: list[Job], store: RecordStore, size: int, visits: int, again: bool = False
) -> list[Job]:
    """Those with the fewest visits first, without those that have had enough; `again` leaves out
    those that have had none."""
    records = {job.key: 0 for job in work}
    machine = hardware(fingerprint())
    for s in store.settings():
        key = s.workload_key, s.target, s.threads
        if s.hardware == machine and key in records:
            records[key] += s.measured + s.failed
    had = {key: -(-count // size) for key, count in records.items()}
    wanted = (job for job in work if again <= had[job.key] < visits)
    return sorted(wanted, key=lambda job: had[job.key])


class Waiting:
    """Visits that were prepared: which configs they measure, and their code."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def shelf(self, target: Target) -> Shelf:
        """Where the code for a target is."""
        return Shelf(self._folder / _digest(target))

    def has(self, job: Job) -> bool:
        return self._file(job).exists()

    def put(self, job: Job, configs: list[Config]) -> None:
        self._file(job).write_text(json.dumps([c.to_json() for c in configs]))

    def take(self, job: Job) -> list[Config]:
        text = self._file(job).read_text()
        self._file(job).unlink()
        return [Config.from_json(data) for data in json.loads(text)]

    def _file(self, job: Job) -> Path:
        return self._folder / f"{job.workload.key}-{_digest(job.target)}.json"


def chosen(job: Job, store: RecordStore, size: int) -> list[Config]:
    """What the next visit of a workload measures: half of it what the search would begin, or go
    on, with, and half of it random."""
    known = before(job, store)
    seed = len(known)
    tuner = Tuner(space(job.workload, job.target, "fast"), seed=seed)
    tuner.tell(list(known), known.values())
    asked = tuner.ask(size // 2)
    encoded, taken = tuner.strategy.encoded, Seen()
    taken.add(encoded.points([*known, *asked]))
    rest = encoded.fresh(size - len(asked), taken, np.random.default_rng(seed))
    return [*asked, *encoded.configs(rest)]


def known(job: Job, store: RecordStore, size: int) -> list[Config]:
    """What the first visit of a workload measured."""
    return list(before(job, store))[:size]


def before(job: Job, store: RecordStore) -> dict[Config, float]:
    """What was measured, and is of today's space."""
    points = space(job.workload, job.target, "fast")
    measured = store.measured(job.workload, job.target, fingerprint())
    return {config: cost for config, cost in measured.items() if config in points}


def _digest(target: Target) -> str:
    return hashlib.sha256(f"{target} {target.threads}".encode()).hexdigest()[:16]


def measure(job: Job, configs: list[Config], device: Device, store: RecordStore) -> int:
    """Measure configs, and store them; how many failed."""
    machine, session = fingerprint(), f"collect-{time.time_ns():x}"
    records = [
        Record.of(job.workload, job.target, machine, m, session=session)
        for m in device.measure(job.workload, configs)
    ]
    store.add(records)
    return sum(r.failure is not None for r in records)


def prepare(work: list[Job], waiting: Waiting, store: RecordStore, size: int, end: float) -> None:
    """Choose and build for the visits to come, until the time is up or so many wait."""
    with ExitStack() as stack:
        every = {job.target for job in work}
        shelves = {t: stack.enter_context(closing(waiting.shelf(t))) for t in every}
        for job in work[:_MOST_WAITING]:
            if time.monotonic() > end:
                return
            if not waiting.has(job):
                configs = chosen(job, store, size)
                shelves[job.target].ahead(Task(job.workload, job.target), configs)
                waiting.put(job, configs)


def visit(
    work: list[Job],
    waiting: Waiting,
    store: RecordStore,
    choose: Callable[[Job], list[Config]],
    end: float,
) -> None:
    """One visit after the other, those that were prepared first, until the time is up."""
    with ExitStack() as stack:
        devices: dict[Target, LocalDevice] = {}
        for job in sorted(work, key=lambda j: not waiting.has(j)):
            if time.monotonic() > end:
                return
            if job.target not in devices:
                shelf = waiting.shelf(job.target)
                device = LocalDevice(job.target, timing=TIMING, limits=LIMITS, builder=shelf)
                devices[job.target] = stack.enter_context(device)
            start, ready = time.monotonic(), waiting.has(job)
            configs = waiting.take(job) if ready else choose(job)
            try:
                failed = measure(job, configs, devices[job.target], store)
            except DeviceError as error:
                click.echo(f"{job.row.name} x{job.threads}: {error}", err=True)
                continue
            click.echo(
                f"{job.row.name} x{job.threads}: {len(configs)} configs, {failed} failed, "
                f"{time.monotonic() - start:.1f} s{', prepared' if ready else ''}"
            )


def adopt(folder: Path, store: RecordStore) -> int:
    """Add what the paper's figures replay, see `paper/collect.py`; how many records were new."""
    before = len(store)
    for path in sorted(folder.glob("*.npz")):
        table = Recorded.load(path)
        about = table.space.workload, table.space.target, table.machine
        store.merge(
            Record.of(*about, _measurement(config, cost), session="paper")
            for config, cost in table.costs.items()
        )
    return len(store) - before


def _measurement(config: Config, cost: float) -> Measurement:
    seconds, failure = (
        ((cost,), None) if math.isfinite(cost) else ((), Failure("run", "it failed"))
    )
    return Measurement(config, seconds, failure, 0.0, 0.0, "warm", 1, 0.0)


def targets(avx2: bool) -> tuple[Target, ...]:
    """This machine by one thread, and by all; `avx2` is one as if it had no AVX-512."""
    every = tuple(resolve("cpu", n) for n in sorted({1, len(processors())}))
    if not avx2:
        return every
    if "+avx2" not in every[0].features:
        raise click.UsageError("--avx2 needs a processor that has it")
    features = tuple(f for f in every[0].features if "avx512" not in f)
    width = {"vector_bytes": 32, "vector_registers": 16}
    return tuple(replace(t, mcpu="x86-64-v3", features=features, **width) for t in every)


@click.command(help=__doc__)
@click.option("--records", type=click.Path(path_type=Path), default="collect.db")
@click.option("--seconds", default=60.0, show_default=True, help="No visit begins later.")
@click.option("--workloads", default=112, show_default=True)
@click.option("--visits", default=3, show_default=True, help="Of each workload and threads.")
@click.option("--size", default=24, show_default=True, help="Configs of a visit.")
@click.option("--seed", default=5, show_default=True, help="Of the draw of workloads.")
@click.option("--avx2", is_flag=True, help="Code without AVX-512, on machines that have it.")
@click.option("--again", is_flag=True, help="Visits measure what the first one measured.")
@click.option("--shelf", type=click.Path(path_type=Path), help="Where prepared visits wait.")
@click.option("--ahead", is_flag=True, help="Prepare visits, measure nothing.")
@click.option("--adopt", "tables", type=click.Path(path_type=Path), help="Add paper/data instead.")
def main(
    records: Path,
    seconds: float,
    workloads: int,
    visits: int,
    size: int,
    seed: int,
    avx2: bool,
    again: bool,
    shelf: Path | None,
    ahead: bool,
    tables: Path | None,
) -> None:
    end = time.monotonic() + seconds
    if ahead and shelf is None:
        raise click.UsageError("--ahead needs a --shelf that stays")
    if again and shelf is not None:
        raise click.UsageError("--again takes nothing from a --shelf")
    with RecordStore(records) as store, tempfile.TemporaryDirectory() as own:
        if tables is not None:
            click.echo(f"{adopt(tables, store)} new records")
            return
        work = ordered(jobs(workloads, targets(avx2), seed), store, size, visits, again)
        if not work:
            click.echo(f"every workload has had {visits} visits")
            return
        waiting = Waiting(shelf or Path(own))
        if ahead:
            prepare(work, waiting, store, size, end)
        else:
            choose = known if again else chosen
            visit(work, waiting, store, lambda job: choose(job, store, size), end)


if __name__ == "__main__":
    main()
