"""Kernel Tuner's strategies on tables, by its simulation mode: it looks costs up in a cache file.

It comes with the extra `bench`, and needs no GPU for this.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

STRATEGIES = (
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
    "genetic_algorithm",
    "diff_evo",
    "pso",
    "simulated_annealing",
    "greedy_ils",
    "dual_annealing",
    "basinhopping",
    "bayes_opt",
    "random_sample",
)
"""Its names of strategies, with its own options. The first two are of "Automated algorithm
design for auto-tuning optimizers" (Willemsen et al. 2025)."""

Point = tuple[int, ...]
FAILED = "RuntimeFailedConfig"
UNTIMED = {"compile_time": 0, "verification_time": 0, "benchmark_time": 0}


def version() -> str:
    """Version of Kernel Tuner. Raises `PackageNotFoundError` if it is not installed."""
    return importlib.metadata.version("kernel_tuner")


def evaluated(
    names: Sequence[str], table: Mapping[Point, float], strategy: str, budget: int, seed: int
) -> list[float]:
    """Costs of the points that a strategy evaluates, in order, each point once.

    Parameters
    ----------
    names: of the parameters.
    table: costs of points in seconds, infinite where one fails. The strategy knows which points
        there are, and not which fail.
    seed: decides the search, but not of "diff_evo" and "bayes_opt", which have other generators.
    """
    from constraint import FunctionConstraint
    from kernel_tuner import tune_kernel

    values = {n: sorted(set(column)) for n, column in zip(names, zip(*table))}
    random.seed(seed)  # it draws from both global generators
    np.random.seed(seed)  # noqa: NPY002
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "table.json"
        cache.write_text(json.dumps(_cache(values, table)))
        results, _ = tune_kernel(
            "table",
            "",
            (1,),
            [],
            values,
            restrictions=[FunctionConstraint(lambda *point: point in table)],
            strategy=strategy,
            strategy_options={"max_fevals": budget},
            cache=str(cache),
            simulation_mode=True,
            quiet=True,
        )
    points = dict.fromkeys(tuple(result[n] for n in names) for result in results)
    return [table[p] for p in points if p in table][:budget]


def _cache(values: Mapping[str, list[int]], table: Mapping[Point, float]) -> dict[str, Any]:
    """A table in the form of Kernel Tuner's cache files, milliseconds in it."""
    return {
        "device_name": "table",
        "kernel_name": "table",
        "problem_size": [1],
        "tune_params_keys": list(values),
        "tune_params": dict(values),
        "objective": "time",
        "cache": {
            ",".join(map(str, point)): {
                **dict(zip(values, point)),
                "time": 1e3 * cost if np.isfinite(cost) else FAILED,
                **UNTIMED,
            }
            for point, cost in table.items()
        },
    }
