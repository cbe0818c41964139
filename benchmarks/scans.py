"""Cumulative sums along each axis, beside NumPy, torch and onnxruntime.

    python benchmarks/scans.py --threads 1

Prints a table of the least microseconds of a call in rounds by turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from clock import least
from onnxruntime_call import one_operator, onnxruntime_call

import loopwright as lw

SHAPES = (
    *(((n,), 0) for n in (100, 1000, 1 << 12, 1 << 16, 10**6)),
    ((2, 1 << 16), 1),
    ((8, 1 << 16), 1),
    *(((64, n), 1) for n in (16, 100, 500, 2048, 4096)),
    *(((n, 64), 0) for n in (16, 500, 4096)),
    *(((64, 64, 64), axis) for axis in range(3)),
)
"""Shapes, and the axis of each along which it goes."""
NAMES = ("ours", "NumPy", "torch", "onnxruntime")
ROUNDS = 5
SECONDS = 0.1


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(f"| shape | axis | {' | '.join(f'{name}, µs' for name in NAMES)} |")
    print("|---" * (2 + len(NAMES)) + "|")
    for shape, axis in SHAPES:
        x = np.random.default_rng(0).random(shape, np.float32)
        calls = list(contenders(x, axis, options.threads))
        times = (f"{time:.1f}" for time in least(calls, SECONDS, ROUNDS))
        print(f"| {' × '.join(map(str, shape))} | {axis} | {' | '.join(times)} |", flush=True)


def contenders(x: np.ndarray, axis: int, threads: int) -> Iterator[Callable[[], object]]:
    """What is called, in the order of `NAMES`."""
    import torch

    library = lw.build(lw.workload(lw.ops.cumsum(lw.tensor("X", x.shape), axis)), threads=threads)
    wanted = np.cumsum(x, axis, dtype=np.float64)
    np.testing.assert_allclose(library(x), wanted, rtol=1e-3)
    prepared = library.prepare_call(x)
    yield lambda: prepared.repeat(1)
    out = np.empty_like(x)
    yield lambda: np.cumsum(x, axis, out=out)
    torch.set_num_threads(threads)
    given, made = torch.from_numpy(x), torch.empty(x.shape)
    yield lambda: torch.cumsum(given, axis, out=made)
    yield by_onnxruntime(x, axis, threads)


def by_onnxruntime(x: np.ndarray, axis: int, threads: int) -> Callable[[], object]:
    """The operator CumSum."""
    model = one_operator("CumSum", x.shape, ["y"], {"axis": np.array(axis)})
    return onnxruntime_call(model, x, threads)


if __name__ == "__main__":
    main()
