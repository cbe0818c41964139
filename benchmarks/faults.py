"""Faults that come over searches: what is lost, doubled or left behind, and what is said.

    python benchmarks/faults.py --faults 1000 --minutes 60

A fault comes at a random moment of a small search. Where that ends with less than all of its
candidates, or is killed, the same search is asked for again, as a user would. Then the record
store must have each candidate once. Machines are replayed ones of a local Ray cluster, or this one
by ssh and sshd; stores are files, a file on a disk that is full, and a PostgreSQL server. Kinds of
faults go side by side. Each fault is a line of --state, so that the same command goes on where it
ended. It needs root (it mounts small disks), sshd, PostgreSQL and the extra `ray`.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import kept
from fault_lanes import LANES, FleetLane, Lane, descendants, orphans
from fault_tuner import TRIALS
from rich.console import Console
from rich.table import Table

from loopwright.transfer.records.store import RecordStore

_GOES = 3  # times that a search is asked for


def stored(lane: Lane, whose: str) -> list[Any]:
    """Records of a search, without those of its comparison at the end."""
    with RecordStore(lane.records) as store:
        found = list(store.query(machine={"processor": whose}))
    return [r for r in found if "/" not in r.session]


def one_fault(lane: Lane, kind: str, whose: str, rng: random.Random) -> dict[str, Any] | None:
    """What became of a search over which a fault came; None where it was over before that."""
    latest, words, trials = lane.KINDS[kind]
    seen: dict[int, str] = {}
    came: list[float] = []

    def fault(pid: int) -> None:
        came.append(time.monotonic())
        lane.inject(kind, rng, pid)

    began = time.monotonic()
    delay = rng.uniform(0.0, latest) * lane.typical
    told = lane.search(whose, trials, fault, delay, lambda: seen.update(descendants(os.getpid())))
    lines = [*told.get("lines", ()), told.get("error", "")]
    lane.mend()
    if not came:
        return None
    kept = stored(lane, whose)
    goes, found = 1, kept
    while goes < _GOES and ("done" not in told or len({r.config for r in found}) < trials):
        told = lane.search(whose, trials)
        lines += [*told.get("lines", ()), told.get("error", "")]
        goes, found = goes + 1, stored(lane, whose)
    seconds = time.monotonic() - began
    times = Counter(r.config for r in found)
    names = sorted({line for line in lines if re.search(words, line)})
    return {
        "lane": lane.name,
        "kind": kind,
        "goes": goes,
        "ended": len(times) == trials,
        "lost": trials - len(times) + len({r.id for r in kept} - {r.id for r in found}),
        "doubled": sum(times.values()) - len(times),
        "failed": sum(r.failure is not None for r in found),
        "orphans": orphans(seen),
        "named": names[:1],
        "lines": [] if names else lines,
        "seconds": seconds,
    }


class Run:
    """The faults so far, and those to come."""

    def __init__(self, state: Path, faults: int, end: float) -> None:
        self._state, self._faults, self._end = state, faults, end
        self.rows = kept.lines(state)
        self._lock = threading.Lock()

    def left(self, lane: type[Lane]) -> int:
        """How many faults a lane still has to come."""
        done = sum(row["lane"] == lane.name for row in self.rows)
        return max(0, round(LANES[lane] * self._faults) - done)

    def go(self, lane: Lane) -> None:
        """Let faults come over a lane's searches, one kind after the other."""
        whose = f"{lane.name} {time.time_ns():x}"
        took = []
        for number in range(3):
            told = lane.search(f"{whose} sound {number}", TRIALS)
            if "done" not in told:
                raise RuntimeError(f"{lane.name}: a search without a fault failed: {told}")
            took.append(told["took"])
        lane.typical = statistics.median(took)
        kinds, number = list(lane.KINDS), 0
        while self.left(type(lane)) and time.monotonic() < self._end:
            done = Counter(row["kind"] for row in self.rows)
            kind = min(kinds, key=lambda k: done[k])
            number += 1
            row = one_fault(lane, kind, f"{whose} {number}", random.Random(time.time_ns()))
            if row is None:  # it was over before
                continue
            with self._lock:
                self.rows.append(row)
                kept.add(self._state, row)


@click.command(help=__doc__)
@click.option("--faults", default=1000, show_default=True)
@click.option("--minutes", default=60.0, show_default=True, help="No fault comes after that.")
@click.option("--lanes", help="Some of remote, fleet, server, disk; all if not given.")
@click.option("--state", type=click.Path(path_type=Path), default="faults.jsonl")
def main(faults: int, minutes: float, lanes: str | None, state: Path) -> None:
    run = Run(state, faults, time.monotonic() + 60 * minutes)
    chosen = [lane for lane in LANES if lanes is None or lane.name in lanes.split(",")]
    made: list[Lane] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for kind in chosen:
                if run.left(kind):
                    made.append(kind(Path(folder)))
                    made[-1].start()
            # Ray makes its nodes in the main thread alone.
            beside = [lane for lane in made if not isinstance(lane, FleetLane)]
            with ThreadPoolExecutor(max(1, len(beside))) as pool:
                going = [pool.submit(run.go, lane) for lane in beside]
                for lane in made:
                    if lane not in beside:
                        run.go(lane)
                for one in going:
                    one.result()
        finally:
            for lane in made:
                lane.close()
    show(Console(width=150), run.rows)


def show(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(
        "fault", "injected", "went on", "asked again", "searches lost", "records lost", "doubled",
        "failed trials", "orphans", "named", "median s", "longest",
    )  # fmt: skip
    kinds = [kind for lane in LANES for kind in lane.KINDS]
    for kind in (*dict.fromkeys(kinds), "all"):
        of = [row for row in rows if kind in (row["kind"], "all")]
        if not of:
            continue
        seconds = [row["seconds"] for row in of]
        table.add_row(
            kind,
            str(len(of)),
            str(sum(row["goes"] == 1 for row in of)),
            str(sum(row["goes"] > 1 for row in of)),
            str(sum(not row["ended"] for row in of)),
            *(str(sum(row[k] for row in of)) for k in ("lost", "doubled", "failed")),
            str(sum(len(row["orphans"]) for row in of)),
            str(sum(bool(row["named"]) for row in of)),
            f"{statistics.median(seconds):.1f}",
            f"{max(seconds):.1f}",
        )
    console.print(table)


if __name__ == "__main__":
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this process alone
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    # A node that is gone is known to be so within seconds, not 15.
    os.environ.setdefault("RAY_health_check_period_ms", "1000")
    os.environ.setdefault("RAY_health_check_failure_threshold", "2")
    main()
