"""Measure the sub-spaces that the figures replay: C1 to C12 of ResNet-18 and matmul 1024.

    python benchmarks/paper/collect.py [--data benchmarks/paper/data] [--size 1200] [--seconds 60]

One thread. Each call goes on for the given time with the workload of which the least is known, in
random order, so that what there is at any time is a fair sample; call it until it says that
nothing is left. A larger size goes on from what a smaller one measured.

Nothing else should run meanwhile. Most of the time goes into building, which does not mind: with
--ahead candidates are built and put on a shelf, and what is there is measured first.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
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
from loopwright.schedule.sketch import Config
from loopwright.schedule.space import space

sys.path.append(str(Path(__file__).resolve().parents[1]))
from suites import networks, products

DATA = Path(__file__).parent / "data"
BATCH = 40
AHEAD = 400  # of a workload
_LIMITS = Limits(run=2.0)


def workloads() -> dict[str, Workload]:
    """By name: C1 to C12 and matmul1024."""
    found = {row.name: row.request.workload for row in networks.resnet()}
    large = next(row for row in products.matmul() if row.name == "1024")
    return found | {"matmul1024": large.request.workload}


def known(name: str, workload: Workload, size: int, folder: Path) -> Recorded:
    """The sub-space with what was measured of it before."""
    wanted = subspace(space(workload, resolve("cpu", 1)), size)
    path = folder / f"{name}.json.gz"
    if not path.exists():
        return Recorded(name, wanted, fingerprint(), {})
    before = Recorded.load(path)
    if before.machine["processor"] != fingerprint()["processor"]:
        raise SystemExit(f"{path} is of another machine, {before.machine['processor']}")
    return replace(before, space=wanted)


def measure(recorded: Recorded, seconds: float, path: Path, shelf: Shelf) -> Recorded:
    """Go on for so long, with what is on the shelf first; saved after every batch."""
    workload = recorded.space.workload
    order = sorted(drawn(recorded), key=lambda c: not shelf.has(workload, c))
    begun = time.monotonic()
    with LocalDevice(threads=1, limits=_LIMITS, builder=shelf) as device:
        for first in range(0, len(order), BATCH):
            start = time.monotonic()
            found = device.measure(workload, order[first : first + BATCH])
            recorded = replace(recorded, costs=recorded.costs | {m.config: m.cost for m in found})
            recorded.save(path)
            now = time.monotonic()
            if now - begun + 0.8 * (now - start) > seconds:
                break
    return recorded


def build_ahead(tables: list[Recorded], seconds: float, shelf: Shelf) -> None:
    """Put so many candidates of each on the shelf as may be measured before the next time."""
    begun = time.monotonic()
    for table in tables:
        workload, target = table.space.workload, table.space.target
        wanted = [c for c in drawn(table)[:AHEAD] if not shelf.has(workload, c)]
        for first in range(0, len(wanted), BATCH):
            if time.monotonic() - begun > seconds:
                return
            shelf.ahead(Task(workload, target), wanted[first : first + BATCH])


def drawn(recorded: Recorded) -> list[Config]:
    """What is left to measure, in an order that chance decides, always the same."""
    every = [c for sketch in recorded.space.sketches for c in configs(sketch)]
    order = np.random.default_rng(0).permutation(len(every))
    return [every[n] for n in order if every[n] not in recorded.costs]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--size", type=int, default=1200, help="configs of a workload, at most")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="+", help="names of workloads; by default all")
    parser.add_argument("--most", type=int, help="configs of a workload to measure in all")
    parser.add_argument("--shelf", type=Path, help="where candidates wait that were built ahead")
    parser.add_argument("--ahead", action="store_true", help="build ahead, measure nothing")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    names = options.only or list(workloads())
    tables = [known(n, workloads()[n], options.size, options.data) for n in names]
    tables = [t for t in tables if len(t.costs) < min(options.most or math.inf, t.space.size)]
    if not tables:
        raise SystemExit("nothing is left to measure")
    tables.sort(key=lambda t: len(t.costs) / t.space.size)
    with tempfile.TemporaryDirectory() as own, closing(Shelf(options.shelf or Path(own))) as shelf:
        if options.ahead:
            build_ahead(tables, options.seconds, shelf)
            return
        path = options.data / f"{tables[0].name}.json.gz"
        after = measure(tables[0], options.seconds, path, shelf)
    new = len(after.costs) - len(tables[0].costs)
    print(f"{after.name}: {len(after.costs)} of {after.space.size} configs, {new} new")


if __name__ == "__main__":
    main()
