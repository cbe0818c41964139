"""Deep Q-learning of LoopTune's policy, in torch, with prioritized replay (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from loopwright.costmodel.models.torch_threads import one_thread
from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import ACTIONS, Floats, Problem, State
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
    episodes: that run side by side.
    batch, updates: transitions of an update, and updates after every round of episodes.
    returns: rewards that are summed before a value is asked (n-step returns).
    discount: of a later reward.
    rate: of Adam.
    explore: shares of random actions at the beginning and at the end.
    explored: share of the time after which the latter holds.
    target: updates after which the target network is a copy again.
    capacity: of the replay memory, in transitions.
    margin, imitate: by how much the value of an action that was shown is to be above the others,
        and the weight of what it falls short (Hester et al. 2018).
    shown: share of each batch that was shown, where anything was.
    """

    episodes: int = 32
    batch: int = 128
    updates: int = 16
    returns: int = 3
    discount: float = 1.0
    rate: float = 5e-4
    explore: tuple[float, float] = (0.6, 0.03)
    explored: float = 0.6
    target: int = 200
    capacity: int = 40_000
    margin: float = 0.03
    imitate: float = 0.3
    shown: float = 0.25


@one_thread()
def train_dqn(
    problems: Sequence[Problem],
    evaluator: Evaluator,
    course: Course,
    settings: Settings = Settings(),
    base: Policy | None = None,
    shown: Sequence[Sequence[State]] = (),
) -> Policy:
    """A policy by double deep Q-learning with prioritized replay and n-step returns (van Hasselt
    et al. 2016, Schaul et al. 2016). It goes on from a base, and explores half as much then. Good
    episodes that were `shown` are in every batch, and their actions are imitated."""
    rng = np.random.default_rng(course.seed)
    online, target = (network(len(ACTIONS), course.seed, base) for _ in range(2))
    optimizer = torch.optim.Adam(online.parameters(), settings.rate, fused=True)
    memory, examples = Replay(settings.capacity), None
    if shown:
        rows = _demonstrated(shown, evaluator, settings)
        examples = Replay(len(rows["left"]))
        examples.add(rows)
    episodes = Episodes(problems, evaluator, settings.episodes, rng)
    updates, (high, low) = 0, settings.explore
    high = high if base is None else high / 2
    for share in course.shares(episodes):
        explore = max(low, high + (low - high) * share / settings.explored)
        memory.add(_collected(episodes, online, explore, settings, rng))
        slow_down(optimizer, settings.rate, share)
        for _ in range(settings.updates):
            _update(online, target, optimizer, (memory, examples), settings, rng)
            updates += 1
            if updates % settings.target == 0:
                target.load_state_dict(online.state_dict())
    about = {"method": "dqn", "updates": updates, "seed": course.seed}
    return as_policy(online, about | {"settings": asdict(settings)})


def _collected(
    episodes: Episodes,
    online: torch.nn.Sequential,
    explore: float,
    settings: Settings,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """The transitions of a round of episodes, rewards summed over some steps."""
    episodes.begin()
    seen, chosen, rewards = [], [], []
    while episodes.left:
        x, legal = episodes.read()
        seen.append((x, legal))
        with torch.no_grad():
            values = masked(online(torch.from_numpy(x)), torch.from_numpy(legal)).numpy()
        noise = np.where(legal > 0, rng.random(legal.shape), -1)
        at_random = rng.random(len(x)) < explore
        actions = np.where(at_random, noise.argmax(axis=1), values.argmax(axis=1))
        chosen.append(actions.astype(np.int64))
        rewards.append(episodes.step(actions.tolist()))
    return _rows(seen, chosen, rewards, settings, 0.0)


def _rows(
    seen: Sequence[tuple[Floats, Floats]],
    actions: Sequence[Integers],
    rewards: Sequence[Floats],
    settings: Settings,
    shown: float,
) -> dict[str, Floats]:
    """The transitions of whole episodes side by side, rewards summed over some steps; `shown` is
    1 where they are to be imitated."""
    empty = np.zeros_like(seen[0][0]), np.ones_like(seen[0][1])
    columns: dict[str, list[Floats]] = {}
    for n in range(STEPS):
        until = min(n + settings.returns, STEPS)
        powers = settings.discount ** np.arange(until - n + 1)
        total = (powers[:-1, None] * np.array(rewards[n:until])).sum(axis=0).astype(np.float32)
        after = seen[until] if until < STEPS else empty
        left = np.full(len(total), powers[-1] * (until < STEPS), np.float32)
        row = {"x": seen[n][0], "action": actions[n], "reward": total, "left": left}
        row |= {"own": seen[n][1], "after": after[0], "legal": after[1]}
        row["shown"] = np.full(len(total), shown, np.float32)
        for name, values in row.items():
            columns.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in columns.items()}


