"""Built-in code beside LLVM's: milliseconds from a config to a callable, and the speed of it.

python benchmarks/builtin.py [--numerics strict] [--minutes 5] [--configs 3] [--records FILE.json]

Each workload is built by its default config and by drawn ones, each by both ways in turn, on one
thread. Times are the least of several. Rows that are in the file of an earlier run are not
measured again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from time import perf_counter
from typing import Any

import click
import numpy as np
from clock import prepared
from rich.console import Console
from rich.table import Table

import loopwright as lw
from loopwright.codegen.build import build_fixed, program
from loopwright.codegen.compile import compile_by
from loopwright.codegen.explain import space_of
from loopwright.codegen.target import by_codegen, resolve
from loopwright.dsl.oracle import random_inputs

ROUNDS = 80
SHORTEST = 0.001  # seconds of a sample: of many short ones some are not disturbed


def matmul(n: int) -> lw.Workload:
    """The product of two square matrices."""
    return lw.workload(lw.ops.matmul(lw.tensor("A", (n, n)), lw.tensor("B", (n, n))))


def conv(c: int, size: int, o: int, taps: int, stride: int = 1) -> lw.Workload:
    """A convolution of ResNet's form, with constant weights."""
    x, w = lw.tensor("x", (1, c, size, size)), lw.tensor("w", (o, c, taps, taps), constant=True)
    return lw.workload(lw.ops.conv2d(x, w, stride=stride, padding=taps // 2))


WORKLOADS: dict[str, Callable[[], lw.Workload]] = {
    **{f"MM-{n}": (lambda n=n: matmul(n)) for n in (64, 128, 256, 512)},
    "CONV 64→64, 56², 3×3": lambda: conv(64, 56, 64, 3),
    "CONV 64→256, 56², 1×1": lambda: conv(64, 56, 256, 1),
    "CONV 128→256, 28², 3×3 / 2": lambda: conv(128, 28, 256, 3, 2),
    "CONV 512→512, 7², 3×3": lambda: conv(512, 7, 512, 3),
}


def parts(workload: lw.Workload, config: Any, target: Any) -> dict[str, float]:
    """Milliseconds of lowering with verification, of making code, and of all to a callable."""
    start = perf_counter()
    made = program(workload, config, target)
    lowered = perf_counter()
    compile_by(made)
    emitted = perf_counter()
    build_fixed(workload, config, target)
    done = perf_counter()
    return {
        "lower": 1e3 * (lowered - start),
        "emit": 1e3 * (emitted - lowered),
        "all": 1e3 * (done - emitted),
    }


def speeds(calls: list[Any]) -> list[float]:
    """Seconds of a call of each, the least of several samples that are taken in turn."""
    counts = []
    for call in calls:
        call.repeat(1)
        counts.append(max(1, int(SHORTEST / max(call.repeat(1)[0], 1e-7))))
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for seconds, call, count in zip(taken, calls, counts):
            seconds.append(call.repeat(count)[0] / count)
    return [min(seconds) for seconds in taken]


def row(workload: lw.Workload, config: Any) -> dict[str, Any]:
    """One config by both ways."""
    targets = [by_codegen(resolve("cpu", 1), kind) for kind in ("builtin", "llvm")]
    times = []
    for target in targets:
        build_fixed(workload, config, target)  # what is made once
        each = [parts(workload, config, target) for _ in range(30 if target is targets[0] else 2)]
        times.append({key: min(p[key] for p in each) for key in each[0]})
    libraries = [build_fixed(workload, config, target) for target in targets]
    inputs = random_inputs(workload, np.random.default_rng(0))
    given = dict(zip((t.name for t in workload.inputs), inputs))
    calls = [prepared(library, given) for library in libraries]
    builtin, llvm = speeds(calls)
    same = all(np.array_equal(a, b) for a, b in zip(calls[0].outputs, calls[1].outputs))
    flops = workload.flops
    return {
        "codegen": libraries[0].codegen,
        "builtin": times[0],
        "llvm": times[1],
        "gflops": [flops / builtin / 1e9, flops / llvm / 1e9],
        "same": same,
    }


def show(console: Console, rows: dict[str, list[dict[str, Any]]]) -> None:
    """The table; of several configs the geometric means."""
    names = ("lower, ms", "emit", "all", "LLVM's all", "GFLOP/s", "LLVM's", "ratio", "bits")
    table = Table("workload", "builtin", *names)
    whole, ratios = [], []
    for name, found in rows.items():
        covered = [r for r in found if r["codegen"] == "builtin"]
        if not covered:
            table.add_row(name, f"0/{len(found)}", found[0]["codegen"])
            continue
        times = [
            geometric_mean([r["builtin"][key] for r in covered])
            for key in ("lower", "emit", "all")
        ]
        llvm = geometric_mean([r["llvm"]["all"] for r in covered])
        speed = [geometric_mean([r["gflops"][n] for r in covered]) for n in (0, 1)]
        whole.append(times[2])
        ratios.append(speed[0] / speed[1])
        same = sum(r["same"] for r in covered)
        table.add_row(
            name,
            f"{len(covered)}/{len(found)}",
            *(f"{t:.1f}" for t in (*times, llvm)),
            *(f"{s:.1f}" for s in speed),
            f"{ratios[-1]:.2f}",
            f"{same}/{len(covered)} equal",
        )
    if whole:
        means = ["geometric mean", "", "", "", f"{geometric_mean(whole):.1f}", "", "", ""]
        table.add_row(*means, f"{geometric_mean(ratios):.2f}")
    console.print(table)


@click.command(help=__doc__)
@click.option("--numerics", default="strict", help="Of the convolutions, too.")
@click.option("--configs", default=1, help="Configs of each workload: the default, drawn ones.")
@click.option("--minutes", default=5.0, help="No workload is begun with after so many.")
@click.option("--records", type=Path, help="File that keeps what was measured.")
def main(numerics: str, configs: int, minutes: float, records: Path | None) -> None:
    """Measure and print."""
    kept: dict[str, Any] = {}
    if records is not None and records.exists():
        kept = json.loads(records.read_text())
    end = perf_counter() + 60 * minutes
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, make in WORKLOADS.items():
        workload = make()
        space, rng = space_of(workload, "cpu", 1, numerics), np.random.default_rng(0)
        for number in range(configs):
            config = space.sample(rng) if number else space.default
            key = f"{name} {numerics} {number}"
            if key not in kept:
                if perf_counter() > end:
                    break
                kept[key] = row(workload, config)
                if records is not None:
                    records.write_text(json.dumps(kept, indent=1))
            rows.setdefault(name, []).append(kept[key])
    show(Console(width=140), rows)


if __name__ == "__main__":
    main()
