"""Records as what a global model learns from: features, costs, and groups that compare."""

from __future__ import annotations

import functools
import itertools
import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.features.representation import (
    ContextRelation,
    FlattenedTree,
    joined,
    make_representation,
)
from loopwright.costmodel.model import Floats, Integers, ModelError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.workload import Workload
from loopwright.measure.machine import hardware
from loopwright.schedule.sketch.naming import SketchName
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.transfer.records.kinds import kind, target_of
from loopwright.transfer.records.location import Location
from loopwright.transfer.records.lookup import Setting, comparable, family
from loopwright.transfer.records.record import FINALS, NEVER, workload_of
from loopwright.transfer.records.store import RecordStore


@dataclass(frozen=True, eq=False)
class RecordGroup:
    """Records whose costs compare: of one workload on one machine, target and number of threads.

    Attributes
    ----------
    features: shape (n, f).
    costs: shape (n,), seconds; inf for failures.
    skipped: records of configs that this version's space does not have.
    """

    workload: Workload
    target: str
    threads: int
    hardware: tuple[tuple[str, str], ...]
    features: Floats
    costs: Floats
    skipped: int = 0

    @property
    def kind(self) -> str:
        """The kind of the workload, see `kinds.kind`."""
        return kind(self.workload)


_Whole = tuple[Location, tuple[Setting, ...]]  # a store, and the settings whose costs compare
_Learned = tuple[Floats, Floats, int]
_MANY = 100  # groups from which on a second process has started before one is done


def read_groups(
    stores: Iterable[RecordStore],
    reads: str = "relation",
    *,
    wanted: Callable[[Setting], bool] = lambda _: True,
    most: int | None = None,
    processes: int = 1,
) -> Iterator[RecordGroup]:
    """The groups of stores, one after the other, as their features are made; `reads` names the
    representation, "relation" or "tree".

    Settings that are not `wanted` are left out, and so are those of targets that this module
    cannot remake. Of a group with more than `most` configs, every so manieth in the order of
    cost is kept. More than one of the `processes` pay for hundreds of groups.
    """
    _representation(reads)
    wholes = [
        (store.location, tuple(members))
        for store in stores
        for members in comparable(filter(wanted, store.settings()))
    ]
    learned = functools.partial(_learned, reads=reads, most=most)
    if processes == 1 or len(wholes) < _MANY:
        yield from filter(None, map(_group, wholes, map(learned, wholes)))
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(learned, wholes, chunksize=8)
        yield from filter(None, map(_group, wholes, found))


def _representation(reads: str) -> ContextRelation | FlattenedTree:
    representation = make_representation(reads)
    if not isinstance(representation, ContextRelation | FlattenedTree):
        raise ModelError(
            f"{reads!r} features say nothing about other workloads: a global model reads "
            "'relation' or 'tree'"
        )
    return representation


def of_family(target: str) -> Callable[[Setting], bool]:
    """Return whether a setting's target is of the same architecture and vector features."""
    return lambda setting: family(setting.target) == family(target)


def stacked(groups: Sequence[RecordGroup]) -> tuple[Floats, Floats, Integers]:
    """Features, costs and numbers of groups, as `CostModel.fit` takes them."""
    if not groups:
        raise ModelError("there are no records to learn from: tune something, or collect some")
    numbers = np.repeat(np.arange(len(groups)), [len(g.costs) for g in groups])
    features = joined([g.features for g in groups])
    return features, np.concatenate([g.costs for g in groups]), numbers


def features_of(
    points: Space, configs: Sequence[Config], representation: ContextRelation | FlattenedTree
) -> Floats:
    """Features of a few configs, in their order, by lowering them at once. For a few, that is
    faster than recording a program for each sketch, as a search does for many."""
    places: dict[SketchName, list[int]] = {}
    for place, config in enumerate(configs):
        places.setdefault(config.sketch, []).append(place)
    numbered = {sketch.name: number for number, sketch in enumerate(points.sketches)}
    parts = []
    for name, own in places.items():
        choices = [points.sketch(name).numbers(configs[i]) for i in own]
        parts.append(representation.directly(points, numbered[name], np.array(choices, np.int64)))
    rows = joined(parts)
    result = np.empty_like(rows)
    result[list(itertools.chain.from_iterable(places.values()))] = rows
    return result


def _learned(whole: _Whole, reads: str, most: int | None) -> _Learned | None:
    """Features and costs of a group, and how many records are of no config of today."""
    path, members = whole
    with RecordStore(path, create=False) as store:
        found = known_costs(store, members)
    if found is None:
        return None
    points, known, skipped = found
    kept = _thinned(known, most)
    features = features_of(points, list(kept), _representation(reads))
    return features, np.array(list(kept.values()), np.float64), skipped


def known_costs(
    store: RecordStore, members: Sequence[Setting]
) -> tuple[Space, dict[Config, float], int] | None:
    """The space of settings whose costs compare, seconds of the configs that it has, and how many
    others there are; None where nothing can be learned."""
    first = members[0]
    target = target_of(first.target, first.machine, first.threads)
    if target is None:
        return None
    points = space(workload_of(first.workload), target, Numerics.FAST)
    costs = _costs(store, members)
    known = {config: cost for config, cost in costs.items() if config in points}
    return (points, known, len(costs) - len(known)) if known else None


def _group(whole: _Whole, learned: _Learned | None) -> RecordGroup | None:
    if learned is None:
        return None
    first = whole[1][0]
    workload = workload_of(first.workload)
    return RecordGroup(workload, first.target, first.threads, first.hardware, *learned)


def _costs(store: RecordStore, members: Sequence[Setting]) -> dict[Config, float]:
    """The median of every config's costs, infinite for one that never worked, or ever gave wrong
    results or crashed; times of cold caches are left out."""
    first = members[0]
    costs: dict[Config, list[float]] = {}
    bad: set[Config] = set()
    for record in store.query(first.workload_key, first.target, threads=first.threads):
        if record.cache == "warm" and hardware(record.machine) == first.hardware:
            own = costs.setdefault(record.config, [])
            if record.failure is not None:
                bad |= {record.config} if record.failure.kind in NEVER else set()
            elif not own or not record.session.endswith(FINALS):  # these are of another hour
                own.append(record.cost)
    works = {c for c, own in costs.items() if own} - bad
    return {c: statistics.median(costs[c]) if c in works else math.inf for c in costs}


def _thinned(costs: Mapping[Config, float], most: int | None) -> dict[Config, float]:
    """At most so many, spread evenly over the order of cost, the cheapest among them."""
    if most is None or len(costs) <= most:
        return dict(costs)
    ranked = sorted(costs.items(), key=lambda pair: pair[1])
    return dict(ranked[i] for i in np.linspace(0, len(ranked) - 1, most).astype(int))
