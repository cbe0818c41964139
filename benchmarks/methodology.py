"""Searches by the score of the auto-tuning methodology, ours beside Kernel Tuner's, on tables.

    python benchmarks/methodology.py DATA FILE.jsonl [--seeds 10] [--minutes 30] [--only annealing]

DATA is a folder of tables named KERNEL_GPU.csv.gz (see `load_brute_forced` in measure/tabular.py);
of equal ones the last counts. Budgets are numbers of evaluations, since the tables have no times of
compilation. Points that fail are evaluations, too. Nothing is built or run, so the scores do not
depend on the load of the machine; the seconds of a search do.

FILE keeps the searches: the same command goes on, and prints the table of what there is.
`methodology_score.py` defines the score. Kernel Tuner comes with the extra `bench`.
"""

from __future__ import annotations

import functools
import gzip
import importlib.metadata
import itertools
import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, process_time

import click
import kernel_tuner_search
import numpy as np
from methodology_score import END, START, Yardstick

from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.strategies.legality import by_sketch
from loopwright.explore.tune import tune
from loopwright.measure.tabular import TabularDevice, load_brute_forced

OURS = ("annealing", "genetic", "random")
RESAMPLED = 500


@dataclass(frozen=True)
class Table:
    """A recorded space: costs of its points in seconds, infinite where one fails."""

    device: TabularDevice
    names: tuple[str, ...]
    costs: dict[tuple[int, ...], float]
    yardstick: Yardstick

    @staticmethod
    def of(path: Path) -> Table:
        device = load_brute_forced(path)
        encoded = EncodedSpace(device.space, by_sketch(device.space, device.legal))
        configs = encoded.configs(encoded.listed)
        costs = {
            tuple(value for _, (value,) in m.config.values): m.cost
            for m in device.measure(device.space.workload, configs)
        }
        names = tuple(name for name, _ in configs[0].values)
        return Table(device, names, costs, Yardstick.of(list(costs.values())))


table = functools.cache(Table.of)


@dataclass(frozen=True)
class Search:
    """One search of a table.

    Attributes
    ----------
    budget: evaluations that it was given; it may have ended before.
    steps: (evaluations, seconds) whenever its best cost fell.
    seconds: of CPU time that it took.
    error: why there is no result; empty if there is.
    """

    table: str
    strategy: str
    seed: int
    budget: int
    steps: tuple[tuple[int, float], ...]
    seconds: float
    error: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.table, self.strategy, self.seed, self.budget

    def costs(self) -> list[float]:
        """The best cost after each evaluation."""
        best = np.full(self.budget, math.inf)
        for evaluations, cost in self.steps:
            best[evaluations - 1 :] = cost
        return best.tolist()


def search(path: Path, strategy: str, seed: int) -> Search:
    """Run one."""
    known, began, error = table(path), process_time(), ""
    budget = known.yardstick.budget
    try:
        if strategy in OURS:
            tuned = tune(
                known.device.space.workload,
                device=known.device,
                trials=budget,
                records=None,
                seed=seed,
                strategy=strategy,
            )
            costs = [m.cost for m in tuned.history]
        else:
            costs = kernel_tuner_search.evaluated(
                known.names, known.costs, strategy, budget, seed
            )
    except Exception as cause:  # noqa: BLE001 - whatever a peer raises is its result
        costs, error = [], f"{type(cause).__name__}: {cause}"
    bests = np.minimum.accumulate([math.inf, *costs])
    fell = np.flatnonzero(bests[1:] < bests[:-1]) + 1
    steps = tuple(zip(fell.tolist(), bests[fell].tolist()))
    return Search(name(path), strategy, seed, budget, steps, process_time() - began, error)


def name(path: Path) -> str:
    return path.name.partition(".")[0]


def load(file: Path) -> list[Search]:
    """The searches of a file."""
    if not file.exists():
        return []
    return [Search(**json.loads(line)) for line in file.read_text().splitlines()]


def run(
    jobs: Iterable[tuple[Path, str, int]], processes: int, minutes: float
) -> Iterator[Search]:
    """Run searches at once in as many processes. None begins when the minutes are over."""
    end, running = monotonic() + 60 * minutes, set[Future[Search]]()
    with ProcessPoolExecutor(processes) as pool:
        for job in jobs:
            if len(running) >= processes:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (f.result() for f in done)
            if monotonic() > end:
                break
            running.add(pool.submit(search, *job))
        yield from (f.result() for f in as_completed(running))


Bests = Mapping[str, np.ndarray]
"""Of one strategy, by table: the best costs of its runs, as `Yardstick.bests` gives them."""


def scores(bests: Bests, yardsticks: Mapping[str, Yardstick]) -> dict[str, float]:
    """Of one strategy, by table."""
    return {t: yardsticks[t].score_of(runs) for t, runs in bests.items()}


