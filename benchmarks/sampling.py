"""What a sequence model proposes, measured against today's choices.

    python benchmarks/sampling.py MODEL.json -o FILE.jsonl [--workloads 12] [--seconds 480]

Workloads are drawn as those of `sequence.py`, by another seed, and none that it learned from is
among them. Of each, samples are measured, as many trials of annealing, and of the strategy
"sampled". What is best of each then runs beside the default schedule and the choice of the shipped
cost model (trials=0), in rounds of all. Speeds are relative to the default's.

Workloads that FILE has are not measured again, so that the same command goes on.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import numpy as np
from sequence import SEED
from suites.drawn import drawn

import loopwright as lw
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.proposals import Proposals
from loopwright.explore.tune import tune
from loopwright.measure.device import Measurement
from loopwright.measure.local import LocalDevice
from loopwright.schedule.sketch.sketch import Config

LEARNED = 660
"""Workloads that a model of `sequence.py` learned from, at most."""
FEW, MANY = 5, 30
"""Samples of which the best is taken."""
ROUNDS = 9


def best(measured: Iterable[Measurement], count: int, default: Config) -> Config:
    """The cheapest of the first measurements; the default if all of them failed."""
    working = [m for m in list(measured)[:count] if np.isfinite(m.cost)]
    return min(working, key=lambda m: m.cost).config if working else default


def compared(work: lw.Workload, model: Path, threads: int, seed: int) -> dict[str, float]:
    """Speeds of one workload, relative to the default's."""
    points = lw.space(work, threads=threads)
    proposals = Proposals(
        EncodedSpace(points), SequenceModel.load(model), np.random.default_rng(seed)
    )
    sampled = proposals.encoded.configs(proposals.first(MANY))
    common = {"threads": threads, "records": None, "progress": False, "seed": seed}
    with LocalDevice("cpu", threads) as device:
        costs = list(device.measure(work, sampled))
        annealing = tune(work, device=device, trials=MANY, **common).history
        search = tune(
            work, device=device, trials=MANY, strategy="sampled", transfer=model, **common
        ).history
        chosen = {
            "default": points.default,
            "trials=0": tune(work, device=device, trials=0, **common).config,
            "first sample": sampled[0],
            "annealing": best(annealing, MANY, points.default),
        }
        for count in (FEW, MANY):
            chosen[f"{count} samples"] = best(costs, count, points.default)
            chosen[f"sampled, {count} trials"] = best(search, count, points.default)
        samples = device.compare(work, list(chosen.values()), ROUNDS).samples
    seconds = dict(zip(chosen, (float(np.median(s)) for s in samples), strict=True))
    return {name: seconds["default"] / s for name, s in seconds.items()}


def table(results: Sequence[dict[str, float]]) -> str:
    """Geometric means, and how often a choice was within 2 % of annealing's, or better."""
    lines = ["| choice | times the default's speed | as good as annealing |", "|---|---|---|"]
    for name in results[0]:
        mean = statistics.geometric_mean(r[name] for r in results)
        even = sum(r[name] > 0.98 * r["annealing"] for r in results)
        lines.append(f"| {name} | {mean:.3f} | {even} of {len(results)} |")
    return "\n".join(lines)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True)
@click.option("--workloads", default=12, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--seed", default=7, show_default=True, help="Of the draw.")
@click.option("--seconds", default=480.0, show_default=True, help="No workload begins later.")
def main(
    model: Path, output: Path, workloads: int, threads: int, seed: int, seconds: float
) -> None:
    begun, results = time.monotonic(), {}
    if output.exists():
        results = dict(map(json.loads, output.read_text().splitlines()))
    for row in drawn(workloads, seed, drawn(LEARNED, SEED)):
        if row.key in results:
            continue
        if time.monotonic() - begun > seconds:
            click.echo("stopped: the same command goes on", err=True)
            break
        results[row.key] = compared(row.request.workload, model, threads, seed)
        with output.open("a") as file:
            file.write(json.dumps([row.key, results[row.key]]) + "\n")
        shown = "  ".join(f"{name} {s:.2f}" for name, s in results[row.key].items())
        click.echo(f"{row.key[:40]:<40} {shown}", err=True)
    if results:
        click.echo(table(list(results.values())))


if __name__ == "__main__":
    main()
