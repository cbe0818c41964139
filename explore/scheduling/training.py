"""The common part of DQN and PPO: episodes side by side, the network, and the learning curve."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import ACTIONS, Floats, Problem, State
from loopwright.explore.scheduling.policy import INPUTS, Policy, inputs

WIDTHS = (128, 128)
"""Units of the hidden layers."""


@dataclass(frozen=True)
class Point:
    """A point of a learning curve: `seconds` and `steps` since it began, the mean sum of rewards
    of the latest episodes, and the mean `share` of the peak at their ends."""

    seconds: float
    steps: int
    gained: float
    share: float


OnPoint = Callable[[Point], None]


@dataclass(frozen=True)
class Course:
    """The length of a training: `seconds`, or `rounds` of episodes, by which the same seed learns
    the same. `on_point` is told of every round."""

    seconds: float = 0.0
    rounds: int | None = None
    seed: int = 0
    on_point: OnPoint | None = None
    began: float = field(default_factory=lambda: time.monotonic())

    def shares(self, episodes: Episodes) -> Iterator[float]:
        """The share of the course that is over, before every round, of which there is one."""
        done = 0
        while True:
            spent = time.monotonic() - self.began
            share = done / self.rounds if self.rounds else spent / max(self.seconds, 1e-9)
            if share >= 1 and done:
                return
            yield share
            done += 1
            if self.on_point is not None:
                gained, speeds = np.mean(episodes.ended, axis=0)
                steps = done * len(episodes.states) * STEPS
                self.on_point(Point(spent, steps, float(gained), float(speeds)))


class Episodes:
    """Episodes of random workloads side by side, so that networks and evaluators work on batches.

    All are at the same step. After ten, `ended` holds what the last ones gained.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        evaluator: Evaluator,
        count: int,
        rng: np.random.Generator,
    ) -> None:
        self._problems, self._evaluator, self._count, self._rng = problems, evaluator, count, rng
        self.ended: list[tuple[float, float]] = []
        self.begin()

    def begin(self) -> None:
        """Draw workloads for new episodes."""
        chosen = self._rng.integers(len(self._problems), size=self._count)
        self.states = [State.first(self._problems[n]) for n in chosen]
        self.left = STEPS
        self._speeds = np.array(self._evaluator.speeds(self.states))
        self._first = self._speeds

    def read(self) -> tuple[Floats, Floats]:
        """The network's inputs, and which actions are legal, as 0 and 1."""
        x = inputs(self.states, [self.left] * self._count)
        return x, np.array([s.mask for s in self.states], np.float32)

    def step(self, actions: Sequence[int]) -> Floats:
        """Take legal actions; the rewards. After the last step call `begin`."""
        after = [s.successors[a] for s, a in zip(self.states, actions, strict=True)]
        self.states = [s for s in after if s is not None]
        speeds = np.array(self._evaluator.speeds(self.states))
        rewards = (speeds - self._speeds) / self._evaluator.peak
        self._speeds = speeds
        self.left -= 1
        if not self.left:
            peak = self._evaluator.peak
            gained = (speeds - self._first) / peak
            self.ended = list(zip(gained.tolist(), (speeds / peak).tolist(), strict=True))
        return np.asarray(rewards, np.float32)


def network(outputs: int, seed: int, base: Policy | None = None) -> torch.nn.Sequential:
    """A network with rectifiers between its layers, which begins as a base, if one is given."""
    sizes, layers = (INPUTS, *WIDTHS, outputs), []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for n, (a, b) in enumerate(itertools.pairwise(sizes)):
            layers += [torch.nn.Linear(a, b), *([torch.nn.ReLU()] if n < len(WIDTHS) else [])]
    made = torch.nn.Sequential(*layers)
    if base is not None:
        for layer, (weights, biases) in zip(made[::2], base.layers, strict=True):
            rows = len(biases)  # of a value beside the actions nothing is known
            layer.weight.data[:rows] = torch.from_numpy(weights.T.copy())
            layer.bias.data[:rows] = torch.from_numpy(biases.copy())
    return made


def slow_down(optimizer: torch.optim.Optimizer, rate: float, share: float) -> None:
    """Let the rate fall with the share of the course that is over."""
    for group in optimizer.param_groups:
        group["lr"] = rate * max(0.05, 1 - share)


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step of an optimizer."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def as_policy(made: torch.nn.Sequential, about: dict[str, Any]) -> Policy:
    """The policy of a network, whose first outputs are of the actions."""
    layers = [
        (layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy())
        for layer in made[::2]
    ]
    weights, biases = layers[-1]
    layers[-1] = weights[:, : len(ACTIONS)].copy(), biases[: len(ACTIONS)].copy()
    return Policy(layers, about)


def masked(scores: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
    """Scores of actions, far below all others for those that are not legal."""
    return scores.masked_fill(legal == 0, -1e9)