def interval(bests: Bests, yardsticks: Mapping[str, Yardstick]) -> tuple[float, float]:
    """Where the mean score of a strategy lies with a confidence of 95 %: seeds drawn again, with
    repetition. The tables are taken as they are."""
    rng = np.random.default_rng(0)
    means = []
    for _ in range(RESAMPLED):
        drawn = {t: r[rng.integers(len(r), size=len(r))] for t, r in bests.items()}
        means.append(statistics.fmean(scores(drawn, yardsticks).values()))
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def summary(searches: Sequence[Search], yardsticks: Mapping[str, Yardstick]) -> Iterator[str]:
    """A table of strategies, and one of tables, in Markdown. A search of another budget than that
    of its table does not count."""
    counted = [
        s
        for s in searches
        if s.table in yardsticks and s.budget == yardsticks[s.table].budget and not s.error
    ]
    kernels = sorted({t.partition("_")[0] for t in yardsticks})
    found: dict[str, dict[str, list[Search]]] = {}
    for s in counted:
        found.setdefault(s.strategy, {}).setdefault(s.table, []).append(s)
    rows, by_table = {}, {}
    for strategy, runs in found.items():
        bests = {
            t: np.array([yardsticks[t].bests(s.costs()) for s in own]) for t, own in runs.items()
        }
        each = by_table[strategy] = scores(bests, yardsticks)
        low, high = interval(bests, yardsticks)
        grouped = [
            [score for t, score in each.items() if t.partition("_")[0] == k] for k in kernels
        ]
        seconds = statistics.median(s.seconds for own in runs.values() for s in own)
        fewest, most = min(map(len, runs.values())), max(map(len, runs.values()))
        seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        rows[strategy] = (
            statistics.fmean(each.values()),
            f"{low:.3f} to {high:.3f}",
            *(f"{statistics.fmean(g):.3f}" if g else "–" for g in grouped),
            f"{len(runs)}",
            seeds,
            f"{seconds:.1f}",
        )
    order = sorted(rows, key=lambda strategy: -rows[strategy][0])
    yield f"| strategy | score | 95 % | {' | '.join(kernels)} | tables | seeds | CPU s |"
    yield "|---" * (len(kernels) + 6) + "|"
    for strategy in order:
        score, *rest = rows[strategy]
        yield f"| {shown(strategy)} | {score:.3f} | {' | '.join(map(str, rest))} |"
    yield f"\n| table | points | evaluations | {' | '.join(map(shown, order))} |"
    yield "|---" * (len(order) + 3) + "|"
    for t, yardstick in yardsticks.items():
        cells = (f"{by_table[s][t]:.3f}" if t in by_table[s] else "–" for s in order)
        first, last = yardstick.evaluations[[0, -1]]
        yield f"| {t} | {len(yardstick.costs)} | {first} to {last} | {' | '.join(cells)} |"
    for (strategy, error), own in itertools.groupby(
        sorted((s.strategy, s.error) for s in searches if s.error)
    ):
        yield f"\n{len(list(own))} searches by {strategy} failed: {error}"


def shown(strategy: str) -> str:
    """A strategy's name in the tables: ours are bold."""
    return f"**{strategy}**" if strategy in OURS else strategy


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--seeds", default=10, show_default=True, help="Of the searches, from 0.")
@click.option("--minutes", default=30.0, show_default=True, help="No search begins later.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True)
@click.option("--only", multiple=True, help="Only this strategy; may be given again.")
def main(
    data: Path, file: Path, seeds: int, minutes: float, processes: int, only: tuple[str, ...]
) -> None:
    theirs = tuple(kernel_tuner_search.STRATEGIES)
    if unknown := set(only) - {*OURS, *theirs}:
        raise click.UsageError(f"no strategy {', '.join(unknown)}; there are {[*OURS, *theirs]}")
    different = {gzip.decompress(p.read_bytes()): p for p in sorted(data.glob("*.csv.gz"))}
    paths = sorted(different.values())
    if not paths:
        raise click.UsageError(f"{data} holds no tables, *.csv.gz")
    strategies = only or (*OURS, *theirs)
    if set(strategies) & set(theirs):
        try:
            click.echo(f"Kernel Tuner {kernel_tuner_search.version()}", err=True)
        except importlib.metadata.PackageNotFoundError:
            raise click.UsageError(
                'Kernel Tuner is not installed: pip install "loopwright[bench]", or --only ours'
            ) from None
    yardsticks = {name(path): table(path).yardstick for path in paths}
    searches = load(file)
    known = {s.key for s in searches}
    jobs = (
        (path, strategy, seed)
        for seed in range(seeds)
        for path in paths
        for strategy in strategies
        if (name(path), strategy, seed, yardsticks[name(path)].budget) not in known
    )
    with file.open("a") as out:
        for done in run(jobs, processes, minutes):
            searches.append(done)
            out.write(json.dumps(asdict(done)) + "\n")
            out.flush()
    click.echo(f"from {START:.0%} to {END:.0%} of the way from the median to the optimum\n")
    click.echo("\n".join(summary(searches, yardsticks)))


if __name__ == "__main__":
    main()
