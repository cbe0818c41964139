"""The last word on a task's best candidates: their times inside of the whole network.

A candidate alone finds its weights in the caches. In a network they come from the last-level cache
or from memory, so that fewer of them may win although they multiply more. So the network is built
a few times, each with other candidates, and their steps are timed within whole calls, in rounds.
What a step's own time does not tell, whole networks do (`graph.tuning.network_ab`).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from loopwright.graph.compile.model import TunedModel
from loopwright.graph.tuning.candidates import Compared, Samples, chosen, expected
from loopwright.graph.tuning.network_ab import (
    SPARED,
    NetworkComparison,
    compare_networks,
    rounds,
    too_large,
)
from loopwright.measure.device import Measurement
from loopwright.measure.lease import MachineLease
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target
from loopwright.transfer.records.record import NETWORK

_CALLS, _MOST_CALLS, _VISIT = 3, 30, 5e-3
"""Calls of every network in a round, the more the shorter they are, for so many seconds. The first
of them still find their weights where the other networks have left them."""

_Variant = tuple[dict[str, Config], TunedModel]
"""A variant of the network, and its configs by the workload's key."""


def compare_in_situ(compared: NetworkComparison, seconds: float) -> Iterator[str]:
    """Measure the candidates of all tasks in the network, and record what they took, in about so
    many seconds at most. Says what it does. The winner of each task is checked against the oracle,
    and rejected if it is wrong."""
    begin = time.monotonic()
    middle = begin + seconds / 2
    compared = replace(compared, tasks=[t for t in compared.tasks if t.configs])
    if not compared.tasks:
        return
    models = yield from _built(compared, middle)
    samples = _timed(models, compared, middle)
    if models and time.monotonic() < begin + seconds * 2 / 3:  # else steps took it all
        models.clear()  # their weights make room for those of others
        yield from compare_networks(compared, samples, begin + seconds)
    for t in compared.tasks:
        _record(t, samples[t.key], compared.target)
    yield "compared the best candidates inside of the network"


def _built(compared: NetworkComparison, end: float) -> Generator[str, None, list[_Variant]]:
    """Build variants of the network until `end`, two at least, each with other candidates. Says
    what it does."""
    models, tasks = list[_Variant](), compared.tasks
    variants = max(len(t.configs) for t in tasks)
    for variant in range(variants):
        if len(models) > 1 and time.monotonic() > end:
            break
        configs = {t.key: t.configs[variant % len(t.configs)] for t in tasks}
        composed = compared.linked(configs)
        if composed.notes:  # a candidate that cannot be built has its default in its place
            yield f"not compared in situ: {composed.notes[0]}"
            continue
        models.append((configs, compared.model(composed)))
        if too_large([model for _, model in models]):
            break
        yield f"built {variant + 1} of {variants} variants of the network"
    return models


def _timed(models: Sequence[_Variant], compared: NetworkComparison, end: float) -> Samples:
    """Times of every task's candidates within calls of the variants, in rounds until `end`."""
    tasks = compared.tasks
    samples: Samples = {t.key: {} for t in tasks}
    calls = _calls(models[0][1]) if models else 0
    for number in rounds(end, compared.all_of_it) if models else ():
        taken: Samples = {t.key: {} for t in tasks}
        for configs, model in models:
            with MachineLease():
                times = model.step_seconds(calls)
            for t in tasks:
                mean = sum(times[n] for n in t.task.steps) / t.task.count
                taken[t.key].setdefault(configs[t.key], []).append(mean)
        for key, by_config in taken.items() if number >= SPARED else ():
            for config, seconds in by_config.items():
                samples[key].setdefault(config, []).append(min(seconds))
    return samples


def _calls(model: TunedModel) -> int:
    """Number of calls of a network in a round."""
    once = sum(seconds for _, seconds in model.profile(calls=_CALLS))
    return min(max(_CALLS, int(_VISIT / max(once, 1e-9))), _MOST_CALLS)


def _record(t: Compared, samples: dict[Config, list[float]], target: Target) -> None:
    """Store the times of a task's candidates, the chosen one first, without wrong ones."""
    left, winner = dict(samples), None
    while left:
        winner = chosen(t.session, left)
        if winner in t.session.verified or (failure := t.session.verify(winner)) is None:
            break
        t.session.reject(winner, failure)
        del left[winner]
    costs = expected(left)
    order = sorted(costs, key=lambda config: (config != winner, costs[config]))
    measured = [
        Measurement(
            config=config,
            seconds=(costs[config],),
            failure=None,
            build_seconds=0.0,
            run_seconds=sum(samples[config]),
            cache=NETWORK,
            threads=target.threads,
            started=time.time(),
        )
        for config in order
    ]
    t.session.record_finals(measured)
