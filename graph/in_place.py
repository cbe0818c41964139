"""The last word on a task's best candidates: their times inside of the whole network.

A candidate that is measured alone finds its weights in the caches. In a network they come from the
last-level cache or from memory, so that fewer of them (a smaller Winograd tile, say) may win
although it multiplies more. So the network is built a few times, every time with another candidate
for each task, and the candidates' steps are timed within whole calls, builds in turns.

A step may also be slow since the one before it has left its operand in the caches of other cores,
which no step's own time tells: networks in which one task has its threads write contiguous parts
of the results (`parts.in_order`) are compared as a whole with that of the fastest steps.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from loopwright.codegen.build import program
from loopwright.explore.session import Session
from loopwright.graph.compose import compose
from loopwright.graph.model import TunedModel
from loopwright.graph.parts import in_order
from loopwright.graph.tasks import Task, Work
from loopwright.measure.device import Measurement
from loopwright.measure.timing import typical
from loopwright.schedule.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.record import NETWORK

VARIANTS = 8
"""Candidates of a task that are compared, and networks that are built."""
_SLOWER = 1.6
"""Of other rewrites than the best one, and of candidates whose threads write contiguous parts,
those that are slower than the best one by no more are compared."""
_LOOKED_AT = 64
"""Candidates among which those are looked for whose threads write contiguous parts."""
_ORDERED = 4
"""Of these, as many of a task are compared in whole networks."""
_CHANGES = 15
"""Networks in all that are compared with that of the fastest steps."""
_GAIN = 0.995
"""Of a call's time: a network that takes less is faster as a whole."""
_SURE = 0.8
"""The share of rounds, at least, that say so."""
_LEAST = 0.1
"""What is left of a step's time, at least, where a network gains by it."""
_ROUNDS, _LEAST_ROUNDS, _CALLS = 15, 3, 3
_MOST_WEIGHTS = 1 << 30
"""Bytes of all networks' weights after which no further one is built."""
_SPARED = 1
"""Rounds at the start that do not count: the first calls touch new memory."""


Samples = dict[str, dict[Config, list[float]]]
"""Seconds in the network by the workload's key and config."""


@dataclass(frozen=True)
class Compared:
    """A task, its search, and the candidates that are to be compared."""

    task: Task
    session: Session
    configs: tuple[Config, ...]

    @property
    def key(self) -> str:
        """The workload's."""
        return self.task.workload.key


def contenders(session: Session) -> tuple[Config, ...]:
    """The best config of a search, the default one, the one that won in a network before, the best
    one whose threads write contiguous parts, the best of every other rewrite that comes near, then
    the next best ones. The default is there so that noise makes nothing slower than it was without
    tuning."""
    near = _near(session)
    first: dict[str, Config] = {}
    for config in near:
        first.setdefault(session.space.sketch(config.sketch).rewrite, config)
    ranked = session.ranked()
    sure = [c for c in (session.space.default, session.best_known(NETWORK)) if c in ranked]
    chosen = [*ranked[:1], *sure, *_ordered(session, near, 1), *first.values(), *ranked]
    return tuple(dict.fromkeys(chosen))[:VARIANTS]


def _near(session: Session) -> list[Config]:
    """The configs that come near the best one, the best first."""
    ranked = list(dict.fromkeys(session.ranked()))
    return [c for c in ranked if session.cost(c) <= _SLOWER * session.cost(ranked[0])]


def _ordered(session: Session, ranked: Sequence[Config], most: int) -> list[Config]:
    """The first configs whose threads write contiguous parts."""
    found = (c for c in ranked[:_LOOKED_AT] if _in_order(session, c))
    return list(itertools.islice(found, most))


def _in_order(session: Session, config: Config) -> bool:
    target = session.device.target
    return in_order(program(session.workload, config, target).tree, target.threads)


def compare_in_place(
    work: Work,
    target: Target,
    tasks: Sequence[Compared],
    seconds: float = math.inf,
    others: Mapping[str, Config] = MappingProxyType({}),
) -> Iterator[str]:
    """Measure the candidates of all tasks in the network, and record what they took, in about so
    many seconds, but for a few rounds. `others` are the configs of the tasks that are not
    compared, by the workload's key; defaults if not given. Says what it does. The winner of each
    task is checked against the oracle, and rejected if it is wrong."""
    begin = time.monotonic()
    tasks = [t for t in tasks if t.configs]
    if not tasks:
        return
    models: list[tuple[dict[str, Config], TunedModel]] = []
    variants = max(len(t.configs) for t in tasks)
    for variant in range(variants):
        if len(models) > 1 and time.monotonic() > begin + seconds / 2:
            break
        configs = {t.key: t.configs[variant % len(t.configs)] for t in tasks}
        composed = compose(work, {**others, **configs}, target, "model")
        if composed.notes:  # a candidate that cannot be built has its default in its place
            yield f"not compared in place: {composed.notes[0]}"
            continue
        models.append((configs, TunedModel(work, composed, target, {})))
        if _too_large([model for _, model in models]):
            break
        yield f"built {variant + 1} of {variants} variants of the network"
    samples: Samples = {t.key: {} for t in tasks}
    for turn in _turns(begin + seconds / 2):
        for configs, model in models:
            times = model.step_seconds(_CALLS)
            for t in tasks if turn >= _SPARED else ():
                mean = sum(times[n] for n in t.task.steps) / t.task.count
                samples[t.key].setdefault(configs[t.key], []).append(mean)
    if models and target.threads > 1 and time.monotonic() < begin + seconds / 2:
        models.clear()  # their weights make room for those of others
        yield from _compare_whole(work, target, tasks, samples, begin + seconds, others)
    for t in tasks:
        _record(t, samples[t.key], target)
    yield "compared the best candidates inside of the network"


