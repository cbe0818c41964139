"""Searches of recorded tables: one curve for a setting, a table and a seed."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from points import Legal, Remembered, every_number
from recorded import Recorded

from loopwright.costmodel.features.representation import joined, make_representation
from loopwright.costmodel.model import CostModel, Floats
from loopwright.costmodel.models.ensemble import Ensemble
from loopwright.costmodel.models.file import StoredModel
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.registry import make_model
from loopwright.explore.strategies.annealing import Schedule, programs
from loopwright.explore.strategies.encoded_space import EncodedSpace
from loopwright.explore.tuner import MODELLED, Tuner
from loopwright.measure.tabular import TabularDevice, load_brute_forced
from loopwright.schedule.sketch.sketch import Config

TRIALS = 128
FEW = Schedule(chains=256, steps=8, advice=False, likely=0.0)
"""For tables of less points than there are chains by default; the paper's searches know no rules
of thumb."""
_SOURCE, _SHARE = 250, 0.1
"""Records of a source table that a global model learns from, at most; more where a share of the
table is more."""


@dataclass(frozen=True)
class Setting:
    """One line of a plot.

    Attributes
    ----------
    model, reads: as `costmodel.models.registry` and `costmodel.features.representation` name them;
        `reads` None for what the model reads by itself.
    candidates, acquisition: λ of Eq. 3, and what is maximized.
    times: measurements for each trial that is counted ("GA x 2" of the paper's Figure 4).
    sources: names of tables that a global model learns from first (Eq. 4); "transfer" begins with
        the best config of the first of them.
    """

    label: str
    strategy: str = "annealing"
    model: str = "gbt"
    reads: str | None = None
    candidates: float = 4.0
    acquisition: str = "mean"
    times: int = 1
    sources: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """All but the label: settings of several figures with one key are one search."""
        reads = self.reads or make_model(self.model).reads
        return json.dumps(astuple(replace(self, label="", reads=reads))[1:])

    @property
    def scratch(self) -> Setting:
        """The same search with nothing known before."""
        return replace(self, sources=())


def curve(setting: Setting, table: Path, seed: int, trials: int = TRIALS) -> list[float]:
    """The optimum's cost over the lowest found so far, after each of the trials: 1 at the best.

    A table that runs out earlier ends with the last value.
    """
    device, legal = opened(table), in_table(table)
    tuner = _tuner(setting, table, seed, legal)
    # The recorded searches had 16 at a time, before annealing's batches began with fewer.
    least = 16 if setting.strategy == "annealing" else tuner.strategy.least
    wanted = setting.times * trials
    while len(tuner.costs) < wanted and not tuner.exhausted:
        asked = tuner.ask(min(least * setting.times, wanted - len(tuner.costs)))
        tuner.tell(asked, [m.cost for m in device.measure(device.space.workload, asked)])
    best = np.minimum.accumulate(tuner.costs)[setting.times - 1 :: setting.times][:trials]
    found = [float(device.optimum / cost) for cost in best]
    return found + found[-1:] * (trials - len(found))


def sources(setting: Setting, table: Path) -> tuple[Path, ...]:
    """The tables that a search of a table learns from first, beside it."""
    ending = "".join(table.suffixes)
    return tuple(table.with_name(name + ending) for name in setting.sources)


def _tuner(setting: Setting, table: Path, seed: int, legal: Legal) -> Tuner:
    space = opened(table).space
    if setting.strategy not in MODELLED:
        return Tuner(EncodedSpace(space, legal), setting.strategy, seed=seed)
    others = sources(setting, table)
    begin = None
    if setting.strategy == "transfer" and others:  # tables of GPUs have one sketch
        begin = replace(opened(others[0]).best, sketch=space.sketches[0].name)
    reads = setting.reads or make_model(setting.model).reads
    width = max(features(t, reads).width for t in (table, *others))
    base = global_model(setting.model, reads, others, width) if others else None
    schedule = FEW if legal.size < Schedule().chains else Schedule(likely=0.0)
    return Tuner(
        EncodedSpace(space, legal),
        setting.strategy,
        model=new_model(setting.model, reads, seed, base),
        seed=seed,
        representation=features(table, reads, width),
        schedule=replace(schedule, candidates=setting.candidates, acquisition=setting.acquisition),
        begin=begin,
    )


def new_model(name: str, reads: str, seed: int, base: StoredModel | None = None) -> CostModel:
    """A model of a name that reads these features, which boosted trees can be told."""
    if name == "gbt-ensemble":
        return Ensemble.of(lambda s: GBTModel("regression", s, reads=reads, base=base), seed)
    if name.startswith("gbt"):
        objective = "regression" if name == "gbt-regression" else "rank"
        return GBTModel(objective, seed, reads=reads, base=base)
    return make_model(name, seed, base)


@functools.cache
def global_model(name: str, reads: str, tables: tuple[Path, ...], width: int) -> StoredModel:
    """What the records of other tables teach, each a group of its own: f_global of Eq. 4."""
    model = GBTModel("rank", 0, 200, reads=reads) if name == "gbt" else make_model(name)
    parts = [sampled(table, reads, width) for table in tables]
    groups = np.repeat(np.arange(len(parts)), [len(costs) for _, costs in parts])
    model.fit(joined([rows for rows, _ in parts]), np.concatenate([c for _, c in parts]), groups)
    assert isinstance(model, StoredModel)
    return model


def sampled(table: Path, reads: str, width: int | None = None) -> tuple[Floats, Floats]:
    """Features and costs of some of what was measured, drawn by chance, always the same."""
    rows, costs = measured(table, reads, width)
    most = max(_SOURCE, int(_SHARE * len(costs)))
    chosen = np.random.default_rng(0).permutation(len(costs))[:most]
    return rows[chosen], costs[chosen]


def measured(table: Path, reads: str, width: int | None = None) -> tuple[Floats, Floats]:
    """Features and costs of all that was measured."""
    device, representation, legal = opened(table), features(table, reads, width), in_table(table)
    rows, costs = [], []
    for n, sketch in enumerate(device.space.sketches):
        numbers = every_number(sketch)
        numbers = numbers[legal.of_sketch(n, numbers)]
        rows.append(representation.features(device.space, n, numbers))
        found = device.measure(device.space.workload, [sketch.at(row) for row in numbers])
        costs += [m.cost for m in found]
    return joined(rows), np.array(costs)


@functools.cache
def opened(table: Path) -> TabularDevice:
    """A recorded sub-space, or one of the brute-forced GPUs."""
    if table.name.endswith(".csv.gz"):
        return load_brute_forced(table)
    return searched(loaded(table)).device()


@functools.cache
def loaded(table: Path) -> Recorded:
    return Recorded.load(table)


def searched(recorded: Recorded) -> Recorded:
    """The table as searches see it: without the default config, which rules of thumb chose, as the
    paper's searches know none; and with one cost for configs that are one program, the lowest,
    since they were measured at different times and noise only adds."""
    space, reads = recorded.space, recorded.representation("relation")
    costs = {c: cost for c, cost in recorded.costs.items() if c != space.default}
    found: dict[Config, int] = {}
    lowest: dict[int, float] = {}
    for number, sketch in enumerate(space.sketches):
        own = [c for c in costs if c.sketch == sketch.name]
        if own:
            rows = reads.features(space, number, np.array([sketch.numbers(c) for c in own]))
            found |= zip(own, map(int, programs(rows)), strict=True)
    for config, program in found.items():
        lowest[program] = min(costs[config], lowest.get(program, math.inf))
    return replace(recorded, costs={c: lowest[found[c]] for c in costs})


@functools.cache
def in_table(table: Path) -> Legal:
    return Legal(opened(table))


@functools.cache
def features(table: Path, reads: str, width: int | None = None) -> Remembered:
    """What models see of a table's configs; of GPUs' tables, knobs alone."""
    gpu = table.name.endswith(".csv.gz")
    of = make_representation(reads) if gpu else loaded(table).representation(reads)
    return Remembered(of, opened(table).space, width)
