"""Proximal policy optimization of LoopTune's policy, in torch."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from loopwright.costmodel.models.torch_threads import one_thread
from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import ACTIONS, Problem, State
from loopwright.explore.scheduling.policy import Policy, inputs
from loopwright.explore.scheduling.training import (
    Course,
    Episodes,
    as_policy,
    descend,
    masked,
    network,
    slow_down,
)


@dataclass(frozen=True)
class Settings:
    """Numbers of the method.

    Attributes
    ----------
    episodes: that run side by side, between two improvements of the policy.
    epochs, batch: passes over what they saw, and transitions of an update.
    clip: how far the probability of an action may move in an improvement.
    advantage: λ of the estimate of advantages (Schulman et al. 2016).
    entropy: weights of the entropy in the loss, at the beginning and at the end.
    value: weight of the error of values.
    rate: of Adam.
    imitated: updates that imitate what is shown, before all others.
    """

    episodes: int = 64
    epochs: int = 4
    batch: int = 160
    clip: float = 0.2
    advantage: float = 0.95
    entropy: tuple[float, float] = (0.02, 0.002)
    value: float = 0.5
    rate: float = 5e-4
    imitated: int = 1000


@one_thread()
def train_ppo(
    problems: Sequence[Problem],
    evaluator: Evaluator,
    course: Course,
    settings: Settings = Settings(),
    base: Policy | None = None,
    shown: Sequence[Sequence[State]] = (),
) -> Policy:
    """A policy by PPO with clipped ratios (Schulman et al. 2017). It goes on from a base. Good
    episodes that were `shown` are imitated before (behaviour cloning)."""
    rng, rounds = np.random.default_rng(course.seed), 0
    made = network(len(ACTIONS) + 1, course.seed, base)  # the last output is the value
    optimizer = torch.optim.Adam(made.parameters(), settings.rate, fused=True)
    if shown:
        until = math.inf if course.rounds else course.began + course.seconds / 2
        _imitate(made, optimizer, shown, settings, rng, until)
    episodes, (high, low) = Episodes(problems, evaluator, settings.episodes, rng), settings.entropy
    for share in course.shares(episodes):
        data = _collected(episodes, made, settings, rng)
        slow_down(optimizer, settings.rate, share)
        _improve(made, optimizer, data, settings, high + (low - high) * share, rng)
        rounds += 1
    about = {"method": "ppo", "rounds": rounds, "seed": course.seed}
    return as_policy(made, about | {"settings": asdict(settings)})


def _imitate(
    made: torch.nn.Sequential,
    optimizer: torch.optim.Optimizer,
    shown: Sequence[Sequence[State]],
    settings: Settings,
    rng: np.random.Generator,
    until: float,
) -> None:
    """Make the actions of episodes likely, to a time of the monotonic clock at most."""
    pairs = [(n, a, b) for e in shown for n, (a, b) in enumerate(itertools.pairwise(e))]
    x = torch.from_numpy(inputs([a for _, a, _ in pairs], [STEPS - n for n, _, _ in pairs]))
    legal = torch.from_numpy(np.array([a.mask for _, a, _ in pairs], np.float32))
    actions = torch.tensor([a.action_to(b) for _, a, b in pairs])
    for _ in range(settings.imitated):
        if time.monotonic() >= until:
            return
        few = torch.from_numpy(rng.integers(len(pairs), size=settings.batch))
        scores = masked(made(x[few])[:, :-1], legal[few])
        loss = torch.nn.functional.cross_entropy(scores, actions[few])
        descend(optimizer, loss)


def _collected(
    episodes: Episodes, made: torch.nn.Sequential, settings: Settings, rng: np.random.Generator
) -> dict[str, torch.Tensor]:
    """A round of episodes: what was seen and done, advantages, and returns."""
    episodes.begin()
    columns: dict[str, list[np.ndarray]] = {}
    while episodes.left:
        x, legal = episodes.read()
        with torch.no_grad():
            out = made(torch.from_numpy(x))
        logs = torch.log_softmax(masked(out[:, :-1], torch.from_numpy(legal)), dim=1).numpy()
        noise = rng.gumbel(size=logs.shape)
        actions = (logs + noise).argmax(axis=1)
        row = {"x": x, "legal": legal, "action": actions, "value": out[:, -1].numpy()}
        row["log"] = logs[np.arange(len(x)), actions]
        row["reward"] = episodes.step(actions.tolist())
        for name, values in row.items():
            columns.setdefault(name, []).append(values)
    advantage = np.zeros_like(columns["value"][0])
    advantages: list[np.ndarray] = []
    for n in reversed(range(STEPS)):
        later = columns["value"][n + 1] if n + 1 < STEPS else 0.0
        error = columns["reward"][n] + later - columns["value"][n]
        advantage = error + settings.advantage * advantage
        advantages.insert(0, advantage)
    columns["advantage"] = advantages
    columns["return"] = [a + v for a, v in zip(advantages, columns["value"], strict=True)]
    return {name: torch.from_numpy(np.concatenate(rows)) for name, rows in columns.items()}


def _improve(
    made: torch.nn.Sequential,
    optimizer: torch.optim.Optimizer,
    data: dict[str, torch.Tensor],
    settings: Settings,
    entropy: float,
    rng: np.random.Generator,
) -> None:
    count, gains = len(data["action"]), data["advantage"]
    gains = (gains - gains.mean()) / (gains.std() + 1e-6)
    for _ in range(settings.epochs):
        order = torch.from_numpy(rng.permutation(count))
        for few in order.split(settings.batch):
            out = made(data["x"][few])
            logs = torch.log_softmax(masked(out[:, :-1], data["legal"][few]), dim=1)
            own = logs.gather(1, data["action"][few, None])[:, 0]
            ratio = torch.exp(own - data["log"][few])
            near = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            gain = torch.minimum(ratio * gains[few], near * gains[few]).mean()
            spread = -(logs.exp() * logs).sum(dim=1).mean()
            error = ((out[:, -1] - data["return"][few]) ** 2).mean()
            loss = settings.value * error - gain - entropy * spread
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(made.parameters(), 0.5)
            optimizer.step()
