"""The contract of a cost model, the paper's f̂, and the one that is used before there is data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.dsl.errors import LoopwrightError

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Integers = np.ndarray[Any, np.dtype[np.integer[Any]]]


class ModelError(LoopwrightError):
    """Data that a cost model cannot learn from, or a model file that is damaged."""


def check_seed(seed: int) -> None:
    """Raise `ModelError` for a seed that decides nothing."""
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ModelError(f"seed = {seed!r}: give an integer of at least 0")


class CostModel(ABC):
    """Predicts which programs are fast, from features of their loop trees.

    A model is made empty. `fit` replaces whatever it knew by what the given measurements say;
    search calls it after every batch, with all measurements so far. `predict` may be called at
    any time, in between as often as the search likes: as long as there is too little to learn
    from, `ready` is false and scores are random. `save` keeps what was learned; the class method
    `load` of the same class brings it back, with equal predictions.

    Attributes
    ----------
    reads: the name of the representation that makes its features, see
        `representation.REPRESENTATIONS`; a search uses it unless it is told another.
    uncertain: whether it has an `uncertainty`.
    """

    reads: str = "relation"
    uncertain: bool = False

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Return whether predictions come from data."""

    @abstractmethod
    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        """Learn.

        Parameters
        ----------
        features: shape (n, f), as a `Representation` makes them.
        costs: shape (n,), seconds; inf for a program that failed.
        groups: shape (n,); costs are compared within a group only: one workload on one machine.

        Raises `ModelError` where shapes disagree, or a cost is neither positive nor inf.
        """

    @abstractmethod
    def predict(self, features: Floats) -> Floats:
        """Scores of shape (n,), higher is better; they mean nothing across groups.

        Raises `ModelError` where the number of features is not that of `fit`.
        """

    def uncertainty(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the scores, each of shape (n,), in log₂ of the speed
        relative to the best of a group: 0 is as fast as the best program that was learned from.

        Raises `ModelError` from a model that is not `uncertain`, or not `ready`.
        """
        raise ModelError(f"a {type(self).__name__} cannot tell how uncertain its scores are")

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write what was learned to a file. Raises `ModelError` before there is any."""

    @classmethod
    @abstractmethod
    def load(cls, path: Path) -> CostModel:
        """Read what `save` wrote. Raises `ModelError` for anything else."""


class RandomModel(CostModel):
    """Knows nothing: scores are drawn anew at each call, in a sequence that the seed decides."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    @property
    def ready(self) -> bool:
        return False

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        check_data(features, costs, groups)

    def predict(self, features: Floats) -> Floats:
        return self._rng.random(len(features), np.float32)

    def save(self, path: Path) -> None:
        raise ModelError("a random model has learned nothing that could be saved")

    @classmethod
    def load(cls, path: Path) -> RandomModel:
        raise ModelError(f"{path} cannot hold a random model: make a RandomModel(seed)")


def check_data(features: Floats, costs: Floats, groups: Integers) -> None:
    """Raise `ModelError` unless these are measurements that `CostModel.fit` takes."""
    if features.ndim != 2 or costs.shape != groups.shape or costs.shape != features.shape[:1]:
        raise ModelError(
            f"features, costs and groups have shapes {features.shape}, {costs.shape} and "
            f"{groups.shape}; they must be (n, f), (n,) and (n,)"
        )
    if not (costs > 0).all():  # NaN is not positive either
        wrong = np.flatnonzero(~(costs > 0))[0]
        raise ModelError(
            f"cost {wrong} is {costs[wrong]}: give seconds, and inf for what failed, never 0"
        )
