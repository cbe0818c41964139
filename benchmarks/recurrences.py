"""Recurrences as loops, beside the same steps one behind the other, and onnxruntime.

    python benchmarks/recurrences.py --threads 1 --steps 2,3,4,8,16,64 --minutes 5

Prints a table of the least microseconds of a call in rounds by turns, and of the seconds to build.
Rows that do not begin within `--minutes` are left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from clock import least
from onnxruntime_call import one_operator, onnxruntime_call

import loopwright as lw
from loopwright.graph.importers.onnx.operators import control

NETWORKS = (("LSTM", 128, 1), ("GRU", 64, 1), ("LSTM", 32, 4))
"""The operator, its cells, which are its inputs too, and the batch."""
ROUNDS = 5
SECONDS = 0.15


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", default="2,3,4,8,16,64")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    print("| network | steps | loop, µs | unrolled, µs | onnxruntime, µs | build | unrolled |")
    print("|---|---|---|---|---|---|---|")
    for op, cells, batch in NETWORKS:
        for steps in map(int, options.steps.split(",")):
            if time.monotonic() < end:
                row = times(op, cells, batch, steps, options.threads)
                print(f"| {op}, {cells} cells, batch {batch} | {steps} | {row} |", flush=True)


def times(op: str, cells: int, batch: int, steps: int, threads: int) -> str:
    """The cells of a row."""
    model, x = recurrence(op, cells, batch, steps)
    calls: list[Callable[[], object]] = []
    seconds = []
    for few in (1, steps):  # iterations up to which they stand one behind the other
        control._FEW = few
        start = time.perf_counter()
        built = lw.build_model(model, {"x": x}, threads=threads, check=False)
        seconds.append(f"{time.perf_counter() - start:.1f} s")
        prepared = built.library.prepare_call(x)
        calls.append(lambda prepared=prepared: prepared.repeat(1))
    calls.append(onnxruntime_call(model, x, threads))
    return " | ".join([*(f"{time:.1f}" for time in least(calls, SECONDS, ROUNDS)), *seconds])


def recurrence(op: str, cells: int, batch: int, steps: int):
    """A model of one recurrence, and its input."""
    rng, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3}[op]
    known = {n: rng.uniform(-0.1, 0.1, (1, gates * cells, cells)).astype(np.float32) for n in "WR"}
    x = rng.standard_normal((steps, batch, cells)).astype(np.float32)
    return one_operator(op, x.shape, ["y"], known, hidden_size=cells), x


if __name__ == "__main__":
    main()
