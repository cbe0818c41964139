"""What ranks candidates best before they run: loops, facts of their code, or both.

python benchmarks/feedback_pool.py FILE.jsonl [--workloads 14] [--minutes 20] [--batch 16]

Workloads are drawn. Of each, a search measures its first batch, and then all of the candidates
that Eq. 3 would choose the second batch from, four times as many. Each model learns from the first
batch and ranks the others, with four seeds. The table has the rank correlation with the measured
order, and what is lost: how much slower the fastest of the first few by each order is than the
fastest of all, and how much slower the first few are on average. Below it stands whether scores
are farther off where the number of spills is predicted wrongly: that is what exploration by such a
prediction needs.

FILE keeps what was measured: the same command goes on, and prints the table of what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np
from kept import Kept
from rich.console import Console
from rich.table import Table
from scipy.stats import rankdata, spearmanr
from suites.drawn import drawn

import loopwright as lw
from loopwright.codegen.facts.facts import names_of_facts
from loopwright.codegen.target import resolve
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.explore.strategies.annealing import Annealing
from loopwright.explore.strategies.compiled import CHECKED, WRONG
from loopwright.explore.tuner import Tuner
from loopwright.measure.local import LocalDevice
from loopwright.transfer.pretrained.base import find_base

SEED, SEEDS = 147, 4
NAMES = names_of_facts(gpu=False)
Pool = dict[str, Any]


def measured(work: lw.Workload, threads: int, batch: int) -> Pool:
    """Features, facts and costs of a first batch, and of the candidates for the second one."""
    with LocalDevice("cpu", threads) as device:
        base = find_base("auto", work, device.target).model
        tuner = Tuner(lw.space(work, device.target), base=base)
        strategy = tuner.strategy
        assert isinstance(strategy, Annealing)
        first = list(device.measure(work, tuner.ask(batch)))
        tuner.tell([m.config for m in first], [m.cost for m in first])
        found = strategy._anneal(int(strategy.schedule.candidates * batch))
        second = list(device.measure(work, strategy.encoded.configs(found.points)))
        rows = (strategy.known, strategy.features(found.points))
    return {
        name: {
            "features": part.tolist(),
            "facts": [[m.facts.get(fact, -1) for fact in NAMES] for m in measurements],
            "costs": [m.cost for m in measurements],
        }
        for name, part, measurements in zip(("first", "second"), rows, (first, second))
    }


def orders(pool: Pool, base: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Scores of the second batch's candidates by each model that learned from the first."""
    x, y = (np.array(pool[n]["features"], np.float32) for n in ("first", "second"))
    f, g = (_logs(pool[n]["facts"]) for n in ("first", "second"))
    costs = np.array(pool["first"]["costs"])

    def ranked(old: np.ndarray, new: np.ndarray, base: Any = None) -> np.ndarray:
        total = np.zeros(len(new))
        for seed in range(SEEDS):
            model = GBTModel("rank", seed, base=base)
            model.shared = x.shape[1]
            model.fit(old, costs, np.zeros(len(costs), np.int64))
            total += rankdata(model.predict(new))
        return total

    both = np.concatenate([x, f], axis=1), np.concatenate([y, g], axis=1)
    yield "global model", base.predict(y)
    yield "loops, on the global model", ranked(x, y, base)
    yield "loops and facts, on the global model", ranked(*both, base)
    yield "loops", ranked(x, y)
    yield "loops and facts", ranked(*both)
    yield "facts", ranked(f, g)
    yield "chance", np.random.default_rng(0).random(len(y))


