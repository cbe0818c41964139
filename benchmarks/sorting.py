"""The first k elements of rows in order, and their places, beside NumPy, torch and onnxruntime.

    python benchmarks/sorting.py FILE.jsonl --threads 1 --minutes 5

FILE gets a line for each row, and those that it has are not measured again. Prints a table of the
least microseconds of a call in rounds by turns. "comparisons" is the same with all elements of a
row compared with each other. Where k is the whole row, it is sorted. All orders are stable but
those of NumPy's and torch's first elements.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import kept
import numpy as np
from clock import least
from onnxruntime_call import one_operator, onnxruntime_call

import loopwright as lw
from loopwright.schedule import registry

SHAPES = (
    *((10000, n, k) for n in (4, 8, 16, 32) for k in (2, n)),
    *((1000, n, k) for n in (64, 100, 256) for k in (5, n)),
    *((100, n, k) for n in (512, 1000) for k in (10, n)),
    *((64, 8400, k) for k in (30, 300, 8400)),
    *((1, n, k) for n in (1000, 50000) for k in (5, n)),
    (1, 100000, 100000),
)
"""Rows, the length of each, and how many elements are wanted of it."""
NAMES = ("ours", "comparisons", "NumPy", "torch", "onnxruntime")
COMPARED = 512  # elements of a row, at most: with more, comparisons take seconds
ROUNDS = 5
SECONDS = 0.1


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    lines = kept.lines(options.file)
    known = {tuple(shape): times for threads, shape, times in lines if threads == options.threads}
    print(f"| rows | length | k | {' | '.join(f'{name}, µs' for name in NAMES)} |")
    print("|---" * (3 + len(NAMES)) + "|")
    for shape in SHAPES:
        if shape not in known:
            if time.monotonic() > end:
                continue
            known[shape] = measured(*shape, options.threads)
            kept.add(options.file, [options.threads, shape, known[shape]])
        cells = (f"{known[shape][n]:.1f}" if n in known[shape] else "" for n in NAMES)
        print(f"| {' | '.join([*map(str, shape), *cells])} |", flush=True)


def measured(rows: int, length: int, k: int, threads: int) -> dict[str, float]:
    """The microseconds of a call, by name."""
    x = np.random.default_rng(0).standard_normal((rows, length)).astype(np.float32)
    calls = dict(contenders(x, k, threads))
    return dict(zip(calls, least(calls.values(), SECONDS, ROUNDS)))


def contenders(x: np.ndarray, k: int, threads: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is called, by name."""
    length = x.shape[1]
    yield "ours", built("X", x, k, threads)
    if length <= COMPARED:
        with mock.patch.object(registry, "compares", return_value=True):
            yield "comparisons", built("Y", x, k, threads)  # a name that no cache knows
    yield "NumPy", lambda: by_numpy(x, k)
    yield "torch", by_torch(x, k, threads)
    yield "onnxruntime", by_onnxruntime(x, k, threads)


def built(name: str, x: np.ndarray, k: int, threads: int) -> Callable[[], object]:
    """A call of ours by its default schedule, after a look at what it gives."""
    found = lw.workload(*lw.ops.topk(lw.tensor(name, x.shape), k))
    library = lw.build(found, threads=threads)
    places = np.argsort(-x, kind="stable")[:, :k]
    np.testing.assert_array_equal(library(x)[1], places)
    prepared = library.prepare_call(x)
    return lambda: prepared.repeat(1)


def by_numpy(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The whole row by a stable sort, or its first elements by a selection."""
    if k == x.shape[1]:
        places = np.argsort(-x, kind="stable")
        return np.take_along_axis(x, places, 1), places
    some = np.argpartition(-x, k - 1)[:, :k]
    values = np.take_along_axis(x, some, 1)
    order = np.argsort(-values)
    return np.take_along_axis(values, order, 1), np.take_along_axis(some, order, 1)


def by_torch(x: np.ndarray, k: int, threads: int) -> Callable[[], object]:
    """`torch.sort` of a whole row, else `torch.topk`."""
    import torch

    torch.set_num_threads(threads)
    given = torch.from_numpy(x)
    if k == x.shape[1]:
        return lambda: torch.sort(given, stable=True, descending=True)
    return lambda: torch.topk(given, k)


def by_onnxruntime(x: np.ndarray, k: int, threads: int) -> Callable[[], object]:
    """The operator TopK."""
    model = one_operator("TopK", x.shape, ["values", "places"], {"k": np.array([k])})
    return onnxruntime_call(model, x, threads)


if __name__ == "__main__":
    main()
