"""Searches by the score of the auto-tuning methodology, ours beside Kernel Tuner's, on tables.

    python benchmarks/methodology.py DATA FILE.jsonl [--seeds 10] [--minutes 30] [--end 0.9]

DATA is a folder of tables named KERNEL_GPU.csv.gz (see `load_brute_forced` in measure/tabular.py);
of equal ones the last counts. Budgets are numbers of evaluations, since the tables have no times
of compilation. Points that fail are evaluations, too. Nothing is built or run, so scores do not
depend on the load of the machine; the seconds of a search do.

FILE keeps the searches: the same command goes on, and prints the table of what there is.
`methodology_score.py` defines the score. Kernel Tuner comes with the extra `bench`.
"""

from __future__ import annotations

import functools
import gzip
import importlib.metadata
import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, process_time

import click
import kept
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
    def of(path: Path, end: float) -> Table:
        device = load_brute_forced(path)
        encoded = EncodedSpace(device.space, by_sketch(device.space, device.legal))
        configs = encoded.configs(encoded.listed)
        costs = {
            tuple(value for _, (value,) in m.config.values): m.cost
            for m in device.measure(device.space.workload, configs)
        }
        names = tuple(name for name, _ in configs[0].values)
        return Table(device, names, costs, Yardstick.of(list(costs.values()), end))


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


def search(path: Path, strategy: str, seed: int, end: float = END) -> Search:
    """Run one."""
    known, began, error = table(path, end), process_time(), ""
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
            costs = kernel_tuner_search.evaluated(known.names, known.costs, strategy, budget, seed)
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
    return [Search(**found) for found in kept.lines(file)]


def run(
    jobs: Iterable[tuple[Path, str, int, float]], processes: int, minutes: float
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


@dataclass(frozen=True)
class Standing:
    """A strategy's scores.

    Attributes
    ----------
    scores: by table; `score` is their mean.
    interval: where the mean lies with a confidence of 95 %: seeds drawn again, with repetition,
        tables as they are.
    seeds: of each table.
    seconds: of CPU time, the median of its searches.
    """

    strategy: str
    scores: dict[str, float]
    interval: tuple[float, float]
    seeds: tuple[int, ...]
    seconds: float

    @property
    def score(self) -> float:
        return statistics.fmean(self.scores.values())

    @staticmethod
    def of(searches: Sequence[Search], yardsticks: Mapping[str, Yardstick]) -> Standing:
        """Of one strategy."""
        runs: dict[str, list[np.ndarray]] = {}
        for s in searches:
            runs.setdefault(s.table, []).append(yardsticks[s.table].bests(s.costs()))
        bests = {t: np.array(own) for t, own in runs.items()}
        rng, means = np.random.default_rng(0), []
        for _ in range(RESAMPLED):
            drawn = (yardsticks[t].score_of(rng.choice(own, len(own))) for t, own in bests.items())
            means.append(statistics.fmean(drawn))
        low, high = np.quantile(means, (0.025, 0.975)).tolist()
        return Standing(
            searches[0].strategy,
            {t: yardsticks[t].score_of(own) for t, own in bests.items()},
            (low, high),
            tuple(map(len, runs.values())),
            statistics.median(s.seconds for s in searches),
        )

    def line(self, kernels: Sequence[str]) -> str:
        """Its line in the table of strategies."""
        by_kernel = {k: [x for t, x in self.scores.items() if kernel(t) == k] for k in kernels}
        low, high = self.interval
        fewest, most = min(self.seeds), max(self.seeds)
        cells = (
            shown(self.strategy),
            f"{self.score:.3f}",
            f"{low:.3f} to {high:.3f}",
            *(f"{statistics.fmean(x):.3f}" if x else "–" for x in by_kernel.values()),
            f"{len(self.scores)}",
            f"{fewest}" if fewest == most else f"{fewest} to {most}",
            f"{self.seconds:.1f}",
        )
        return f"| {' | '.join(cells)} |"


def summary(searches: Sequence[Search], yardsticks: Mapping[str, Yardstick]) -> Iterator[str]:
    """A table of strategies and one of tables, in Markdown, and the searches that failed. A search
    of another table or budget does not count."""
    known = [
        s for s in searches if s.table in yardsticks and s.budget == yardsticks[s.table].budget
    ]
    found: dict[str, list[Search]] = {}
    for s in known:
        if not s.error:
            found.setdefault(s.strategy, []).append(s)
    standings = [Standing.of(own, yardsticks) for own in found.values()]
    standings.sort(key=lambda standing: -standing.score)
    kernels = sorted({kernel(t) for t in yardsticks})
    yield f"| strategy | score | 95 % | {' | '.join(kernels)} | tables | seeds | CPU s |"
    yield "|---" * (len(kernels) + 6) + "|"
    yield from (standing.line(kernels) for standing in standings)
    names = (shown(standing.strategy) for standing in standings)
    yield f"\n| table | points that work | evaluations | {' | '.join(names)} |"
    yield "|---" * (len(standings) + 3) + "|"
    for t, yardstick in yardsticks.items():
        cells = (f"{s.scores[t]:.3f}" if t in s.scores else "–" for s in standings)
        first, last = yardstick.evaluations[[0, -1]]
        yield f"| {t} | {len(yardstick.costs)} | {first} to {last} | {' | '.join(cells)} |"
    failed = Counter((s.strategy, s.error) for s in known if s.error)
    for (strategy, error), times in failed.items():
        yield f"\n{times} searches by {strategy} failed: {error}"


def kernel(name: str) -> str:
    """What a table is of."""
    return name.partition("_")[0]


def shown(strategy: str) -> str:
    """A strategy's name in the tables: ours are bold."""
    return f"**{strategy}**" if strategy in OURS else strategy


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--seeds", default=10, show_default=True, help="Of the searches, from 0.")
@click.option("--minutes", default=30.0, show_default=True, help="No search begins later.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True)
@click.option(
    "--end",
    default=END,
    show_default=True,
    type=click.FloatRange(START, 1, True, True),
    help="Share of the way from the median to the optimum where random search ends.",
)
@click.option("--only", multiple=True, help="Only this strategy; may be given again.")
def main(
    data: Path,
    file: Path,
    seeds: int,
    minutes: float,
    processes: int,
    end: float,
    only: tuple[str, ...],
) -> None:
    theirs = kernel_tuner_search.STRATEGIES
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
    yardsticks = {name(path): table(path, end).yardstick for path in paths}
    searches = load(file)
    known = {s.key for s in searches}
    jobs = (
        (path, strategy, seed, end)
        for seed in range(seeds)
        for path in paths
        for strategy in strategies
        if (name(path), strategy, seed, yardsticks[name(path)].budget) not in known
    )
    for done in run(jobs, processes, minutes):
        searches.append(done)
        kept.add(file, asdict(done))
    click.echo(f"from {START:.0%} to {end:.0%} of the way from the median to the optimum\n")
    click.echo("\n".join(summary(searches, yardsticks)))


if __name__ == "__main__":
    main()
