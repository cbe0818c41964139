"""The candidates of a task that are worth a look inside of the network."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.codegen.build import program
from loopwright.codegen.compile import signature
from loopwright.explore.session import Session
from loopwright.explore.significance import SIGNIFICANT, fixed_order, slower
from loopwright.graph.tasks import Task
from loopwright.graph.tuning.thread_locality import in_order
from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.record import NETWORK

VARIANTS = 8
"""Candidates of a task that are compared step by step."""
_SLOWER = 1.6
"""Ratio to the best one, up to which others are compared: those of other rewrites, and those whose
threads write contiguous parts."""
_SURE = 3
"""Number of these that are compared however little time there is."""
_SPARSE = 4
"""Programs that leave out zeros of their data, as many as are compared beside these."""
_LOOKED_AT = 64
"""Candidates among which those are looked for whose threads write contiguous parts."""

_DISTURBED = 3.0
"""A sample counts for no more than so many times what the fastest of the round took, or the median
of all rounds."""

Samples = dict[str, dict[Config, list[float]]]
"""Seconds in the network by the workload's key and config, one number for each round."""


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


def candidates(session: Session, sparse: bool) -> tuple[Config, ...]:
    """Configs to compare inside of a network, in the order of their claim: the best of the search,
    the default, the winner in an earlier network, the best whose threads write contiguous parts,
    and that of every other rewrite that comes near; then the next best. With `sparse`, programs
    that skip zeros are among them: their time alone, on other data, says nothing."""
    first: dict[Derivation, Config] = {}
    for config in _near(session):
        first.setdefault(config.sketch.derivation, config)
    ranked = session.ranked()
    sure = [c for c in (session.space.default, session.best_known(NETWORK)) if c in ranked]
    chosen = [*ranked[:1], *sure, *thread_local(session, 1), *first.values(), *ranked]
    usual = list(dict.fromkeys(chosen))[:VARIANTS]
    return (*usual[:_SURE], *(skipping_zeros(session) if sparse else ()), *usual[_SURE:])


def skipping_zeros(session: Session) -> list[Config]:
    """Configs that skip zeros."""
    return [s.at(s.default) for s in session.space.data_dependent[:_SPARSE]]


def expected(samples: Mapping[Config, Sequence[float]]) -> dict[Config, float]:
    """Expected seconds of a step by each config: the mean over the rounds, disturbed samples cut
    off. Programs alone are judged by typical samples. Here the mean is better: a machine may have
    several states, as cores of a virtual one share a cache in one minute and not in the next."""
    if not samples:
        return {}
    rounds = np.array(list(samples.values()))
    usual = np.minimum(rounds.min(axis=0), np.median(rounds, axis=1, keepdims=True))
    means = np.minimum(rounds, _DISTURBED * usual).mean(axis=1)
    return dict(zip(samples, means.tolist(), strict=True))


def fastest(samples: Mapping[Config, Sequence[float]]) -> Config:
    """The config that is expected to take the least."""
    costs = expected(samples)
    return min(costs, key=costs.__getitem__)


def chosen(session: Session, samples: Mapping[Config, Sequence[float]]) -> Config:
    """The config to use: of those that a test cannot tell from the fastest, the first in the fixed
    order (see `finalists.fixed_order`)."""
    first = fastest(samples)
    tied = [c for c in samples if c == first or slower(samples[c], samples[first]) >= SIGNIFICANT]
    sizes = {c: weights(session, c) for c in tied}
    return min(tied, key=fixed_order(session.space, sizes))


def weights(session: Session, config: Config) -> int:
    """Bytes of the constants as a step reads them."""
    sig = signature(program(session.workload, config, session.device.target), "step")
    constants = {t.name for t in session.workload.constants}
    read = (p for p in sig.plain_inputs if p.name in constants)
    return sum(p.nbytes for p in (*sig.prepared, *read))


def thread_local(session: Session, most: int) -> list[Config]:
    """The best configs whose threads write contiguous parts, of those that come near."""
    found = (c for c in _near(session)[:_LOOKED_AT] if is_thread_local(session, c))
    return list(itertools.islice(found, most))


def is_thread_local(session: Session, config: Config) -> bool:
    """Return whether the threads of a config write contiguous parts of its results."""
    target = session.device.target
    return in_order(program(session.workload, config, target).tree, target.threads)


def of_each_algorithm(session: Session) -> list[Config]:
    """The best config of every algorithm, alone."""
    first: dict[Derivation, Config] = {}
    for config in session.ranked():
        first.setdefault(config.sketch.derivation.algorithm, config)
    return list(first.values())


def _near(session: Session) -> Sequence[Config]:
    """The configs that come near the best one, the best first."""
    ranked = list(dict.fromkeys(session.ranked()))
    return [c for c in ranked if session.cost(c) <= _SLOWER * session.cost(ranked[0])]
