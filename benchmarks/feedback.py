"""Compiler feedback: what a search reaches in 32 runs, beside the same without it in 64.

python benchmarks/feedback.py FILE.jsonl [--workloads 10] [--seeds 5] [--minutes 60]

Workloads are drawn, of as many kinds. Of each and every seed three searches are made: as by
default, 64 candidates, with `feedback="compiled"`, 32, and by `strategy="sampled"`, 32. All have
the shipped model and measure 16 at a time. The three cheapest of each search, after several counts
of runs, are then measured side by side, and the fastest is what it reached. Ratios are times over
that of 64 runs as by default, and those of at most 1.02 are counted.

FILE keeps what was measured: the same command goes on, and prints the table of what there is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import click
from kept import Kept
from rich.console import Console
from rich.table import Table
from suites.drawn import drawn

import loopwright as lw
from loopwright.codegen.target import by_codegen, resolve
from loopwright.explore.tuner import Tuner
from loopwright.measure.device import Measurement
from loopwright.measure.local import LocalDevice
from loopwright.measure.timing import typical
from loopwright.schedule.target import Target
from loopwright.transfer.pretrained.base import find_base, find_proposer

SEED = 47
RUNS = {"plain": (16, 32, 64), "compiled": (16, 24, 32), "sampled": (16, 32)}
"""Searches, and the runs after which each is looked at; the last is all of it."""
BEST, ROUNDS = 3, 9
REACHED = 1.02


def searched(
    device: LocalDevice, work: lw.Workload, seed: int, way: str, batch: int, transfer: str | None
) -> tuple[list[Measurement], dict[str, float]]:
    """All measurements of a search, in order, and seconds by what they went into."""
    built = [0.0]

    def feedback(configs: Any) -> list[Any]:
        begun = monotonic()
        found = device.inspect(work, configs)
        built[0] += monotonic() - begun
        return [one.facts if one.failure is None else None for one in found]

    begun = monotonic()
    points = lw.space(work, device.target)
    options: dict[str, Any] = {"compiled": {"feedback": feedback}}.get(way, {})
    if way == "sampled":
        options = {"strategy": way, "begin": find_proposer("auto", device.target)[0]}
    base = find_base(transfer, work, device.target).model
    tuner = Tuner(points, seed=seed, base=base, **options)
    history: list[Measurement] = []
    runs = RUNS[way][-1]
    while len(history) < runs and not tuner.exhausted:
        configs = tuner.ask(min(batch, runs - len(history)))
        now = monotonic()
        measured = list(device.measure(work, configs))
        built[0] += monotonic() - now - sum(m.run_seconds for m in measured)
        tuner.tell(
            [m.config for m in measured], [m.cost for m in measured], [m.facts for m in measured]
        )
        history += measured
    run = sum(m.run_seconds for m in history)
    return history, {"all": monotonic() - begun, "build": built[0], "run": run}


def compared(
    work: lw.Workload, target: Target, seed: int, batch: int, transfer: str | None
) -> dict[str, Any]:
    """Typical seconds of what each search reached, by its name and runs."""
    with LocalDevice(target) as device:
        device.check()
        chosen: dict[str, list[Any]] = {}
        spent: dict[str, Any] = {}
        for name, counts in RUNS.items():
            found, spent[name] = searched(device, work, seed, name, batch, transfer)
            for count in counts:
                best = sorted(found[:count], key=lambda m: m.cost)[:BEST]
                chosen[f"{name} {count}"] = [m.config for m in best if math.isfinite(m.cost)]
        every = list(dict.fromkeys(c for configs in chosen.values() for c in configs))
        samples = device.compare(work, every, ROUNDS).samples
    seconds = {config: typical(s) for config, s in zip(every, samples)}
    reached = {name: min(seconds[c] for c in configs) for name, configs in chosen.items()}
    return {"reached": reached, "spent": spent}


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Ratios to the longest search as by default, by workload, and of all."""
    last = f"plain {RUNS['plain'][-1]}"
    names = [n for n in next(iter(rows.values()))["reached"] if n != last]
    table = Table("workload", "seeds", *names, "s, plain", "s, compiled", "of it building")
    by_workload: dict[str, list[dict[str, Any]]] = {}
    for key, row in rows.items():
        by_workload.setdefault(key.rpartition(" seed ")[0], []).append(row)
    for name, own in _with_all(by_workload):
        cells = []
        for n in names:
            ratios = [r["reached"][n] / r["reached"][last] for r in own]
            mean = statistics.geometric_mean(ratios)
            cells.append(f"{mean:.3f}, {sum(x <= REACHED for x in ratios)}")
        spent = [[r["spent"][kind] for r in own] for kind in ("plain", "compiled")]
        seconds = [statistics.fmean(s["all"] for s in kind) for kind in spent]
        building = statistics.fmean(s["build"] for s in spent[1])
        times = (f"{seconds[0]:.0f}", f"{seconds[1]:.0f}", f"{building:.0f}")
        table.add_row(name[:34], str(len(own)), *cells, *times)
    console = Console(width=140)
    console.print(table)
    console.print(
        f"geometric means of the time over that of {last}, and how often it was at most {REACHED}"
    )


def _with_all(rows: dict[str, list[Any]]) -> Iterator[tuple[str, list[Any]]]:
    yield from rows.items()
    yield "all", [row for own in rows.values() for row in own]


@click.command(help=__doc__)
@click.argument("file", type=Path)
@click.option("--workloads", default=10, show_default=True, help="Of as many kinds.")
@click.option("--seeds", default=5, show_default=True, help="Of the searches, from 0.")
@click.option("--minutes", default=60.0, show_default=True, help="No search begins later.")
@click.option("--threads", default=1, show_default=True, help="Of the programs.")
@click.option("--batch", default=16, show_default=True, help="Candidates measured at a time.")
@click.option("--codegen", default="llvm", show_default=True, help="llvm or builtin.")
@click.option("--transfer", default="auto", show_default=True, help="auto, none, or a model file.")
def main(
    file: Path,
    workloads: int,
    seeds: int,
    minutes: float,
    threads: int,
    batch: int,
    codegen: str,
    transfer: str,
) -> None:
    """Search, compare and print, as far as the time goes."""
    rows, end = Kept(file), monotonic() + 60 * minutes
    target, base = by_codegen(resolve("cpu", threads), codegen), transfer
    if transfer == "none":
        base = None
    usual = {"threads": (threads, 1), "batch": (batch, 16), "codegen": (codegen, "llvm")}
    usual["transfer"] = (transfer, "auto")
    options = "".join(f"{k} {given}, " for k, (given, word) in usual.items() if given != word)
    for seed in range(seeds):
        for row in drawn(workloads, SEED):
            key = f"{options}{row.name} seed {seed}"
            if key in rows or monotonic() > end:
                continue
            rows[key] = compared(row.request.workload, target, seed, batch, base)
            shown = "  ".join(f"{n} {1e6 * s:.1f}" for n, s in rows[key]["reached"].items())
            click.echo(f"{key[:50]}: {shown} µs", err=True)
    if rows:
        show(rows)


if __name__ == "__main__":
    main()
