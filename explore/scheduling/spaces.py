"""Gymnasium's base class and spaces where it is installed, and the little of it that is needed
where it is not."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np


@dataclass(frozen=True)
class Discrete:
    """The integers from 0 to n - 1."""

    n: int

    def contains(self, x: object) -> bool:
        """Return whether `x` is one of them."""
        return isinstance(x, (int, np.integer)) and 0 <= int(x) < self.n


@dataclass(frozen=True)
class Box:
    """Arrays of float32, none below 0."""

    shape: tuple[int, ...]

    def contains(self, x: object) -> bool:
        """Return whether `x` is one of them."""
        if not isinstance(x, np.ndarray) or x.shape != self.shape:
            return False
        return x.dtype == np.float32 and bool((x >= 0).all())


class _Plain:
    """Part of `gymnasium.Env` that an environment inherits."""

    np_random: np.random.Generator = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Seed the generator, where a seed is given."""
        if seed is not None or "np_random" not in vars(self):
            self.np_random = np.random.default_rng(seed)


gymnasium: Any
try:
    gymnasium = importlib.import_module("gymnasium")
except ImportError:
    gymnasium = None

if TYPE_CHECKING or gymnasium is None:
    Environment = _Plain
else:
    Environment = gymnasium.Env


def discrete(n: int) -> Any:
    """A space of n actions."""
    return Discrete(n) if gymnasium is None else gymnasium.spaces.Discrete(n)


def box(shape: tuple[int, ...]) -> Any:
    """A space of arrays of float32 that are not negative."""
    if gymnasium is None:
        return Box(shape)
    return gymnasium.spaces.Box(0.0, np.inf, shape, np.float32)
