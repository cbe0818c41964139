"""What it costs to lower, emit, compile and link a candidate.

python benchmarks/building.py
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.compile import compile_by, signature
from loopwright.codegen.library.library import Library
from loopwright.codegen.tir.emit import emit_tree
from loopwright.schedule.lowering import lower
from loopwright.schedule.tree.verifier import verify


def conv2d() -> lw.Workload:
    """ResNet-18's C6: 128 to 128 channels, 28×28, 3×3, with a ReLU."""
    x, w = lw.tensor("x", (1, 128, 28, 28)), lw.tensor("w", (128, 128, 3, 3), constant=True)
    return lw.workload(lw.ops.relu(lw.ops.conv2d(x, w, padding=1)))


def steps(workload: lw.Workload, config, target) -> list[float]:
    """Seconds of lowering and verifying, emission, compilation, linking; and of all."""
    times = [perf_counter()]
    made = program(workload, config, target)
    times.append(perf_counter())
    emit_tree(made.tree, target)
    times.append(perf_counter())
    code = compile_by(made, draft=True).objects  # emits once more
    times.append(perf_counter())
    Library.from_object(code, signature(made, "kernel"))
    times.append(perf_counter())
    lower_, emit, compile_, link = np.diff(times)
    return [lower_, emit, compile_ - emit, link, lower_ + compile_ + link]


def build_seconds(workload: lw.Workload, config) -> float:
    """Seconds of the whole of `lw.build`."""
    start = perf_counter()
    lw.build(workload, config, threads=2)
    return perf_counter() - start


def sample(space, count: int, rng: np.random.Generator) -> list:
    return [space.sample(rng) for _ in range(count)]


def only_fast(space):
    """The space without the definition's own sums."""
    return replace(space, sketches=tuple(s for s in space.sketches if s.error_growth > 1))


@click.command(help=__doc__)
@click.option("--count", default=40, help="Random configs to build.")
@click.option("--batch", default=100_000, help="Configs to lower and verify at once.")
def main(count: int, batch: int) -> None:
    console, workload = Console(), conv2d()
    strict, space = (lw.space(workload, threads=2, numerics=n) for n in ("strict", "fast"))
    rng = np.random.default_rng(0)
    lw.build(workload, threads=2)
    table = Table(
        "median ms of", "lower+verify", "emit", "compile", "link", "draft in all", "lw.build"
    )
    kinds = {
        "the default": [space.default] * 10,
        f"{count} direct": sample(strict, count, rng),
        f"{count} Winograd": sample(only_fast(space), count, rng),
    }
    for kind, configs in kinds.items():
        drafts = [steps(workload, config, space.target) for config in configs]
        whole = [build_seconds(workload, config) for config in configs]
        medians = [*np.median(drafts, axis=0), np.median(whole)]
        table.add_row(kind, *(f"{1e3 * t:.1f}" for t in medians))
    console.print(table)
    sketch = space.sketches[0]
    numbers = np.stack([rng.integers(len(k.choices), size=batch) for k in sketch.knobs], axis=1)
    start = perf_counter()
    verify(lower(sketch, space.target, numbers))
    seconds = perf_counter() - start
    console.print(f"{batch} configs lowered and verified as one batch in {seconds:.2f} s")


if __name__ == "__main__":
    main()