def _demonstrated(
    episodes: Sequence[Sequence[State]], evaluator: Evaluator, settings: Settings
) -> dict[str, Floats]:
    """The transitions of episodes that others have found."""
    steps = list(zip(*episodes, strict=True))
    seen, actions, rewards, speeds = [], [], [], [evaluator.speeds(s) for s in steps]
    for n, states in enumerate(steps[:-1]):
        legal = np.array([s.mask for s in states], np.float32)
        seen.append((inputs(states, [STEPS - n] * len(states)), legal))
        rewards.append((np.array(speeds[n + 1]) - speeds[n]).astype(np.float32) / evaluator.peak)
        taken = [s.action_to(after) for s, after in zip(states, steps[n + 1], strict=True)]
        actions.append(np.array(taken, np.int64))
    return _rows(seen, actions, rewards, settings, 1.0)


def _update(
    online: torch.nn.Sequential,
    target: torch.nn.Sequential,
    optimizer: torch.optim.Optimizer,
    memories: tuple[Replay, Replay | None],
    settings: Settings,
    rng: np.random.Generator,
) -> None:
    memory, examples = memories
    few = 0 if examples is None else int(settings.batch * settings.shown)
    drawn = [(memory, *memory.draw(settings.batch - few, rng))]
    if examples is not None:
        drawn.append((examples, *examples.draw(few, rng)))
    names = drawn[0][1]
    data = {n: torch.from_numpy(np.concatenate([d[1][n] for d in drawn])) for n in names}
    weights = np.concatenate([d[3] for d in drawn])
    with torch.no_grad():
        best = masked(online(data["after"]), data["legal"]).argmax(dim=1, keepdim=True)
        later = target(data["after"]).gather(1, best)[:, 0]
        wanted = data["reward"] + data["left"] * later
    values = online(data["x"])
    found = values.gather(1, data["action"][:, None])[:, 0]
    errors = found - wanted
    losses = torch.nn.functional.smooth_l1_loss(found, wanted, reduction="none", beta=0.1)
    others = values + settings.margin
    others.scatter_(1, data["action"][:, None], found[:, None])
    short = masked(others, data["own"]).max(dim=1).values - found
    losses = losses + settings.imitate * data["shown"] * short
    loss = (torch.from_numpy(weights) * losses).mean()
    descend(optimizer, loss)
    start = 0
    for source, _, places, _ in drawn:
        source.update(places, errors.detach().numpy()[start : start + len(places)])
        start += len(places)


Integers = np.ndarray[Any, np.dtype[np.int64]]


class Replay:
    """The latest transitions, as columns of arrays.

    A transition is drawn in proportion to its priority, |error|^alpha; its weight,
    (1 / (n · probability))^beta over the largest one, makes up for that.
    """

    def __init__(self, capacity: int, alpha: float = 0.6, beta: float = 0.4) -> None:
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self._columns: dict[str, Floats] = {}
        self._priorities = np.zeros(capacity, np.float64)
        self._next, self.size = 0, 0

    def add(self, rows: Mapping[str, Floats]) -> None:
        """Add transitions, in the place of the oldest; new ones have the highest priority."""
        count = len(next(iter(rows.values())))
        places = (self._next + np.arange(count)) % self.capacity
        for name, values in rows.items():
            if name not in self._columns:
                shape = (self.capacity, *values.shape[1:])
                self._columns[name] = np.zeros(shape, values.dtype)
            self._columns[name][places] = values
        self._priorities[places] = self._priorities.max() or 1.0
        self._next = int(places[-1] + 1) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[dict[str, Floats], Integers, Floats]:
        """Transitions, their places, and their weights."""
        sums = np.cumsum(self._priorities[: self.size])
        places = np.searchsorted(sums, rng.random(count) * sums[-1])
        places = np.minimum(places, self.size - 1)
        probabilities = self._priorities[places] / sums[-1]
        weights = (self.size * probabilities) ** -self.beta
        rows = {name: values[places] for name, values in self._columns.items()}
        return rows, places, (weights / weights.max()).astype(np.float32)

    def update(self, places: Integers, errors: Floats) -> None:
        """Set priorities by the errors that were found."""
        self._priorities[places] = (np.abs(errors) + 1e-3) ** self.alpha
