"""What a sequence model proposes, beside a search of 512 trials and the choices of today.

    python benchmarks/sampling.py MODEL.json -o FILE.jsonl [--workloads 20] [--seconds 3600]

Workloads are drawn as those of `sequence.py`, by another seed, and none that it learned from is
among them. Of each, every decoder's samples are measured, random configs, a sampled search as it
is shipped, and a search by annealing with the shipped cost model. The best so far of every way
then runs beside the default schedule and the choice of the cost model alone (trials=0), in rounds
of all.

The table has their speeds as shares of that of the search. FILE keeps what was measured: the same
command goes on, and prints the table of what there is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np
from collect import targets
from kept import Kept
from rich.console import Console
from rich.table import Table
from sampling_tables import DECODERS
from sequence import SEED
from suites.drawn import drawn

import loopwright as lw
from loopwright.costmodel.sequence.decoders import Nucleus
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.proposals import Proposals
from loopwright.explore.tune import tune
from loopwright.measure.local import LocalDevice
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import space
from loopwright.schedule.target import Target

LEARNED = 2400
"""Workloads that a model of `sequence.py` learned from, at most."""
MARKS = (1, 3, 5, 10, 30, 100)
SEARCH, TRIALS = "annealing", 512
LONG = (*MARKS, 128, TRIALS)
PRIORITY, SAMPLED = "Priority Sampling", "sampled search"
ENDS, FEW = {SEARCH: TRIALS, "random": 100, PRIORITY: 100}, 30
"""Configs of each way, and of those that are not named."""
ROUNDS = 9


def proposed(
    encoded: EncodedSpace, model: SequenceModel, seed: int
) -> Iterator[tuple[str, list[Config]]]:
    """The configs of every way but the search, in their order."""
    rng = np.random.default_rng(seed)
    yield "random", encoded.configs(encoded.sample(ENDS["random"], rng))
    for name, decoder in DECODERS.items():
        found = Proposals(encoded, model, np.random.default_rng(seed), decoder)
        yield name, encoded.configs(found.first(ENDS.get(name, FEW)))


def different(encoded: EncodedSpace, model: SequenceModel, seed: int) -> int:
    """How many of 100 samples of the nucleus differ."""
    found = Nucleus(1.2).samples(model.root(Grammar(encoded.space)), np.random.default_rng(seed))
    return len({sample.sequence for sample in islice(found, MARKS[-1])})


def best(configs: list[Config], costs: Mapping[Config, float]) -> Config | None:
    """The cheapest; None where none worked."""
    found = min(configs, key=lambda c: costs[c])
    return found if np.isfinite(costs[found]) else None


def compared(work: lw.Workload, target: Target, model: SequenceModel, seed: int) -> dict[str, Any]:
    """Seconds of the best so far, by way and number of configs."""
    points = space(work, target)
    encoded = EncodedSpace(points)
    ways = dict(proposed(encoded, model, seed))
    common: dict[str, Any] = {"records": None, "progress": False, "seed": seed}
    with LocalDevice(target, target.threads) as device:
        history = tune(work, device=device, trials=TRIALS, **common).history
        sampled = tune(work, device=device, trials=FEW, strategy="sampled", **common).history
        costs = {m.config: m.cost for m in (*sampled, *history)}
        ways |= {SAMPLED: [m.config for m in sampled], SEARCH: [m.config for m in history]}
        new = list(dict.fromkeys(c for way in ways.values() for c in way if c not in costs))
        costs |= {m.config: m.cost for m in device.measure(work, new)}
        chosen = {
            "default": {1: points.default},
            "trials=0": {1: tune(work, device=device, trials=0, **common).config},
        }
        for name, way in ways.items():
            marks = [n for n in LONG if n <= ENDS.get(name, FEW)]
            chosen[name] = {n: best(way[:n], costs) or points.default for n in marks}
        finalists = list(dict.fromkeys(c for best in chosen.values() for c in best.values()))
        samples = device.compare(work, finalists, ROUNDS).samples
    seconds = dict(zip(finalists, (float(np.median(s)) for s in samples), strict=True))
    found = {n: {str(k): seconds[c] for k, c in best.items()} for n, best in chosen.items()}
    return {"seconds": found, "different": different(encoded, model, seed)}


def show(results: Mapping[str, dict[str, Any]]) -> None:
    """The table: geometric means of speeds over that of the whole search."""
    every = [r["seconds"] for r in results.values()]
    table = Table("way", *(f"@{n}" for n in LONG), f"as good as {SEARCH} @128")
    for name in every[0]:
        cells, last = [], ""
        for mark in map(str, LONG):
            if mark not in every[0][name]:
                cells.append("")
                continue
            shares = [r[SEARCH][str(TRIALS)] / r[name][mark] for r in every]
            even = sum(r[name][mark] <= 1.02 * r[SEARCH]["128"] for r in every)
            cells.append(f"{statistics.geometric_mean(shares):.3f}")
            last = f"@{mark}: {even} of {len(every)}"
        table.add_row(name, *cells, last)
    Console(width=130).print(table)
    gains = []
    shown = ((PRIORITY, "5"), (PRIORITY, "30"), (SAMPLED, "5"), (SAMPLED, "30"), (SEARCH, "128"))
    for way, mark in shown:
        logs = [
            [np.log(r["default"]["1"] / r[n][m]) for r in every]
            for n, m in ((way, mark), (SEARCH, str(TRIALS)))
        ]
        gains.append(f"{way} @{mark} {100 * sum(logs[0]) / sum(logs[1]):.0f} %")
    click.echo(f"of what {TRIALS} trials gain over the default: {', '.join(gains)}")
    most = [r["different"] for r in results.values()]
    click.echo(
        f"{len(every)} workloads; of 100 samples of the nucleus {statistics.mean(most):.0f} differ"
    )


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True)
@click.option("--workloads", default=20, show_default=True)
@click.option("--avx2", is_flag=True, help="Code without AVX-512, on machines that have it.")
@click.option("--seed", default=7, show_default=True, help="Of the draw.")
@click.option("--seconds", default=3600.0, show_default=True, help="No workload begins later.")
def main(model: Path, output: Path, workloads: int, avx2: bool, seed: int, seconds: float) -> None:
    begun, results = monotonic(), Kept(output)
    loaded, target = SequenceModel.load(model), targets(avx2)[0]
    for row in drawn(workloads, seed, drawn(LEARNED, SEED)):
        if row.key in results:
            continue
        if monotonic() - begun > seconds:
            click.echo("stopped: the same command goes on", err=True)
            break
        results[row.key] = compared(row.request.workload, target, loaded, seed)
        click.echo(f"{monotonic() - begun:6.0f} s  {row.key[:60]}", err=True)
    if results:
        show(results)


if __name__ == "__main__":
    main()
