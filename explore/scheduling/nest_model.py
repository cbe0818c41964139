"""A model of the speed of schedules: boosted trees that correct the analytical estimate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import read_model, write_model
from loopwright.costmodel.models.gbt import booster_of_text, booster_to_text
from loopwright.dsl.words import brief
from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.estimate import features
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import Problem, State
from loopwright.packages import xgboost

KIND, VERSION = "schedule model", 1
_TREES = 300
_SHAPE = {
    "max_depth": 6,
    "eta": 0.06,
    "subsample": 0.8,
    "colsample_bynode": 0.4,
    "min_child_weight": 2.0,
    "verbosity": 1,
    "nthread": 1,
}


class Modelled(Evaluator):
    """Predicts speeds, thousands a second, from those that were measured.

    Without any it is the analytical estimate. Trees are grown on logarithms of the speed, as a
    share of the peak, over the estimate.
    """

    def __init__(self, peak: float, seed: int = 0) -> None:
        super().__init__(peak)
        self._seed = seed
        self._trees: Any = None
        self._inputs: list[np.ndarray[Any, np.dtype[np.float32]]] = []
        self._shares: list[float] = []

    def __repr__(self) -> str:
        return f"<Modelled: {'analytical alone' if self._trees is None else 'learned'}>"

    @property
    def learned(self) -> int:
        """Measurements that the trees were grown on."""
        return len(self._shares)

    def learn(self, states: Sequence[State], speeds: Sequence[float], grow: bool = True) -> None:
        """Add measurements in GFLOP/s; with `grow`, forget predictions and grow trees on all that
        is known. Schedules that failed are left out."""
        for state, speed in zip(states, speeds, strict=True):
            if speed > 0:
                self._inputs.append(features(state))
                self._shares.append(speed / self.peak)
        if not self._inputs or not grow:
            return
        self._known.clear()
        inputs = np.array(self._inputs)
        shares = np.log2(np.array(self._shares))
        data = xgboost.DMatrix(inputs, shares, base_margin=inputs[:, 0])
        self._trees = xgboost.train({**_SHAPE, "seed": self._seed}, data, _TREES)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees to a file, without the measurements. Raises `ModelError`."""
        if self._trees is None:
            raise ModelError("this model has not learned anything yet: let it learn before")
        content = {"version": VERSION, "peak": self.peak, "trees": booster_to_text(self._trees)}
        write_model(path, KIND, content)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Modelled:
        """Read what `save` wrote; `ModelError` for anything else."""
        _, content = read_model(path, KIND, "train_policies")
        try:
            if content["version"] != VERSION:
                raise ModelError(f"{path} is of another version: train the model again")
            model = Modelled(float(content["peak"]))
            model._trees = booster_of_text(content, 1)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path} holds no model of schedules ({brief(error)})") from error
        return model

    def _evaluate(self, states: Sequence[State]) -> list[float]:
        inputs = np.array([features(state) for state in states])
        shares = inputs[:, 0]
        if self._trees is not None:
            shares = self._trees.inplace_predict(inputs, base_margin=shares)
        return [float(x) for x in self.peak * np.minimum(2.0**shares, 1.0)]


def walk(problem: Problem, rng: np.random.Generator, steps: int = STEPS) -> list[State]:
    """The states of a random episode, the first one included."""
    states = [State.first(problem)]
    for _ in range(steps):
        after = [s for s in states[-1].successors if s is not None]
        states.append(after[int(rng.integers(len(after)))])
    return states
