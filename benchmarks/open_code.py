"""Code of open sizes beside code of one size, by the same config.

    python benchmarks/open_code.py [--threads 1] [ROW …]

At each size the default config of that size is built alone, and opened for sizes from 1 to 2048.
Ratios are times of the open program over those of the fixed one, the least of repeated comparisons
of both by turns. Where the config has no form for other sizes, there is none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from clock import prepared
from rich.console import Console
from rich.table import Table

import loopwright as lw
from loopwright.codegen.open.build import default_configs, open_library
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.oracle import random_inputs
from loopwright.measure.timing import Timer, Timing
from loopwright.schedule.open.cover import Cover
from loopwright.schedule.open.program import open_program
from loopwright.schedule.target import Target

SIZES = (11, 25, 50, 66, 128, 400, 1024)
TURNS = 4
_TIMING = Timing(cap=0.02, shortest=5e-4, retries=1)


def array(shape: tuple[Any, ...], name: str = "X", **how: Any) -> Any:
    """A tensor."""
    return lw.tensor(name, shape, **how)


ROWS: dict[str, Callable[[Any], Any]] = {
    "queries by keys": lambda n: lw.einsum(
        "hik,hjk->hij", array((8, n, 64), "Q"), array((8, n, 64), "K")
    ),
    "softmax": lambda n: lw.ops.softmax(array((8, n, n))),
    "scores by values": lambda n: lw.ops.batch_matmul(
        array((8, n, n), "P"), array((8, n, 64), "V")
    ),
    "attention": lambda n: lw.ops.attention(*(array((8, n, 64), name) for name in "QKV")),
    "dense": lambda n: lw.ops.matmul(array((n, 768)), array((768, 768), "W", constant=True)),
    "open sum": lambda n: lw.ops.matmul(array((64, n)), array((n, 64), "W")),
    "convolution": lambda n: lw.ops.conv2d(
        array((1, 64, 32, n)), array((64, 64, 3, 3), "W", constant=True), padding=1
    ),
    "layer norm": lambda n: lw.ops.layer_norm(array((64, n)), array((n,), "S"), array((n,), "T")),
}


def ratio(make: Callable[[Any], Any], size: int, target: Target) -> float | None:
    """Seconds of the open program over those of the fixed one, at a size."""
    work = lw.workload(make(lw.dim("n", 1, 2048)))
    fixed, sizes = work.at(n=size), {"n": size}
    config = next(iter(default_configs(work, target, Numerics.STANDARD, sizes)))
    try:
        made = open_program(work, target, config, sizes)
    except ConfigError:
        return None
    opened = open_library(Cover(work.dims, (made,), ()), work, target, "open", "standard")
    data = dict(
        zip((t.name for t in fixed.inputs), random_inputs(fixed, np.random.default_rng(0)))
    )
    least = [math.inf, math.inf]
    libraries = opened._at(sizes, 0), lw.build(fixed, config, threads=target.threads)
    calls = [prepared(library, data) for library in libraries]
    for _ in range(TURNS):
        for k, call in enumerate(calls):
            least[k] = min(least[k], Timer(call, _TIMING).least)
    return least[0] / least[1]


@click.command(help=__doc__)
@click.argument("rows", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--threads", default=1, show_default=True)
def main(rows: tuple[str, ...], threads: int) -> None:
    """Measure and print."""
    target = resolve("cpu", threads)
    table = Table("row", *map(str, SIZES), "geometric mean")
    for name in rows or ROWS:
        found = [ratio(ROWS[name], size, target) for size in SIZES]
        known = [r for r in found if r is not None]
        mean = f"{statistics.geometric_mean(known):.2f}" if known else ""
        table.add_row(name, *("" if r is None else f"{r:.2f}" for r in found), mean)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
