"""Trials until within 5 % of the optimum, on spaces whose every point was measured before.

    python benchmarks/replayed.py DATA [--seeds 20] [--limit 400] [--likely 0.75]

DATA is a folder of tables (`*.csv.gz`, see `load_brute_forced` in measure/tabular.py). Nothing
is built or run, so the numbers depend on the search alone, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.tune import tune
from loopwright.measure.tabular import TabularDevice, load_brute_forced

CLOSE = 1.05
STRATEGIES = ("annealing", "transfer", "genetic", "random")
MARKS = (50, 100, 200, 400)


@dataclass(frozen=True)
class Run:
    """Trials until within 5 % of the optimum, infinite if the limit was too low for that; and
    the best cost after each of `MARKS`, as a multiple of the optimum."""

    needed: float
    excess: dict[int, float]


@functools.cache
def device(table: Path) -> TabularDevice:
    return load_brute_forced(table)


def search(table: Path, strategy: str, seed: int, limit: int, likely: float) -> Run:
    """One search, of `limit` trials."""
    replayed = device(table)
    tuned = tune(
        replayed.space.workload,
        device=replayed,
        trials=limit,
        records=None,
        seed=seed,
        strategy=strategy,
        schedule=Schedule(likely=likely),
    )
    curve = [cost / replayed.optimum for cost in tuned.curve()]
    needed = next((n for n, c in enumerate(curve, 1) if c <= CLOSE), math.inf)
    return Run(needed, {m: curve[m - 1] for m in MARKS if m <= len(curve)})


def summary(runs: list[Run]) -> str:
    """Medians over the seeds, and the middle half of the trials needed."""
    needed = sorted(r.needed for r in runs)
    middle = f"{needed[len(needed) // 4]:g} to {needed[3 * len(needed) // 4]:g}"
    excess = (f"{statistics.median(r.excess[m] for r in runs):.3f}" for m in runs[0].excess)
    return f"{statistics.median(needed):7g}  {middle:>13}  {'  '.join(excess)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=int, default=400)
    parser.add_argument("--likely", type=float, default=Schedule().likely, help="see Schedule")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    options = parser.parse_args()
    tables = sorted(options.data.glob("*.csv.gz"))
    if not tables:
        parser.error(f"{options.data} holds no tables, *.csv.gz")
    print(
        f"trials until within 5 % of the optimum, {options.seeds} seeds, at most {options.limit}"
    )
    marks = "  ".join(f"@{m:<4}" for m in MARKS if m <= options.limit)
    print(f"{'table':<20} {'strategy':<10} {'median':>7}  {'middle half':>13}  {marks} × optimum")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for table in tables:
            for strategy in options.strategies:
                jobs = [
                    pool.submit(search, table, strategy, seed, options.limit, options.likely)
                    for seed in range(options.seeds)
                ]
                text = summary([job.result() for job in jobs])
                print(f"{table.name[:-7]:<20} {strategy:<10} {text}", flush=True)


if __name__ == "__main__":
    main()
