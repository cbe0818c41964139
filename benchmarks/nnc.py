"""Times of kernels predicted from their sizes by NN+C, after Srivastava et al. 2020.

    OMP_NUM_THREADS=1 python benchmarks/nnc.py [--programs numpy,torch,ours] [--points 500]

Matrix product, matrix-vector product, convolution and maximum pooling at random sizes, on one
thread; half of the points are learned from, the other half judges: MAPE over all its points, the
mean over the seeds and the worst. Each seed is a split of its own. Columns: `TimeModel` with the
operation count c, and without it; then the paper's own models of seconds: its network with c
(NN+C), without it (NN), lines in c alone (Cons) and in the sizes (LR), and that by tanh (NLR).
`ours` are default schedules, one build a point, which takes minutes. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import loopwright as lw
from loopwright.costmodel import TimeModel
from loopwright.costmodel.models.time_model import PARAMETERS

REPEATS = 5
STEPS = 10_000

Call = Callable[[], object]
Model = Any


def draw(kernel: str, rng: np.random.Generator) -> tuple[dict[str, int], int]:
    """Random sizes as in the paper's Table 2, and the operation count c."""
    m, n, k = (int(x) for x in rng.integers(1, 1025, 3))
    if kernel == "MM":
        return {"m": m, "n": n, "k": k}, m * n * k
    if kernel == "MV":
        return {"m": m, "n": n}, m * n
    m, n = max(m, 8), max(n, 8)
    if kernel == "MC":
        r = int(rng.choice([3, 5, 7]))
        return {"m": m, "n": n, "r": r}, (m - r + 1) * (n - r + 1) * r * r
    s = int(rng.integers(2, 6))
    return {"m": m, "n": n, "s": s}, (m // s) * (n // s) * s * s


def arrays(kernel: str, z: dict[str, int], rng: np.random.Generator) -> list[np.ndarray]:
    """Operands in float32."""
    second = {
        "MM": lambda: [(z["m"], z["k"]), (z["k"], z["n"])],
        "MV": lambda: [(z["m"], z["n"]), (z["n"],)],
        "MC": lambda: [(z["m"], z["n"]), (z["r"], z["r"])],
        "MP": lambda: [(z["m"], z["n"])],
    }[kernel]()
    return [rng.standard_normal(shape, dtype=np.float32) for shape in second]


def numpy_call(kernel: str, z: dict[str, int], given: list[np.ndarray]) -> Call:
    """The kernel in NumPy."""
    if kernel in ("MM", "MV"):
        return lambda: given[0] @ given[1]
    if kernel == "MC":
        windows = np.lib.stride_tricks.sliding_window_view(given[0], given[1].shape)
        return lambda: np.einsum("yxrs,rs->yx", windows, given[1])
    s, (m, n) = z["s"], given[0].shape
    tiles = given[0][: m // s * s, : n // s * s].reshape(m // s, s, n // s, s)
    return lambda: tiles.max(axis=(1, 3))


def torch_call(kernel: str, z: dict[str, int], given: list[np.ndarray]) -> Call:
    """The kernel in torch."""
    import torch

    torch.set_num_threads(1)
    x, *more = (torch.from_numpy(a) for a in given)
    if kernel in ("MM", "MV"):
        return lambda: x @ more[0]
    if kernel == "MC":
        return lambda: torch.conv2d(x[None, None], more[0][None, None])
    return lambda: torch.max_pool2d(x[None, None], z["s"])


def our_call(kernel: str, z: dict[str, int], given: list[np.ndarray]) -> Call:
    """The kernel by its default schedule."""
    x, *more = (
        lw.tensor(name, a.shape if kernel in ("MM", "MV") else (1, 1, *a.shape))
        for name, a in zip("XY", given)
    )
    out = {
        "MM": lambda: lw.einsum("ij,jk->ik", x, *more),
        "MV": lambda: lw.einsum("ij,j->i", x, *more),
        "MC": lambda: lw.ops.conv2d(x, *more),
        "MP": lambda: lw.ops.max_pool2d(x, z["s"]),
    }[kernel]()
    library = lw.build(lw.workload(out), threads=1)
    operands = [a.reshape(t.shape) for a, t in zip(given, (x, *more), strict=True)]
    return lambda: library(*operands)


CALLS = {"numpy": numpy_call, "torch": torch_call, "ours": our_call}


def measured(call: Call) -> float:
    """Processor seconds of a call on this thread: the least of several samples, after one that
    warms up; short calls in a row.

    What other programs take of the core is no part of them, and of what they do to caches the
    least sample has the least.
    """
    call()
    start = time.perf_counter()
    call()
    inner = max(1, int(2e-4 / max(time.perf_counter() - start, 1e-7)))
    samples = []
    for _ in range(REPEATS):
        start = time.thread_time()
        for _ in range(inner):
            call()
        samples.append((time.thread_time() - start) / inner)
    return min(samples)


def published(units: int, activation: str, points: int) -> Model:
    """Fit a network of the paper's: standardized inputs, one layer of units, squared errors of
    seconds, full batches of Adam. What is standardized is so by the points learned from."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(),
        TransformedTargetRegressor(
            MLPRegressor(
                hidden_layer_sizes=(units,),
                activation=activation,
                batch_size=points,
                learning_rate_init=0.01,
                max_iter=STEPS,
                n_iter_no_change=STEPS,
                random_state=0,
            ),
            transformer=StandardScaler(),
        ),
    )


class Ours:
    """A `TimeModel` as scikit-learn has models."""

    def __init__(self, names: list[str], seed: int) -> None:
        self.fit, self.predict = (model := TimeModel(names, seed)).fit, model.predict


def errors(names: list[str], x: np.ndarray, seconds: np.ndarray, seed: int) -> list[float]:
    """MAPE of each column, in percent; the last of `names` is c."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LinearRegression

    order = np.random.default_rng(seed).permutation(len(x))
    learn, judge = order[: len(x) // 2], order[len(x) // 2 :]
    every, sizes, count = slice(None), slice(-1), slice(-1, None)
    models: list[tuple[slice, Model]] = [
        (every, Ours(names, seed)),
        (sizes, Ours(names[:-1], seed)),
        (every, published((PARAMETERS - 1) // (len(names) + 2), "relu", len(learn))),
        (sizes, published((PARAMETERS - 1) // (len(names) + 1), "relu", len(learn))),
        *((part, LinearRegression()) for part in (count, sizes)),
        (sizes, published(1, "tanh", len(learn))),
    ]
    found = []
    for part, model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the paper's steps are not more
            model.fit(x[learn][:, part], seconds[learn])
        predicted = model.predict(x[judge][:, part])
        found.append(100 * float(np.mean(np.abs(predicted / seconds[judge] - 1))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="numpy,torch,ours")
    parser.add_argument("--kernels", default="MM,MV,MC,MP")
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print("| kernel, program | ours | worst | without c | NN+C | NN | Cons | LR | NLR |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kernel in given.kernels.split(","):
        for program in given.programs.split(","):
            rng = np.random.default_rng(0)
            rows, seconds = [], []
            for _ in range(given.points):
                z, count = draw(kernel, rng)
                names = [*z, "c"]
                rows.append([*z.values(), count])
                seconds.append(measured(CALLS[program](kernel, z, arrays(kernel, z, rng))))
            x, t = np.array(rows, np.float64), np.array(seconds)
            found = np.array([errors(names, x, t, seed) for seed in range(given.seeds)])
            cells = [found[:, 0].mean(), found[:, 0].max(), *found[:, 1:].mean(axis=0)]
            print(f"| {kernel}, {program} | {' | '.join(f'{c:.1f}' for c in cells)} |", flush=True)


if __name__ == "__main__":
    main()