def _compare_whole(
    work: Work,
    target: Target,
    tasks: Sequence[Compared],
    samples: Samples,
    end: float,
    others: Mapping[str, Config] = MappingProxyType({}),
) -> Iterator[str]:
    """Compare the network of the fastest steps with those in which one task has another candidate,
    whose threads write contiguous parts, until `end` but for a few rounds. Where one of these is
    faster, the samples of this candidate become those of the fastest, less what the network
    gains."""
    fastest = {t.key: _fastest(samples[t.key]) for t in tasks}
    changes = _changes(tasks, samples, fastest)
    if not changes:
        return
    begin = time.monotonic()
    choices = [fastest, *({**fastest, t.key: config} for t, config in changes)]
    models: list[TunedModel] = []
    for configs in choices:
        if len(models) > 1 and (time.monotonic() > (begin + end) / 2 or _too_large(models)):
            break
        composed = compose(work, {**others, **configs}, target, "model")
        models.append(TunedModel(work, composed, target, {}))
    calls: list[list[float]] = [[] for _ in models]
    for _ in _turns(end):
        for model, taken in zip(models, calls):
            taken.append(sum(seconds for _, seconds in model.profile(calls=_CALLS)))
    before = calls[0][_SPARED:]
    least: dict[str, float] = {}
    for (t, config), taken in zip(changes, calls[1:]):
        ratios = [b / a for a, b in zip(before, taken[_SPARED:], strict=True)]
        ratio = statistics.median(ratios)
        yield f"{t.task.name}, contiguous parts for each thread: {ratio:.3f} of a call's time"
        own = samples[t.key]
        cost = t.task.count * typical(own[fastest[t.key]])
        left = max(1 - (1 - ratio) * statistics.median(before) / cost, _LEAST)
        sure = ratio < _GAIN and np.quantile(ratios, _SURE) < 1
        if sure and ratio < least.get(t.key, 1.0):
            least[t.key] = ratio
            own[config] = [left * seconds for seconds in own[fastest[t.key]]]


def _fastest(samples: dict[Config, list[float]]) -> Config:
    return min(samples, key=lambda config: typical(samples[config]))


def _changes(
    tasks: Sequence[Compared], samples: Samples, fastest: Mapping[str, Config]
) -> list[tuple[Compared, Config]]:
    """Candidates that may do better in the whole than the fastest one of their task: the best
    of every task first, tasks that take the most time before others."""
    spent = {t.key: t.task.count * typical(samples[t.key][fastest[t.key]]) for t in tasks}
    found = [
        [(t, config) for config in _ordered(t.session, _near(t.session), _ORDERED)]
        for t in sorted(tasks, key=lambda t: -spent[t.key])
        if not _in_order(t.session, fastest[t.key])
    ]
    by_rank = itertools.chain.from_iterable(itertools.zip_longest(*found))
    return [change for change in by_rank if change is not None][:_CHANGES]


def _too_large(models: Sequence[TunedModel]) -> bool:
    return sum(model.composed.weight_bytes for model in models) > _MOST_WEIGHTS


def _turns(end: float) -> Iterator[int]:
    """The numbers of the rounds, those that do not count among them: all of them, or as many as
    begin before `end`, and a few."""
    for turn in range(_ROUNDS + _SPARED):
        if turn < _LEAST_ROUNDS + _SPARED or time.monotonic() < end:
            yield turn


def _record(t: Compared, samples: dict[Config, list[float]], target: Target) -> None:
    """Store the times of a task's candidates, those of wrong results left out."""
    costs = {c: typical(s) for c, s in samples.items()}
    for config in sorted(costs, key=costs.__getitem__):
        failure = t.session.verify(config)
        if failure is None:
            break
        t.session.reject(config, failure)
        del costs[config]
    for config in costs:
        seconds = tuple(samples[config])
        t.session.record(
            Measurement(
                config=config,
                seconds=seconds,
                failure=None,
                build_seconds=0.0,
                run_seconds=sum(seconds),
                cache=NETWORK,
                threads=target.threads,
                started=time.time(),
            ),
            final=True,
        )
