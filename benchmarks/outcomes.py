"""What was measured for a row with so many threads, and what follows from it."""

from __future__ import annotations

import contextlib
import json
import math
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
from peers import Result
from suites.row import Row

from loopwright.measure.roofline import Roofline


@dataclass(frozen=True)
class Outcome:
    """One row of a table.

    Attributes
    ----------
    key: of the row.
    threads: as many for every contender.
    trials: that found our config; 0 for the default schedule.
    seconds: each contender's median; ours is under "ours", with channels last under "ours-last",
        and "ours@64" after 64 trials alone.
    best: the peer to which ours has the lowest ratio; empty if none could do it, or ours not.
    ratio: the median of its time over that of the faster of ours, since peers may have channels
        last too, round by round: what disturbs a round disturbs both. `interval`: where it lies
        with a confidence of 95 %.
    share: of the machine's peak that ours reaches, and `bound`, what binds: FLOP or bandwidth.
    errors: the largest deviation of results from float64, as a share of the largest magnitude.
    notes: why a contender has no time, where it should have one.
    """

    key: str
    suite: str
    row: str
    threads: int
    trials: int
    seconds: Mapping[str, float]
    best: str
    ratio: float
    interval: tuple[float, float]
    share: float
    bound: str
    errors: Mapping[str, float]
    notes: Mapping[str, str]

    @property
    def times(self) -> str:
        """Milliseconds of all contenders, and the names of those that failed."""
        times = ", ".join(f"{n} {s * 1e3:.3g}" for n, s in self.seconds.items())
        return f"ms: {times}" + (f"; failed: {', '.join(self.notes)}" if self.notes else "")

    @property
    def failed(self) -> bool:
        """Whether ours has no time, where peers have one."""
        return bool(self.seconds) and not {"ours", "ours-last"} & self.seconds.keys()


def outcome(
    row: Row, threads: int, trials: int, results: Mapping[str, Result], peak: Roofline
) -> Outcome:
    """Put together what `peers` measured; samples of one round belong together."""
    samples = {name: r.samples for name, r in results.items()}
    seconds = {name: float(np.median(s)) for name, s in samples.items() if s}
    ratio, interval, best = math.nan, (math.nan, math.nan), ""
    ours = min((n for n in ("ours", "ours-last") if n in seconds), key=seconds.get, default="")
    if ours:
        peers = (name for name in seconds if not name.startswith("ours"))
        ratios = {name: np.divide(samples[name], samples[ours]) for name in peers}
        best = min(ratios, key=lambda name: np.median(ratios[name]), default="")
        if best:
            ratio, interval = float(np.median(ratios[best])), _interval(ratios[best])
    workload = row.request.workload
    least = peak.seconds(workload.flops, workload.min_bytes)
    flops = workload.flops / peak.flops >= workload.min_bytes / peak.bandwidth
    return Outcome(
        row.key,
        row.suite,
        row.name,
        threads,
        trials,
        seconds,
        best,
        ratio,
        interval,
        least / seconds[ours] if ours else math.nan,
        "FLOP" if flops else "bandwidth",
        {name: r.facts["error"] for name, r in results.items() if "error" in r.facts},
        {name: r.note for name, r in results.items() if r.failed},
    )


def _interval(values: np.ndarray) -> tuple[float, float]:
    """Where the median lies with a confidence of 95 %: the sign test's order statistics."""
    ordered, count = np.sort(values), len(values)
    below, rank = 0.0, 0
    while (below := below + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    low = max(rank - 1, 0)
    return float(ordered[low]), float(ordered[count - 1 - low])


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean of those that are numbers."""
    logs = [math.log(r) for r in ratios if math.isfinite(r)]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def origin(packages: Iterable[str], **machine: object) -> dict[str, object]:
    """What a file of results tells beside them: the command, the machine, versions."""
    versions = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    machine["system"] = platform.platform()
    return {"command": command, "machine": machine, "versions": versions}


def save(path: Path, outcomes: Iterable[Outcome], about: Mapping[str, object]) -> None:
    text = json.dumps({**about, "outcomes": [asdict(o) for o in outcomes]}, indent=1)
    partial = path.with_suffix(".part")
    partial.write_text(text)
    partial.rename(path)


def load(path: Path) -> list[Outcome]:
    """What a file holds, nothing if there is none."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())["outcomes"]
    return [Outcome(**{**o, "interval": tuple(o["interval"])}) for o in found]


def merged(old: Iterable[Outcome], new: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes of a row and a number of threads replace earlier ones, in their place."""
    found = {(o.key, o.threads): o for o in old}
    return list({**found, **{(o.key, o.threads): o for o in new}}.values())
