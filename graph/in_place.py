"""The last word on a task's best candidates: their times inside of the whole network.

A candidate that is measured alone finds its weights in the caches. In a network they come from the
last-level cache or from memory, so that fewer of them (a smaller Winograd tile, say) may win
although it multiplies more. So the network is built a few times, every time with another candidate
for each task, and the candidates' steps are timed within whole calls, builds in turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loopwright.explore.session import Session
from loopwright.graph.compose import Composed, compose
from loopwright.graph.model import TunedModel
from loopwright.graph.reshape import only_reshapes
from loopwright.graph.tasks import Task, Work
from loopwright.graph.tir import Imported
from loopwright.measure.device import Measurement
from loopwright.measure.timing import typical
from loopwright.schedule.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.record import NETWORK

VARIANTS = 6
"""Candidates of a task that are compared, and networks that are built."""
_SLOWER = 1.6
"""Of other algorithms than the best one, those that are slower than it by no more are compared."""
_ROUNDS, _CALLS = 15, 3
_MOST_WEIGHTS = 1 << 30
"""Bytes of all networks' weights after which no further one is built."""
_SPARED = 1
"""Rounds at the start that do not count: the first calls touch new memory."""


@dataclass(frozen=True)
class Compared:
    """A task, its search, and the candidates that are to be compared."""

    task: Task
    session: Session
    configs: tuple[Config, ...]


def contenders(session: Session) -> tuple[Config, ...]:
    """The best config of a search, the default one, the one that won in a network before, the best
    of every other algorithm that comes near, then the next best ones. The default is there so that
    noise makes nothing slower than it was without tuning."""
    ranked = list(dict.fromkeys(session.ranked()))
    if not ranked:
        return ()
    first: dict[str, Config] = {}
    for config in ranked:
        if session.cost(config) <= _SLOWER * session.cost(ranked[0]):
            first.setdefault(session.space.sketch(config.sketch).algorithm, config)
    sure = [c for c in (session.space.default, session.best_known(NETWORK)) if c in ranked]
    return tuple(dict.fromkeys([ranked[0], *sure, *first.values(), *ranked]))[:VARIANTS]


def compare_in_place(work: Work, target: Target, tasks: Sequence[Compared]) -> Iterator[str]:
    """Measure the candidates of all tasks in the network, and record what they took. Says what it
    does. The winner of each task is checked against the oracle, and rejected if it is wrong."""
    live = {n for n, said in enumerate(work.imported) if not _is_free(said)}
    tasks = [t for t in tasks if t.configs and live & set(t.task.steps)]
    if not tasks:
        return
    models = []
    for variant in range(max(len(t.configs) for t in tasks)):
        configs = {t.task.workload.key: t.configs[variant % len(t.configs)] for t in tasks}
        composed = compose(work, configs, target, "model")
        if composed.notes:  # a candidate that cannot be built has its default in its place
            yield f"not compared in place: {composed.notes[0]}"
            continue
        models.append((configs, TunedModel(work, composed, target, {})))
        if sum(m.composed.weight_bytes for _, m in models) > _MOST_WEIGHTS:
            break
        yield f"built {variant + 1} of {VARIANTS} variants of the network"
    samples: dict[str, dict[Config, list[float]]] = {t.task.workload.key: {} for t in tasks}
    for turn in range(_ROUNDS + _SPARED):
        for configs, model in models:
            times = _step_times(model.composed, model.profile(calls=_CALLS))
            for t in tasks if turn >= _SPARED else ():
                key = t.task.workload.key
                mean = sum(times[n] for n in t.task.steps) / t.task.count
                samples[key].setdefault(configs[key], []).append(mean)
    for t in tasks:
        _record(t, samples[t.task.workload.key], target)
    yield "compared the best candidates inside of the network"


def _is_free(said: Imported | str) -> bool:
    """Whether a step is no entry of the plan."""
    return isinstance(said, Imported) and only_reshapes(said.workload)


def _step_times(composed: Composed, profile: Sequence[tuple[str, float]]) -> dict[int, float]:
    """Seconds by the step's number."""
    return {n: spent for n, (_, spent) in zip(composed.steps, profile, strict=True) if n >= 0}


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
