"""From nothing to a policy, in minutes, in a few rounds of three steps.

    measure   random schedules, those that the model so far thinks fast, and the policy's
    show      episodes that evolution finds good on the model, which learned from all that
    learn     on the model, which answers thousands of times a second, from its own episodes and
              from those that are shown

So what the model wrongly thinks fast is measured in the next round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loopwright.costmodel.model import ModelError, check_seed
from loopwright.dsl.errors import ConfigError
from loopwright.dsl.words import brief
from loopwright.explore.budget import check_minutes
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.evolution import Episode, Evolution
from loopwright.explore.scheduling.loops import Problem, State, check_problems
from loopwright.explore.scheduling.nest_model import Modelled, walk
from loopwright.explore.scheduling.policy import Policy
from loopwright.packages import optional

if TYPE_CHECKING:
    from loopwright.explore.scheduling.training import Point

METHODS = ("dqn", "ppo")
_ROUNDS = (0.6, 0.4)
"""Shares of the time that the rounds take."""
_MEASURE, _SHOW = 0.4, 0.1
"""Shares of a round that the first two steps take; learning takes the rest."""
_DRAWN, _THOUGHT_FAST, _WALKS = (6, 2), 6, 3
"""Schedules of a workload that are measured at a time, drawn in the first round and later, and
thought fast; random episodes that they are drawn from."""
_SHOWN = 6
"""Episodes of a workload that are shown."""
_GROWN = 1.15
"""Times the measurements that a model has learned from, when it learns again."""


def measure(
    problems: Sequence[Problem],
    measured: Evaluator,
    model: Modelled,
    until: float,
    evolution: Evolution,
    rng: np.random.Generator,
    policies: Sequence[Policy] = (),
) -> None:
    """The first step, to a time of the monotonic clock: the model learns again and again."""
    enough, late = 0.0, False
    while not late:
        states: list[State] = []
        problem = problems[int(rng.integers(len(problems)))]
        met = [s for _ in range(_WALKS) for s in walk(problem, rng)]
        states += [met[n] for n in rng.permutation(len(met))[: _DRAWN[bool(policies)]]]
        states += [e[-1] for e in evolution.episodes(problem, _THOUGHT_FAST)]
        for policy in policies:
            states += policy.episode(problem)[-3:]
        states = list({state.key: state for state in states}.values())
        grow = model.learned >= enough
        model.learn(states, measured.speeds(states), grow)
        enough = _GROWN * model.learned if grow else enough
        late = time.monotonic() >= until
    model.learn((), ())


def show(
    problems: Sequence[Problem], evolution: Evolution, until: float, rng: np.random.Generator
) -> list[Episode]:
    """The second step, to a time of the monotonic clock: good episodes."""
    shown: list[Episode] = []
    while not shown or time.monotonic() < until:
        problem = problems[int(rng.integers(len(problems)))]
        shown += evolution.episodes(problem, _SHOWN)
    return shown


def train_policies(
    problems: Sequence[Problem],
    measured: Evaluator,
    minutes: float,
    methods: Sequence[str] = ("dqn",),
    seed: int = 0,
    on_point: Callable[[str, int], Callable[[Point], None]] | None = None,
) -> tuple[dict[str, Policy], Modelled]:
    """Policies for workloads like these, by methods that share the time, the measurements and
    what is shown, and the model of speeds that they learned on.

    Parameters
    ----------
    problems: the workloads, at least one.
    measured: tells true speeds.
    minutes: of wall time. A step that takes longer than its share takes that of later ones.
    methods: names of `METHODS`.
    seed: decides all that is drawn.
    on_point: of a method and the number of a round, what is told of every point of its curve.

    Raises `ConfigError` for other problems or methods, `TuningError` for minutes that cannot be,
    and `ModelError` for a seed that cannot be, or where torch is missing.
    """
    check_problems(problems)
    listed = isinstance(methods, Sequence) and not isinstance(methods, str) and methods
    if not listed or any(name not in METHODS for name in methods):
        raise ConfigError(
            f"methods = {brief(methods)}: give a list of some of {', '.join(METHODS)}"
        )
    check_minutes(minutes)
    check_seed(seed)
    clock = time.monotonic
    began = clock()
    optional("torch", "training a policy", ModelError)
    from loopwright.explore.scheduling.dqn import train_dqn
    from loopwright.explore.scheduling.ppo import train_ppo
    from loopwright.explore.scheduling.training import Course

    train: dict[str, Callable[..., Policy]] = {"dqn": train_dqn, "ppo": train_ppo}
    rng, model = np.random.default_rng(seed), Modelled(measured.peak, seed)
    evolution = Evolution(model, rng)
    policies: dict[str, Policy] = {}
    end = began
    for number, share in enumerate(_ROUNDS):
        begin, seconds = end, 60 * minutes * share
        end = begin + seconds
        if number and clock() >= end:
            continue
        until = begin + seconds * _MEASURE
        measure(problems, measured, model, until, evolution, rng, list(policies.values()))
        shown = show(problems, evolution, until + seconds * _SHOW, rng)
        for done, name in enumerate(methods):
            course = Course(
                (end - clock()) / (len(methods) - done),
                seed=seed + number,
                on_point=on_point(name, number) if on_point else None,
            )
            policies[name] = train[name](
                problems, model, course, base=policies.get(name), shown=shown
            )
    about: dict[str, Any] = {"minutes": minutes, "measured": measured.evaluated}
    for policy in policies.values():
        policy.about |= about
    return policies, model
