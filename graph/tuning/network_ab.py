"""Networks compared as wholes: what one step gains by another.

A step may be slow since the one before it left its operand in the caches of other cores. So a
network in which one task has its threads write contiguous parts of the results is compared with
that of the fastest steps.

The weights of all steps share the last-level cache, and what fewer of them are worth, no step's
own time tells. So networks are compared in which each byte of weights has a price, for a few
prices: what is best under a budget is nearly always the best for some price (Everett 1963, on
Lagrange multipliers for problems of allocation).
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loopwright.explore.significance import FEWEST, ratio
from loopwright.graph.compile.link import Linked, link
from loopwright.graph.compile.model import TunedModel
from loopwright.graph.tasks import Work
from loopwright.graph.tuning.candidates import (
    Compared,
    Samples,
    expected,
    fastest,
    is_thread_local,
    of_each_algorithm,
    thread_local,
    weights,
)
from loopwright.measure.lease import MachineLease
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

_OF_TASK = 4
"""Candidates of a task that write contiguous parts, as many as are compared in whole networks."""
_NETWORKS = 15
"""Number of networks that are compared in all with that of the fastest steps."""
_PRICES = (5e-12, 10e-12, 20e-12, 40e-12, 80e-12)
"""Seconds for a byte of weights: from those of a last-level cache to those of a slow memory."""
_GAIN = 0.995
"""Share of a call's time: a network that takes less is faster as a whole, if a test says so."""
_LEAST = 0.1
"""Share that is left of a step's time, at least, where a network gains by it."""
_ROUNDS, _CALLS = 15, 10
"""Rounds, unless time is short, and calls in each: more than steps need that are
timed alone, since a network's weights take a few calls to find their places in the caches."""
_MOST_WEIGHTS = 1 << 30
"""Bytes of all networks' weights after which no further one is built."""
SPARED = 1
"""Rounds at the start that do not count: the first calls touch new memory."""


@dataclass(frozen=True)
class Change:
    """Other configs for some tasks, by the workload's key, and what they are, in words."""

    what: str
    configs: Mapping[str, Config]


@dataclass(frozen=True, eq=False)
class NetworkComparison:
    """A network in which the candidates of `tasks` are compared. `others` are configs of the tasks
    that are not, by the workload's key. All of the time is used, or as much as tests need."""

    work: Work
    target: Target
    tasks: Sequence[Compared]
    others: Mapping[str, Config]
    all_of_it: bool

    def linked(self, configs: Mapping[str, Config]) -> Linked:
        """The network with these configs."""
        return link(self.work, {**self.others, **configs}, self.target, "model")

    def model(self, linked: Linked) -> TunedModel:
        """The model that a network was linked to."""
        return TunedModel(self.work, linked, self.target, {})


def compare_networks(compared: NetworkComparison, samples: Samples, end: float) -> Iterator[str]:
    """Compare networks as wholes until `end` at the latest: lighter ones first, then those in
    which one task writes contiguous parts. Where one is faster than that of the fastest steps, its
    candidates' samples become those of the fastest, less the gain. Says what it does."""
    middle = (time.monotonic() + end) / 2
    for changes, until in ((lighter, middle), (_parts, end)):
        yield from _compare(compared, samples, changes(compared.tasks, samples), until)


def lighter(tasks: Sequence[Compared], samples: Samples) -> list[Change]:
    """Networks with fewer bytes of weights than that of the fastest steps."""
    pools: list[list[tuple[float, int, Config]]] = []  # the fastest one is the first
    for t in tasks:
        first = fastest(samples[t.key])
        most = weights(t.session, first)
        cost = min(t.session.cost(first), expected(samples[t.key])[first])
        pool = [(cost, most, first)]
        for config in of_each_algorithm(t.session) if most else ():
            size = weights(t.session, config)
            if size < most:
                pool.append((t.session.cost(config), size, config))
        pools.append(pool)
    whole = sum(t.task.count * pool[0][1] for t, pool in zip(tasks, pools))
    changes: dict[frozenset[tuple[str, Config]], Change] = {}
    for price in _PRICES:
        left, chosen = 0, {}
        for t, pool in zip(tasks, pools):
            _, size, config = min(pool, key=lambda found: found[0] + price * found[1])
            left += t.task.count * size
            if config != pool[0][2]:
                chosen[t.key] = config
        what = f"{left / 1e6:.1f} MB of weights in place of {whole / 1e6:.1f}"
        if chosen:
            changes.setdefault(frozenset(chosen.items()), Change(what, chosen))
    return list(changes.values())


