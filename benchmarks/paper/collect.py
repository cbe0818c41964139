"""Measure the sub-spaces that the figures replay: C1 to C12 of ResNet-18 and matmul 1024.

    python benchmarks/paper/collect.py [--data benchmarks/paper/data] [--size 1200] [--seconds 60]

One thread. Each call goes on for the given time with the workload of which the least is known, in
random order, so that what there is at any time is a fair sample; call it until it says that
nothing is left. A larger size goes on from what a smaller one measured. Nothing else should run
meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from recorded import Recorded
from subspace import subspace

from loopwright.codegen.target import resolve
from loopwright.dsl.workload import Workload
from loopwright.measure.local import LocalDevice
from loopwright.measure.machine import fingerprint
from loopwright.measure.reference import Limits
from loopwright.schedule.space import space

sys.path.append(str(Path(__file__).resolve().parents[1]))
from suites import networks, products

DATA = Path(__file__).parent / "data"
BATCH = 40
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


def measure(recorded: Recorded, seconds: float, path: Path) -> Recorded:
    """Go on for so long; saved after every batch."""
    left = recorded.left()
    order = np.random.default_rng(len(left)).permutation(len(left))
    begun = time.monotonic()
    with LocalDevice(threads=1, limits=_LIMITS) as device:
        for batch in np.array_split(order, range(BATCH, len(order), BATCH)):
            start = time.monotonic()
            found = device.measure(recorded.space.workload, [left[n] for n in batch])
            costs = recorded.costs | {m.config: m.cost for m in found}
            recorded = replace(recorded, costs=costs)
            recorded.save(path)
            now = time.monotonic()
            if now - begun + 0.8 * (now - start) > seconds:
                break
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--size", type=int, default=1200, help="configs of a workload, at most")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="+", help="names of workloads; by default all")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    every = {n: w for n, w in workloads().items() if n in (options.only or workloads())}
    tables = [known(n, w, options.size, options.data) for n, w in every.items()]
    least = min(tables, key=lambda t: 1 - len(t.left()) / t.space.size)
    if not least.left():
        raise SystemExit("nothing is left to measure")
    before = len(least.costs)
    after = measure(least, options.seconds, options.data / f"{least.name}.json.gz")
    print(f"{least.name}: {len(after.costs)} of {after.space.size} configs, "
          f"{len(after.costs) - before} new")  # fmt: skip


if __name__ == "__main__":
    main()
