"""From nothing to a policy, in minutes: measure, model, learn on the model, measure again.

    1  measure random schedules, and those that the model so far thinks fast
    2  learn on the model, which answers thousands of times a second
    3  measure what the policy makes of other workloads, and correct the model
    4  go on learning on the corrected model
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.explore.scheduling.dqn import train_dqn
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import Problem, State
from loopwright.explore.scheduling.nest_model import Modelled, to_measure
from loopwright.explore.scheduling.policy import Policy
from loopwright.explore.scheduling.ppo import train_ppo
from loopwright.explore.scheduling.training import OnPoint

METHODS: dict[str, Callable[..., Policy]] = {"dqn": train_dqn, "ppo": train_ppo}
_EACH = 16
"""Schedules of a workload that are measured at a time."""


@dataclass(frozen=True)
class Shares:
    """Shares of the time that the four steps take."""

    measure: float = 0.3
    learn: float = 0.4
    again: float = 0.1
    more: float = 0.2


def measure_random(
    problems: Sequence[Problem],
    measured: Evaluator,
    model: Modelled,
    seconds: float,
    rng: np.random.Generator,
) -> None:
    """Step 1, for so many seconds: the model learns after every workload."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        problem = problems[int(rng.integers(len(problems)))]
        states = to_measure(problem, model, rng, _EACH)
        model.learn(states, measured.speeds(states))


def measure_policies(
    policies: Sequence[Policy],
    problems: Sequence[Problem],
    measured: Evaluator,
    model: Modelled,
    seconds: float,
    rng: np.random.Generator,
) -> None:
    """Step 3, for so many seconds: all that policies meet on their way, and near its end."""
    until = time.monotonic() + seconds
    states, speeds = [], []
    while time.monotonic() < until:
        problem = problems[int(rng.integers(len(problems)))]
        met = [s for policy in policies for s in policy.episode(problem)]
        near = [s for m in met[-2:] for s in m.successors if s is not None]
        new = _different([*met, *(near[n] for n in rng.permutation(len(near))[:4])])
        states += new
        speeds += measured.speeds(new)
    model.learn(states, speeds)


def train_policy(
    problems: Sequence[Problem],
    measured: Evaluator,
    minutes: float,
    method: str = "dqn",
    seed: int = 0,
    model: Modelled | None = None,
    on_point: OnPoint | None = None,
    shares: Shares = Shares(),
) -> Policy:
    """A policy for workloads like these, by a method of `METHODS`, in so many minutes.

    `measured` tells true speeds. A model that was given goes on learning, and lets the first step
    be left out where it has learned something already.
    """
    rng, seconds, train = np.random.default_rng(seed), 60 * minutes, METHODS[method]
    model = Modelled(measured.peak, seed) if model is None else model
    began, first = time.monotonic(), seconds * shares.measure
    if not model.learned:
        measure_random(problems, measured, model, first, rng)
    else:
        seconds /= 1 - shares.measure
    policy = train(problems, model, seconds * shares.learn, seed, on_point=on_point)
    measure_policies([policy], problems, measured, model, seconds * shares.again, rng)
    more = train(
        problems, model, seconds * shares.more, seed + 1, base=policy, on_point=on_point
    )
    more.about |= {
        "seconds": round(time.monotonic() - began, 1),
        "measured": measured.evaluated,
        "first": policy.about,
    }
    return more


def _different(states: Sequence[State]) -> list[State]:
    return list({state.key: state for state in states}.values())