def _parts(tasks: Sequence[Compared], samples: Samples) -> list[Change]:
    """Candidates that may do better in the whole than the fastest one of their task: the best
    of every task first, tasks that take the most time before others."""
    if tasks[0].session.device.target.threads == 1:
        return []
    first = {t.key: fastest(samples[t.key]) for t in tasks}
    spent = {t.key: t.task.count * expected(samples[t.key])[first[t.key]] for t in tasks}
    found = [
        [
            Change(f"{t.task.name}, contiguous parts for each thread", {t.key: config})
            for config in thread_local(t.session, _OF_TASK)
        ]
        for t in sorted(tasks, key=lambda t: -spent[t.key])
        if not is_thread_local(t.session, first[t.key])
    ]
    by_rank = itertools.chain.from_iterable(itertools.zip_longest(*found))
    return [change for change in by_rank if change is not None]


def _compare(
    compared: NetworkComparison, samples: Samples, changes: Sequence[Change], end: float
) -> Iterator[str]:
    """Compare the network of the fastest steps with changed ones."""
    if not changes:
        return
    begin, tasks = time.monotonic(), compared.tasks
    first = {t.key: fastest(samples[t.key]) for t in tasks}
    models: list[TunedModel] = []
    built: list[Change] = []
    for change in (Change("", {}), *changes[:_NETWORKS]):
        if len(models) > 1 and (time.monotonic() > (begin + end) / 2 or too_large(models)):
            break
        composed = compared.linked({**first, **change.configs})
        if not (built and composed.notes):  # else a config is none that can be built
            models.append(compared.model(composed))
            built.append(change)
    calls: list[list[float]] = [[] for _ in models]
    for _ in rounds(end, compared.all_of_it):
        with MachineLease():
            for model, taken in zip(models, calls):
                taken.append(sum(seconds for _, seconds in model.profile(calls=_CALLS)))
    before = calls[0][SPARED:]
    gains: list[tuple[float, Change]] = []
    for change, taken in zip(built[1:], calls[1:], strict=True):
        share = ratio(taken[SPARED:], before)
        yield f"{change.what}: {share:.3f} of a call's time"
        if share.value < _GAIN and share.high < 1:
            gains.append((share.value, change))
    taken_up: set[str] = set()
    for share_left, change in sorted(gains, key=lambda gain: gain[0]):
        if taken_up & change.configs.keys():  # together they were not measured
            continue
        taken_up |= change.configs.keys()
        changed = [t for t in tasks if t.key in change.configs]
        cost = sum(t.task.count * expected(samples[t.key])[first[t.key]] for t in changed)
        left = max(1 - (1 - share_left) * statistics.median(before) / cost, _LEAST)
        for t in changed:
            own = samples[t.key]
            own[change.configs[t.key]] = [left * seconds for seconds in own[first[t.key]]]


def too_large(models: Sequence[TunedModel]) -> bool:
    """Return whether the weights of these leave no room for more."""
    return sum(model.linked.weight_bytes for model in models) > _MOST_WEIGHTS


def rounds(end: float, all_of_it: bool = False) -> Iterator[int]:
    """The numbers of the rounds, those that do not count among them: some, or as many as begin
    before `end`, but as many as a test needs. With `all_of_it`, as many as there is time for."""
    for number in itertools.count():
        late = time.monotonic() >= end or (number >= _ROUNDS + SPARED and not all_of_it)
        if late and number >= FEWEST + SPARED:
            return
        yield number
