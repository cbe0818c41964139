"""Measure the sub-spaces that the figures replay: C1 to C12 of ResNet-18 and matmul 1024.

    python benchmarks/paper/collect.py [--data benchmarks/paper/data] [--size 1200] [--seconds 60]

One thread. Each call goes on for the given time, with the workload of which the least is known
first and in random order, so that what there is at any time is a fair sample. A larger size goes
on from what a smaller one measured.

Nothing else should run meanwhile. Most of the time goes into building, which does not mind: with
--ahead candidates are built and put on a --shelf, and what is there is measured first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from ahead import Shelf
from recorded import Recorded, configs
from subspace import subspace

from loopwright.codegen.target import resolve
from loopwright.dsl.workload import Workload
from loopwright.measure.builder import Task
from loopwright.measure.local import LocalDevice
from loopwright.measure.machine import fingerprint
from loopwright.measure.reference import Limits
from loopwright.measure.timing import Timing
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space

sys.path.append(str(Path(__file__).resolve().parents[1]))
from suites import networks, products

DATA = Path(__file__).parent / "data"
BATCH = 40
AHEAD = 400  # of a workload
_LIMITS = Limits(run=2.0)
_TIMING = Timing()


def workloads() -> dict[str, Workload]:
    """By name: C1 to C12 and matmul1024."""
    found = {row.name: row.request.workload for row in networks.resnet()}
    large = next(row for row in products.matmul() if row.name == "1024")
    return found | {"matmul1024": large.request.workload}


def known(name: str, workload: Workload, size: int, folder: Path) -> Recorded:
    """The sub-space with what was measured of it before."""
    wanted = subspace(space(workload, resolve("cpu", 1), "fast"), size)
    path = folder / f"{name}.npz"
    if not path.exists():
        return Recorded(name, wanted, fingerprint(), {})
    before = Recorded.load(path)
    if before.machine["processor"] != fingerprint()["processor"]:
        raise SystemExit(f"{path} is of another machine, {before.machine['processor']}")
    there = {c for sketch in wanted.sketches for c in configs(sketch)}
    if old := [c for c in before.costs if c not in there]:
        raise SystemExit(f"{path}: the space has no {old[0]} any more; collect it anew")
    return Recorded(name, wanted, before.machine, before.costs)


def measure(
    tables: list[Recorded], seconds: float, most: int, shelf: Shelf, folder: Path
) -> list[Recorded]:
    """Go on for so long, saving as it goes; the tables as they are now, one after the other."""
    end, now = time.monotonic() + seconds, {table.name: table for table in tables}
    with LocalDevice(threads=1, limits=_LIMITS, timing=_TIMING, builder=shelf) as device:
        for name, batch in batches(now, most, shelf):
            start, table = time.monotonic(), now[name]
            costs = {m.config: m.cost for m in device.measure(table.space.workload, batch)}
            now[name] = replace(table, costs=table.costs | costs)
            now[name].save(folder / f"{name}.npz")
            if time.monotonic() + 0.8 * (time.monotonic() - start) > end:
                break
    return list(now.values())


def batches(
    tables: Mapping[str, Recorded], most: int, shelf: Shelf
) -> Iterator[tuple[str, Sequence[Config]]]:
    """What to measure next, by name of the table; what is on the shelf comes first. The tables
    may change meanwhile."""
    for on_shelf in (True, False):
        for name in tables:
            workload = tables[name].space.workload
            left = [c for c in drawn(tables[name], most) if shelf.has(workload, c) is on_shelf]
            for first in range(0, len(left), BATCH):
                yield name, left[first : first + BATCH]


def build_ahead(tables: list[Recorded], seconds: float, most: int, shelf: Shelf) -> None:
    """Put candidates on the shelf, of each table as many as may be measured soon."""
    end = time.monotonic() + seconds
    for table in tables:
        task = Task(table.space.workload, table.space.target)
        wanted = [c for c in drawn(table, most)[:AHEAD] if not shelf.has(task.workload, c)]
        for first in range(0, len(wanted), BATCH):
            if time.monotonic() > end:
                return
            shelf.ahead(task, wanted[first : first + BATCH])


def drawn(recorded: Recorded, most: int) -> list[Config]:
    """What is left to measure, up to `most` in all, in an order that chance decides, always the
    same."""
    every = [c for sketch in recorded.space.sketches for c in configs(sketch)]
    order = np.random.default_rng(0).permutation(len(every))
    left = [every[n] for n in order if every[n] not in recorded.costs]
    return left[: max(most - len(recorded.costs), 0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--size", type=int, default=1200, help="configs of a workload, at most")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="+", help="names of workloads; by default all")
    parser.add_argument("--most", type=int, default=1 << 30, help="of a workload in all")
    parser.add_argument("--shelf", type=Path, help="where candidates wait that were built ahead")
    parser.add_argument("--ahead", action="store_true", help="build ahead, measure nothing")
    options = parser.parse_args()
    if options.ahead and options.shelf is None:
        parser.error("--ahead needs a --shelf that stays")
    options.data.mkdir(parents=True, exist_ok=True)
    names = options.only or list(workloads())
    tables = [known(n, workloads()[n], options.size, options.data) for n in names]
    tables.sort(key=lambda t: len(t.costs) / t.space.size)
    with tempfile.TemporaryDirectory() as own, closing(Shelf(options.shelf or Path(own))) as shelf:
        if options.ahead:
            build_ahead(tables, options.seconds, options.most, shelf)
            return
        after = measure(tables, options.seconds, options.most, shelf, options.data)
    for table in after:
        print(f"{table.name}: {len(table.costs)} of {table.space.size} configs")


if __name__ == "__main__":
    main()
