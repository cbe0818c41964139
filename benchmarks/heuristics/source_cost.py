"""A cost model that reads text beside one that reads features, on the same records.

    python -m benchmarks.heuristics.source_cost [--target opencl] [--records source-cost.db]
        [--workloads 24] [--size 64] [--minutes 20] [--draw 7] [--models features,source]
        [--held-out own,workload,kind]

Random programs of drawn workloads are measured and kept, for so many minutes at most; the same
command goes on. Then each model ranks programs that it has not learned from: of workloads held
out, of kinds held out, and half of each workload's own (`own`, as in a search). All learn under
Eq. 2's loss. Four are boosted trees: on the features that a search uses, on counts of symbols, on
the 28 numbers of Hayashi et al. 2015 with the threads of a block, and on both, as
`model="source"`. "source-lstm" takes a quarter of an hour, and is left out unless `--models` has
it.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from loopwright.codegen.target import resolve
from loopwright.costmodel.features.representation import ContextRelation
from loopwright.costmodel.model import CostModel
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.source.ranker import SourceLSTM
from loopwright.dsl.workload import Workload
from loopwright.explore.strategies.encoded_space import EncodedSpace, Points, Seen
from loopwright.explore.strategies.features import Features, Rows
from loopwright.explore.strategies.legality import legal_points
from loopwright.explore.strategies.source_text import EXACT, SourceSymbols, SourceText
from loopwright.measure.device import DeviceError
from loopwright.measure.machine import fingerprint
from loopwright.measure.opening import open_device
from loopwright.measure.timing import Timing
from loopwright.schedule.space import Space, space
from loopwright.schedule.target import Target
from loopwright.transfer.pretrained.dataset import RecordGroup, stacked
from loopwright.transfer.pretrained.evaluation import Score, Summary, cross_validated, judged
from loopwright.transfer.records.store import Record, RecordStore

sys.path.append(str(Path(__file__).parents[1]))
from suites.drawn import drawn

COST = 2e7  # FLOPs of a workload at most: a slow program should not take seconds
SEEDS = 3
TREES = ("features", "symbols", "numbers", "source")
MODELS = (*TREES, "source-lstm")
HELD_OUT = ("own", "workload", "kind")


def workloads(count: int, seed: int) -> list[Workload]:
    """Drawn workloads that are small, the kinds in turns."""
    every = (row.request.workload for row in drawn(8 * count, seed=seed))
    return [work for work in every if work.flops <= COST][:count]


def collect(work: Sequence[Workload], target: Target, path: Path, size: int, end: float) -> None:
    """Measure random programs of each workload until it has `size`, or the time is up."""
    rng = np.random.default_rng(0)
    timing = Timing(cap=0.03)
    with RecordStore(path) as store, open_device(None, target, None, timing, "llvm") as device:
        for workload in work:
            known = store.measured(workload, target, fingerprint())
            if len(known) >= size or time.monotonic() > end:
                continue
            points = space(workload, target)
            encoded = EncodedSpace(points, legal_points(points))
            chosen = encoded.configs(encoded.fresh(size, Seen(), rng))
            try:
                found = list(device.measure(workload, chosen))
            except DeviceError as error:
                print(f"{workload.key}: {error}", file=sys.stderr)
                continue
            store.add([Record.of(workload, target, fingerprint(), m, session="s") for m in found])
            print(f"{workload.key}: {len(found)} programs", file=sys.stderr)


def groups(
    work: Sequence[Workload], target: Target, path: Path, models: Sequence[str]
) -> Iterator[Mapping[str, RecordGroup]]:
    """The records of each workload, with the rows of each model."""
    with RecordStore(path) as store:
        for workload in work:
            points = space(workload, target)
            measured = store.measured(workload, target, fingerprint())
            known = {config: cost for config, cost in measured.items() if config in points}
            if len(known) < 16 or np.isfinite(list(known.values())).sum() < 8:
                continue
            at, costs = EncodedSpace(points).points(list(known)), np.array(list(known.values()))
            found = rows(points, at, models)
            yield {
                name: RecordGroup(workload, str(target), target.threads, (), found[name], costs)
                for name in models
            }


def rows(points: Space, at: Points, models: Sequence[str]) -> Mapping[str, Rows]:
    """The rows of the programs at some points, for each model."""
    found = {}
    if "features" in models:
        found["features"] = Features(points, ContextRelation()).directly(at)
    if "source-lstm" in models:
        found["source-lstm"] = Features(points, SourceSymbols())(at)
    if set(models) & {"symbols", "numbers", "source"}:
        text = Features(points, SourceText())(at)
        names = SourceText().names(points)
        exact = np.array([name.removesuffix(" to default") in EXACT for name in names])
        found |= {"symbols": text[:, ~exact], "numbers": text[:, exact], "source": text}
    return found


def trained(name: str, known: Sequence[RecordGroup], seed: int = 0) -> CostModel:
    """The model of a name under Eq. 2's loss."""
    lstm = name == "source-lstm"
    model = SourceLSTM(seed) if lstm else GBTModel("rank", seed, reads="source")
    model.fit(*stacked(known))
    return model


def own(name: str, every: Sequence[RecordGroup]) -> Iterator[Score]:
    """Half of the records of each workload ranked by the other half."""
    for seed in range(SEEDS):
        for group in every:
            order = np.random.default_rng(seed).permutation(len(group.costs))
            halves = [
                replace(group, features=group.features[part], costs=group.costs[part])
                for part in np.array_split(order, 2)
            ]
            yield from judged(trained(name, halves[:1], seed), halves[1:])


def chosen(
    parser: argparse.ArgumentParser, option: str, value: str, among: Sequence[str]
) -> list[str]:
    """The names in the value of an option, which must be known ones."""
    names = value.split(",")
    if unknown := [name for name in names if name not in among]:
        parser.error(f"--{option} {','.join(unknown)}: choose from {', '.join(among)}")
    return names


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--records", type=Path, default=Path("source-cost.db"))
    parser.add_argument("--workloads", type=int, default=24)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--draw", type=int, default=7, help="The seed that draws workloads.")
    parser.add_argument("--models", default=",".join(TREES), help=f"Of {', '.join(MODELS)}.")
    parser.add_argument(
        "--held-out", default=",".join(HELD_OUT), help=f"Of {', '.join(HELD_OUT)}."
    )
    given = parser.parse_args()
    models = chosen(parser, "models", given.models, MODELS)
    protocols = chosen(parser, "held-out", given.held_out, HELD_OUT)
    target, work = resolve(given.target), workloads(given.workloads, given.draw)
    end = time.monotonic() + 60 * given.minutes
    collect(work, target, given.records, given.size, end)
    every = list(groups(work, target, given.records, models))
    records = sum(len(found[models[0]].costs) for found in every)
    print(f"{len(every)} workloads, {records} programs for {target}\n")
    print("| held out | model | accuracy % | clear pairs % | recall@8 | regret@1 |")
    print("|---|---|---|---|---|---|")
    for held_out in protocols:
        for name in models:
            of_model = [found[name] for found in every]
            if held_out == "own":
                scores = list(own(name, of_model))
            else:
                fit = functools.partial(trained, name)
                scores = list(cross_validated(of_model, fit, held_out, folds=5))
            s = Summary.of(scores)
            print(
                f"| {held_out} | {name} | {100 * s.accuracy:.1f} | {100 * s.clear:.1f} "
                f"| {s.recall:.3f} | {s.regret[0]:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
