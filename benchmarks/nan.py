"""Cost of NaN: programs whose maxima keep NaN from both sides, beside the same that may drop it.

    python benchmarks/nan.py [--threads 1] [--rounds 31]

Default schedules, in turns. A ratio above 1 says how much longer NaN takes. ReLU costs nothing,
since its zero cannot be NaN.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from unittest import mock

import click
import numpy as np

import loopwright as lw
from loopwright.codegen.tir import values
from loopwright.dsl.oracle import random_inputs
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, workload

_LEAST = 2e-3  # seconds of a sample


def _rows() -> dict[str, Tensor]:
    """What is measured, by name."""
    i, j = lw.indices("i j")
    rows, columns, whole = lw.tensor("rows"), lw.tensor("columns"), lw.tensor("whole")
    x, y = lw.tensor("x", (512, 1024)), lw.tensor("y", (512, 1024))
    image = lw.tensor("image", (1, 64, 56, 56))
    weights = lw.tensor("weights", (64, 64, 3, 3), constant=True)
    rows[i], columns[j], whole[()] = lw.max(x[i, j]), lw.max(x[i, j]), lw.max(x[i, j])
    return {
        "max of rows 512,1024": rows,
        "max of columns 512,1024": columns,
        "max of all 512,1024": whole,
        "maximum of two 512,1024": lw.ops.maximum(x, y),
        "max pool 3/2 64@112": lw.ops.max_pool2d(lw.tensor("x", (1, 64, 112, 112)), 3, 2, 1),
        "max pool 2/2 128@56": lw.ops.max_pool2d(lw.tensor("x", (1, 128, 56, 56)), 2),
        "softmax 512,1024": lw.ops.softmax(x),
        "softmax 12,128,128": lw.ops.softmax(lw.tensor("x", (12, 128, 128))),
        "relu 512,1024": lw.ops.relu(x),
        "conv 3x3 64@56 + relu": lw.ops.relu(lw.ops.conv2d(image, weights, padding=1)),
    }


def _call(work: Workload, threads: int) -> Callable[[], object]:
    given = random_inputs(work, np.random.default_rng(0))
    return lw.build(work, threads=threads).prepare_call(*given)


def _seconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


@click.command()
@click.option("--threads", default=1, show_default=True)
@click.option("--rounds", default=31, show_default=True)
def main(threads: int, rounds: int) -> None:
    """Print the table."""
    print("| row | NaN dropped, µs | NaN kept, µs | ratio |\n|---|---|---|---|")
    for name, out in _rows().items():
        work = workload(out)
        with mock.patch.object(values, "_may_be_nan", return_value=False):
            dropping = _call(work, threads)
        keeping = _call(work, threads)
        count = max(1, round(_LEAST / min(_seconds(dropping, 3), _seconds(dropping, 3))))
        pairs = [(_seconds(dropping, count), _seconds(keeping, count)) for _ in range(rounds)]
        one, other = (statistics.median(times) * 1e6 for times in zip(*pairs))
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"| {name} | {one:.1f} | {other:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
