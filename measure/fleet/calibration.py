"""Differences of machines of one kind, by candidates that all of them measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.schedule.sketch.sketch import Config

BOUND = 0.1
"""Share by which a machine may be slower or faster than its like, or than it was: beyond it, it
is set aside. Disturbances of a busy machine stay below that, lost clocks and other memory do not.
"""
COMMON = 3
"""Candidates that every machine measures at the start."""


@dataclass(frozen=True)
class Anchor:
    """A candidate that a machine measures again and again, and its first cost in seconds."""

    workload: str
    config: Config
    cost: float

    @staticmethod
    def of(workload: str, config: Mapping[str, Any], cost: float) -> Anchor:
        """An anchor of a config as JSON."""
        return Anchor(workload, Config.from_json(config), cost)

    def to_json(self) -> dict[str, Any]:
        return {"workload": self.workload, "config": self.config.to_json(), "cost": self.cost}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Anchor:
        return Anchor(data["workload"], Config.from_json(data["config"]), data["cost"])


def apart(cost: float, other: float) -> bool:
    """Return whether two costs differ by more than `BOUND`, or one of them failed."""
    if not (math.isfinite(cost) and math.isfinite(other)):
        return True
    return abs(math.log(cost / other)) > math.log1p(BOUND)


def factors(costs: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Factor by which each machine is slower than the typical one, the median, by the costs of the
    same candidates; infinite for one where all fail that work elsewhere. Of two machines in the
    middle the faster is typical: what disturbs a machine makes it slower."""
    logs: dict[str, list[float]] = {name: [] for name in costs}
    failed = dict.fromkeys(costs, 0)
    for column in zip(*costs.values(), strict=True):
        worked = [cost for cost in column if math.isfinite(cost)]
        if not worked:
            continue
        typical = statistics.median_low(worked)
        for name, cost in zip(costs, column, strict=True):
            if math.isfinite(cost):
                logs[name].append(math.log(cost / typical))
            else:
                failed[name] += 1
    found = {}
    for name, values in logs.items():
        found[name] = math.exp(statistics.median(values)) if values else 1.0
        if failed[name] and not values:
            found[name] = math.inf
    return found


def in_words(factor: float) -> str:
    """A factor for people: "12 % slower"."""
    if math.isinf(factor):
        return "unable to run what others run"
    share = f"{abs(factor - 1) * 100:.2g} %" if factor >= 1 else f"{(1 / factor - 1) * 100:.2g} %"
    return f"{share} {'slower' if factor >= 1 else 'faster'}"
