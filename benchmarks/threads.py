"""Choice of threads by NN+C on ADSALA's table: products of matrices, 1 to 98 threads, 100 shapes.

    python benchmarks/threads.py TABLE [--seeds 5]

TABLE is `gadi_sgemm_500M.csv.gz`: m, k, n, then the microseconds with 1, 2, … threads, a row for
each of ten repetitions. Shapes are held out in ten folds. Models learn from the other shapes and
choose the number of threads for a shape that they have not seen. Nothing is run, so the numbers
depend on the models alone. No statistics of held-out points are used.

A number of threads is a variant, with a model of at most 75 parameters. That of all cores learns
seconds. The others are of their time relative to all cores, since a choice needs ratios alone:
lines in the logarithms and their squares, because a number of threads suits sizes in the middle.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np

from loopwright.costmodel import TimeModel

CORES = 48
OTHERS = (16, 24, 32, 40, 60, 72, 84, 96)
"""Numbers of threads beside `CORES`: its sixths, and quarters on the way to two a core."""
FOLDS = 10
NAMES = ("m", "k", "n", "least", "c")
SQUARES = ("m²", "k²", "n²", "least²")


def read(table: Path) -> tuple[np.ndarray, np.ndarray]:
    """Shapes (s, 3), and the median microseconds with each number of threads (s, t)."""
    rows = np.genfromtxt(table, delimiter=",", skip_header=1)
    shapes, which = np.unique(rows[:, :3], axis=0, return_inverse=True)
    times = [np.nanmedian(rows[which.ravel() == s, 3:], axis=0) for s in range(len(shapes))]
    return shapes, np.array(times)


def predicted(
    learned: np.ndarray, times: np.ndarray, shapes: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds of `shapes` with `CORES` threads and with `OTHERS` (s, 1 + others), by models
    of `learned` shapes and their `times`; and the numbers of threads."""
    all_cores = times[:, CORES - 1]
    known, new = inputs(learned), inputs(shapes)
    whole = TimeModel(NAMES, seed).fit(known, all_cores).predict(new)
    columns, known, new = [whole], squared(known), squared(new)
    for threads in OTHERS:
        # Few shapes tell no more of ratios that holds for others: no units.
        model = TimeModel(NAMES + SQUARES, seed, units=0)
        model.fit(known, times[:, threads - 1] / all_cores)
        columns.append(whole * model.predict(new))
    return np.column_stack(columns), np.array([CORES, *OTHERS])


def inputs(shapes: np.ndarray) -> np.ndarray:
    """Inputs of a model for shapes (s, 3): the extents, the least of them, and the operation
    count."""
    return np.column_stack([shapes, shapes.min(axis=1), shapes.prod(axis=1)])


def squared(known: np.ndarray) -> np.ndarray:
    """Inputs, and others whose logarithms are the squares of theirs, but for that of c."""
    return np.column_stack([known, np.exp(np.log(known[:, : len(SQUARES)]) ** 2)])


def judge(shapes: np.ndarray, times: np.ndarray, seed: int) -> tuple[float, ...]:
    """MAPE over held-out shapes and the numbers of threads that are chosen among, in percent;
    gain of the chosen threads over `CORES`, that of the best of 1, 2, … and of those that are
    chosen among, all geometric; seconds of training a fold."""
    fold = np.random.default_rng(seed).permutation(len(shapes)) % FOLDS
    errors, gains, possible, training = [], [], [], 0.0
    for held in range(FOLDS):
        learn, new = fold != held, fold == held
        start = time.perf_counter()
        found, threads = predicted(shapes[learn], times[learn], shapes[new], seed)
        training += time.perf_counter() - start
        actual = times[new][:, threads - 1]
        chosen = actual[np.arange(len(actual)), found.argmin(axis=1)]
        errors.append(np.abs(found / actual - 1).ravel())
        gains.append(np.log(actual[:, 0] / chosen))
        possible.append(np.log(actual[:, 0] / actual.min(axis=1)))
    best = np.log(times[:, CORES - 1] / times.min(axis=1))
    geometric = (math.exp(np.concatenate(logs).mean()) for logs in (gains, possible, [best]))
    return 100 * float(np.concatenate(errors).mean()), *geometric, training / FOLDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    shapes, times = read(given.table)
    print("| seed | MAPE, % | gain over all cores | best of nine | best of all | training, s |")
    print("|---|---|---|---|---|---|")
    rows = [judge(shapes, times, seed) for seed in range(given.seeds)]
    for seed, (error, *gains, seconds) in [*enumerate(rows), ("mean", np.mean(rows, axis=0))]:
        cells = " | ".join(f"{g:.3f}" for g in gains)
        print(f"| {seed} | {error:.1f} | {cells} | {seconds:.2f} |")


if __name__ == "__main__":
    main()
