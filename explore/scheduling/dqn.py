"""Deep Q-learning of LoopTune's policy, in torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from loopwright.costmodel.models.torch_threads import one_thread
from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import ACTIONS, Floats, Problem
from loopwright.explore.scheduling.policy import Policy
from loopwright.explore.scheduling.replay import Replay
from loopwright.explore.scheduling.training import (
    Episodes,
    OnPoint,
    Point,
    as_policy,
    masked,
    network,
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
    """

    episodes: int = 32
    batch: int = 128
    updates: int = 24
    returns: int = 3
    discount: float = 1.0
    rate: float = 5e-4
    explore: tuple[float, float] = (1.0, 0.05)
    explored: float = 0.6
    target: int = 200
    capacity: int = 40_000


@one_thread()
def train_dqn(
    problems: Sequence[Problem],
    evaluator: Evaluator,
    seconds: float,
    seed: int = 0,
    settings: Settings = Settings(),
    base: Policy | None = None,
    on_point: OnPoint | None = None,
    rounds: int | None = None,
) -> Policy:
    """A policy by double deep Q-learning with prioritized replay and n-step returns (van Hasselt
    et al. 2016, Schaul et al. 2016), for so many seconds, or rounds of episodes where these are
    given. It goes on from a base."""
    rng, began = np.random.default_rng(seed), time.monotonic()
    online = network(len(ACTIONS), seed, base)
    target = network(len(ACTIONS), seed, base)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), settings.rate)
    memory = Replay(settings.capacity)
    episodes = Episodes(problems, evaluator, settings.episodes, rng)
    updates, done = 0, 0
    while True:
        spent = time.monotonic() - began
        share = done / rounds if rounds else spent / seconds
        if share >= 1:
            break
        high, low = settings.explore
        explore = max(low, high + (low - high) * share / settings.explored)
        memory.add(_collected(episodes, online, explore, settings, rng))
        done += 1
        if on_point is not None:
            gained, speeds = np.mean(episodes.ended, axis=0)
            steps = done * settings.episodes * STEPS
            on_point(Point(spent, steps, float(gained), float(speeds)))
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * max(0.05, 1 - share)
        for _ in range(settings.updates):
            _update(online, target, optimizer, memory, settings, rng)
            updates += 1
            if updates % settings.target == 0:
                target.load_state_dict(online.state_dict())
    about = {"method": "dqn", "episodes": done * settings.episodes, "seed": seed}
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
        chosen.append(actions)
        rewards.append(episodes.step(actions.tolist()))
    empty = np.zeros_like(seen[0][0]), np.ones_like(seen[0][1])
    columns: dict[str, list[Floats]] = {}
    for n in range(STEPS):
        until = min(n + settings.returns, STEPS)
        total = sum(settings.discount ** (t - n) * rewards[t] for t in range(n, until))
        after = seen[until] if until < STEPS else empty
        left = np.full(len(total), settings.discount ** (until - n) * (until < STEPS), np.float32)
        row = {"x": seen[n][0], "action": chosen[n].astype(np.int64), "reward": total}
        row |= {"after": after[0], "legal": after[1], "left": left}
        for name, values in row.items():
            columns.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in columns.items()}


def _update(
    online: torch.nn.Sequential,
    target: torch.nn.Sequential,
    optimizer: torch.optim.Optimizer,
    memory: Replay,
    settings: Settings,
    rng: np.random.Generator,
) -> None:
    rows, places, weights = memory.draw(settings.batch, rng)
    data = {name: torch.from_numpy(values) for name, values in rows.items()}
    with torch.no_grad():
        best = masked(online(data["after"]), data["legal"]).argmax(dim=1, keepdim=True)
        later = target(data["after"]).gather(1, best)[:, 0]
        wanted = data["reward"] + data["left"] * later
    found = online(data["x"]).gather(1, data["action"][:, None])[:, 0]
    errors = found - wanted
    losses = torch.nn.functional.smooth_l1_loss(found, wanted, reduction="none", beta=0.1)
    loss = (torch.from_numpy(weights) * losses).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(online.parameters(), 1.0)
    optimizer.step()
    memory.update(places, errors.detach().numpy())
