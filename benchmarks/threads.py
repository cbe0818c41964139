"""Choice of threads by NN+C on ADSALA's table: products of matrices, 1 to 98 threads, 100 shapes.

    python benchmarks/threads.py TABLE [--seeds 5] [--points 1000]

TABLE is `gadi_sgemm_500M.csv.gz`: m, k, n, then the microseconds with 1, 2, … threads, a row for
each of ten repetitions. Shapes are held out in ten folds. A model learns from points of the other
shapes and chooses the number of threads for a shape that it has not seen. Nothing is run, so the
numbers depend on the model alone. No statistics of held-out points are used.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np

from loopwright.costmodel import TimeModel

CORES = 48
FOLDS = 10
NAMES = ("m", "k", "n", "threads", "c")


def read(table: Path) -> tuple[np.ndarray, np.ndarray]:
    """Shapes (s, 3), and the median microseconds with each number of threads (s, t)."""
    rows = np.genfromtxt(table, delimiter=",", skip_header=1)
    shapes, which = np.unique(rows[:, :3], axis=0, return_inverse=True)
    times = [np.nanmedian(rows[which.ravel() == s, 3:], axis=0) for s in range(len(shapes))]
    return shapes, np.array(times)


def inputs(shapes: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Inputs of the model for shapes (n, 3) and numbers of threads (n,)."""
    return np.column_stack([shapes, threads, shapes.prod(axis=1)])


def learn(
    shapes: np.ndarray, times: np.ndarray, points: int, rng: np.random.Generator, seed: int
) -> TimeModel:
    """A model of random points of the given shapes."""
    which = rng.integers(len(shapes), size=points)
    # As many points at few threads as at many: a choice is made among all.
    threads = np.rint(np.exp(rng.uniform(0, math.log(times.shape[1]), points))).astype(int)
    model = TimeModel(NAMES, seed)
    model.fit(inputs(shapes[which], threads), times[which, threads - 1] * 1e-6)
    return model


def judge(shapes: np.ndarray, times: np.ndarray, points: int, seed: int) -> tuple[float, ...]:
    """MAPE over all held-out points, in percent; gain of the chosen threads over `CORES`, that
    of the best ones, both geometric; seconds of training a fold."""
    rng = np.random.default_rng(seed)
    fold = rng.permutation(len(shapes)) % FOLDS
    errors, gains, training = [], [], 0.0
    threads = np.arange(1, times.shape[1] + 1)
    for held in range(FOLDS):
        start = time.perf_counter()
        model = learn(shapes[fold != held], times[fold != held], points, rng, seed)
        training += time.perf_counter() - start
        for shape, actual in zip(shapes[fold == held], times[fold == held], strict=True):
            predicted = 1e6 * model.predict(inputs(np.tile(shape, (len(threads), 1)), threads))
            errors.append(np.abs(predicted / actual - 1))
            gains.append(math.log(actual[CORES - 1] / actual[predicted.argmin()]))
    best = float(np.exp(np.mean(np.log(times[:, CORES - 1] / times.min(axis=1)))))
    return 100 * float(np.mean(errors)), math.exp(np.mean(gains)), best, training / FOLDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--points", type=int, default=1000)
    given = parser.parse_args()
    shapes, times = read(given.table)
    print("| seed | MAPE, % | gain over all cores | of the best choice | training, s |")
    print("|---|---|---|---|---|")
    rows = [judge(shapes, times, given.points, seed) for seed in range(given.seeds)]
    for seed, (error, gain, best, seconds) in enumerate(rows):
        print(f"| {seed} | {error:.1f} | {gain:.3f} | {best:.3f} | {seconds:.2f} |", flush=True)
    error, gain, best, seconds = np.mean(rows, axis=0)
    print(f"| mean | {error:.1f} | {gain:.3f} | {best:.3f} | {seconds:.2f} |")


if __name__ == "__main__":
    main()
