"""Sequence models on spaces whose every point was measured, each with one GPU held out.

    python benchmarks/sampling_tables.py DATA [--steps 400] [--limit 100]

DATA is a folder of tables named KERNEL_GPU.csv.gz (see `load_brute_forced` in measure/tabular.py).
For every table, a model learns from those of the same kernel on other GPUs, and samples configs.
Beside it stands a list without a model: configs by the geometric mean of their costs on the other
GPUs. Nothing is built or run, so the numbers do not depend on the load of the machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from loopwright.costmodel.sequence.decoders import (
    BestFirst,
    Decoder,
    Nucleus,
    PrioritySampling,
    Varied,
)
from loopwright.costmodel.sequence.examples import Group
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.explore.search import MOST, SHARE
from loopwright.explore.strategies.encoded_space import EncodedSpace, Points
from loopwright.explore.strategies.legality import by_sketch
from loopwright.explore.strategies.proposals import Proposals
from loopwright.explore.strategies.sampled import Sampled
from loopwright.explore.tuner import Tuner
from loopwright.measure.tabular import load_brute_forced
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space

CLOSE = 1.05
MARKS = (1, 3, 5, 10, 30, 100)
LIST, SAMPLED = "list without a model", "sampled search, corrected by costs"
MACHINES = "list, corrected by costs"
DECODERS: dict[str, Decoder] = {
    "nucleus, T = 0.8": Nucleus(0.8),
    "nucleus, T = 1.2": Nucleus(1.2),
    "nucleus, T = 1.6": Nucleus(1.6),
    "Priority Sampling": PrioritySampling(),
    "Priority Sampling, key of the mean": PrioritySampling("mean"),
    "Priority Sampling, 3 branches": PrioritySampling(branches=3),
    "Priority Sampling, key of the prefix": PrioritySampling("joint"),
    "best-first": BestFirst(),
    "greedy, then nucleus, T = 1.6": Varied(),
}


Values = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Table:
    """A table with the points that it has, and their costs over the optimum, by their knobs."""

    name: str
    space: Space
    encoded: EncodedSpace
    costs: dict[Values, float]

    @staticmethod
    def of(path: Path) -> Table:
        device = load_brute_forced(path)
        encoded = EncodedSpace(device.space, by_sketch(device.space, device.legal))
        found = device.measure(device.space.workload, encoded.configs(encoded.listed))
        costs = {m.config.values: m.cost / device.optimum for m in found}
        return Table(path.name.partition(".")[0], device.space, encoded, costs)

    @property
    def kernel(self) -> tuple[str, ...]:
        """Equal for tables of one kernel: its name, and those of its knobs."""
        return self.name.rpartition("_")[0], *(k.name for k in self.space.sketches[0].knobs)

    @property
    def configs(self) -> list[Config]:
        """The configs that it has."""
        return self.encoded.configs(self.encoded.listed)

    def of_points(self, points: Points) -> np.ndarray:
        """Costs of points."""
        return np.array([self.costs[c.values] for c in self.encoded.configs(points)])

    def examples(self) -> Group:
        """What a model learns from."""
        grammar = Grammar(self.space, self.encoded.listed)
        sequences = [grammar.sequence(p) for p in self.encoded.listed.tolist()]
        return Group.of(grammar, sequences, np.array(list(self.costs.values())))


def by_others(table: Table, others: Sequence[Table], limit: int) -> np.ndarray:
    """Costs of the first points of the list without a model."""
    means = [np.mean([np.log(o.costs.get(c, np.inf)) for o in others]) for c in table.costs]
    order = np.argsort(means, kind="stable")[:limit]
    return np.array(list(table.costs.values()))[order]


def searched(table: Table, model: SequenceModel, limit: int, seed: int) -> np.ndarray:
    """Costs of what the strategy "sampled" asks for, in batches as those of a search."""
    rng = np.random.default_rng(seed)
    strategy, costs = Sampled(table.encoded, rng, model, default=False), np.empty(0)
    while len(costs) < limit:
        batch = min(max(int(SHARE * len(costs)), strategy.least), MOST, limit - len(costs))
        points = strategy.ask(batch)
        if not len(points):
            break
        strategy.tell(points, table.of_points(points))
        costs = np.append(costs, table.of_points(points))
    return costs


def corrected(table: Table, others: Sequence[Table], limit: int, seed: int) -> np.ndarray:
    """Costs of what the strategy "transfer" asks for, which knows all that others measured."""
    known = [{c: o.costs.get(c.values, np.inf) for c in table.configs} for o in others]
    tuner = Tuner(table.encoded, "transfer", seed=seed, begin=known)
    tuner.strategy.seen.add(table.encoded.default)  # the list has no default either
    while len(tuner.costs) < limit:
        asked = tuner.ask(min(tuner.strategy.least, limit - len(tuner.costs)))
        tuner.tell(asked, [table.costs[c.values] for c in asked])
    return np.array(tuner.costs)


def curves(
    table: Table, others: Sequence[Table], steps: int, limit: int, seed: int
) -> dict[str, np.ndarray]:
    """The best so far after each trial of every way, over the optimum; shorter where it ends."""
    from loopwright.costmodel.sequence.training import train

    model = train([o.examples() for o in others], steps, seed)
    found = {
        LIST: by_others(table, others, limit),
        MACHINES: corrected(table, others, limit, seed),
        SAMPLED: searched(table, model, limit, seed),
    }
    for name, decoder in DECODERS.items():
        proposals = Proposals(table.encoded, model, np.random.default_rng(seed), decoder)
        found[name] = table.of_points(proposals.first(limit))
    return {name: np.minimum.accumulate(costs) for name, costs in found.items()}


def needed(curve: np.ndarray) -> float:
    """Trials until within 5 % of the optimum; infinite if it never is."""
    close = np.flatnonzero(curve <= CLOSE)
    return float(close[0] + 1) if len(close) else np.inf


def summary(results: Mapping[str, Mapping[str, np.ndarray]], limit: int) -> Iterator[str]:
    """A table of all ways, and one of all GPUs, in Markdown."""
    marks = [m for m in MARKS if m <= limit]
    names = list(next(iter(results.values())))
    yield f"| way | {' | '.join(f'@{m}' for m in marks)} | within 5 % |"
    yield "|---" * (len(marks) + 2) + "|"
    for name in names:
        every = [r[name] for r in results.values()]
        best = [statistics.geometric_mean(c[min(m, len(c)) - 1] for c in every) for m in marks]
        close = sum(np.isfinite(needed(c)) for c in every)
        yield f"| {name} | {' | '.join(f'{b:.3f}' for b in best)} | {close} of {len(every)} |"
    chosen = [LIST, MACHINES, "Priority Sampling", "best-first", SAMPLED]
    yield f"\n| held-out GPU | {' | '.join(chosen)} |"
    yield "|---" * (len(chosen) + 1) + "|"
    for gpu, result in results.items():
        found = [needed(result[name]) for name in chosen]
        shown = [f"{n:.0f}" if np.isfinite(n) else f"over {limit}" for n in found]
        yield f"| {gpu} | {' | '.join(shown)} |"


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--steps", default=400, show_default=True, help="Batches of each training.")
@click.option("--limit", default=100, show_default=True, help="Trials.")
@click.option("--seed", default=0, show_default=True)
@click.option("--only", default="", help="Tables whose names begin so.")
def main(data: Path, steps: int, limit: int, seed: int, only: str) -> None:
    tables = [Table.of(path) for path in sorted(data.glob(f"{only}*.csv.gz"))]
    results = {}
    for table in tables:
        others = [t for t in tables if t.kernel == table.kernel and t is not table]
        if others:
            results[table.name] = curves(table, others, steps, limit, seed)
            found = {name: needed(curve) for name, curve in results[table.name].items()}
            click.echo(f"{table.name}: {found}", err=True)
    if not results:
        raise click.UsageError(f"{data} holds no two tables of one kernel, KERNEL_GPU.csv.gz")
    click.echo("\n".join(summary(results, limit)))


if __name__ == "__main__":
    main()
