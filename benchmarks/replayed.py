"""Trials until within 5 % of the optimum, on spaces whose every point was measured before.

    python benchmarks/replayed.py [DATA] [--seeds 20] [--limit 3000]

DATA is a folder of tables (`*.csv.gz`, see `loopwright.measure.replay.load_brute_forced`). Nothing
is built or run, so the numbers depend on the search alone. A random search without repetition
needs (points + 1) / (good points + 1) trials in the mean.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from loopwright.explore.tune import tune
from loopwright.measure.replay import load_brute_forced

CLOSE = 1.05
STRATEGIES = ("annealing", "random", "genetic")


def trials_needed(table: str, strategy: str, seed: int, limit: int) -> list[float]:
    """Trials until a cost within 5 % of the optimum, infinite if `limit` were not enough; and by
    how many times the best cost exceeds the optimum after 50, 100, 200 and 400 trials."""
    device = load_brute_forced(table)
    best, needed, excess = math.inf, math.inf, []
    tuned = tune(
        device.space.workload,
        device=device,
        trials=limit,
        records=None,
        seed=seed,
        strategy=strategy,
        callbacks=[],
    )
    for number, measurement in enumerate(tuned.history, 1):
        best = min(best, measurement.cost)
        if best <= CLOSE * device.optimum and math.isinf(needed):
            needed = number
        if number in (50, 100, 200, 400):
            excess.append(best / device.optimum)
    return [needed, *excess]