def doubts(pool: Pool) -> tuple[float, float, float] | None:
    """The share of candidates whose spills were predicted wrongly, and by how many places scores
    are off, of these and of the others. Both models learn from half of the candidates. None where
    all or none are wrong."""
    parts = [pool["first"], pool["second"]]
    x = np.concatenate([np.array(p["features"], np.float32) for p in parts])
    spills = np.concatenate([np.array(p["facts"])[:, NAMES.index(CHECKED)] for p in parts])
    costs = np.concatenate([np.array(p["costs"]) for p in parts])
    known = np.arange(len(costs)) < len(parts[0]["costs"])
    known |= np.random.default_rng(0).random(len(costs)) < 0.5
    known &= np.isfinite(costs)
    new, none = ~known & np.isfinite(costs), np.zeros(known.sum(), np.int64)
    head, scorer = GBTModel("regression"), GBTModel("rank")
    head.fit(x[known], 1.0 + spills[known], none)
    scorer.fit(x[known], costs[known], none)
    if not head.ready:  # all spill alike
        return None
    predicted = np.log2(1.0 + spills[known].min()) - head.predict(x[new])
    wrong = np.abs(predicted - np.log2(1.0 + spills[new])) > WRONG
    if wrong.all() or not wrong.any():
        return None
    off = np.abs(rankdata(-scorer.predict(x[new])) - rankdata(costs[new]))
    return float(wrong.mean()), float(off[wrong].mean()), float(off[~wrong].mean())


def _logs(facts: list[list[int]]) -> np.ndarray:
    known = np.array(facts, np.float32)
    return np.where(known < 0, np.nan, np.log2(1 + np.maximum(known, 0)))


def show(pools: dict[str, Pool], batch: int) -> None:
    """Means over workloads: rank correlation, and what is lost."""
    base = find_base("auto", lw.workload(lw.ops.relu(lw.tensor("x", (8,)))), resolve("cpu")).model
    found: dict[str, list[tuple[float, ...]]] = {}
    spreads = []
    for pool in pools.values():
        costs = np.array(pool["second"]["costs"])
        worked = np.isfinite(costs)
        costs = costs[worked]
        best = costs.min()
        spreads.append(np.median(costs) / best)
        for name, scores in orders(pool, base):
            order = np.argsort(-scores[worked], kind="stable")
            lost = [np.log(costs[order[:n]].min() / best) for n in (batch // 2, batch)]
            mean = np.log(costs[order[:batch]] / best).mean()
            told = spearmanr(-scores[worked], costs).statistic
            found.setdefault(name, []).append((np.nan_to_num(told), *lost, mean))
    some = (f"best of {batch // 2}", f"best of {batch}", f"mean of {batch}")
    table = Table("order by", "correlation", *some)
    for name, rows in found.items():
        told, *lost = np.mean(rows, axis=0)
        table.add_row(name, f"{told:.2f}", *(f"{np.exp(x):.4f}" for x in lost))
    console = Console(width=110)
    console.print(table)
    console.print(f"{len(pools)} workloads; the median candidate: {np.mean(spreads):.3f}")
    told = [d for d in map(doubts, pools.values()) if d is not None]
    if told:
        share, wrong, right = np.mean(told, axis=0)
        console.print(
            f"spills predicted wrongly in {len(told)} workloads, of {share:.0%} of candidates: "
            f"scores are {wrong:.1f} places off there, and {right:.1f} elsewhere"
        )


@click.command(help=__doc__)
@click.argument("file", type=Path)
@click.option("--workloads", default=14, show_default=True)
@click.option("--minutes", default=20.0, show_default=True, help="No workload begins later.")
@click.option("--threads", default=1, show_default=True, help="Of the programs.")
@click.option("--batch", default=16, show_default=True, help="Candidates that would run.")
def main(file: Path, workloads: int, minutes: float, threads: int, batch: int) -> None:
    """Measure, rank and print, as far as the time goes."""
    pools, end = Kept(file), monotonic() + 60 * minutes
    options = "" if (threads, batch) == (1, 16) else f"{threads} threads, batch {batch}, "
    wanted = {f"{options}{row.name}": row for row in drawn(workloads, SEED)}
    for name, row in wanted.items():
        if name in pools or monotonic() > end:
            continue
        pools[name] = measured(row.request.workload, threads, batch)
        click.echo(name, err=True)
    if own := {name: pools[name] for name in wanted if name in pools}:
        show(own, batch)


if __name__ == "__main__":
    main()
