"""Prioritized replay (Schaul et al. 2016): transitions, the surprising ones drawn more often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopwright.explore.scheduling.loops import Floats

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
