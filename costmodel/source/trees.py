"""Boosted trees over counts of symbols and auxiliary numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopwright.costmodel.model import Floats, Integers
from loopwright.costmodel.models.gbt import booster_of_text, booster_to_text
from loopwright.costmodel.source.batch import Batch

_ROUNDS = 200
_PATIENCE = 40  # trees without a lower loss on what is held out
_HELD_OUT = 0.2
_FEWEST = 100  # sources below which nothing is held out
_UNCHECKED = 60  # trees where nothing is held out
_SHAPE = {
    "objective": "multi:softprob",
    "max_depth": 4,
    "eta": 0.1,
    "subsample": 0.8,
    "colsample_bynode": 0.5,
    "min_child_weight": 0.5,
    "nthread": 1,
}


class TreeClassifier:
    """Multi-class boosted trees; whole groups held out say how many trees are best."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._booster: Any = None

    def fit(self, batch: Batch, classes: Integers, weights: Floats, groups: Integers) -> None:
        """Learn the classes of a batch."""
        x = self._read(batch)
        parameters = {
            **_SHAPE,
            "num_class": int(classes.max()) + 1,
            "seed": self._seed % (1 << 31),  # all that xgboost takes
        }
        rounds = _rounds(parameters, x, classes, weights, groups)
        self._booster = _trained(parameters, x, classes, weights, rounds)

    def scores(self, batch: Batch) -> Floats:
        """Share of belief in each class: (sources, classes)."""
        if not len(batch.auxiliary):
            return np.zeros((0, 0))
        scores: Floats = self._booster.inplace_predict(self._read(batch))
        return scores

    @staticmethod
    def _read(batch: Batch) -> Floats:
        return np.concatenate([batch.counts(), batch.auxiliary], axis=1).astype(np.float32)

    def content(self) -> dict[str, Any]:
        """What was learned, as JSON."""
        return {"trees": booster_to_text(self._booster)}

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over what `content` told."""
        self._booster = booster_of_text(content, threads=1)


def _rounds(
    parameters: Mapping[str, Any],
    x: Floats,
    classes: Integers,
    weights: Floats,
    groups: Integers,
) -> int:
    """Number of trees that is best for groups that the trees have not seen."""
    rng = np.random.default_rng(parameters["seed"])
    drawn = rng.random(int(groups.max()) + 1) < _HELD_OUT
    seen, unseen = ~drawn[groups], drawn[groups]
    if len(x) < _FEWEST or len(set(classes[seen])) <= classes.max() or not unseen.any():
        return _UNCHECKED
    import xgboost

    part = xgboost.DMatrix(x[unseen], classes[unseen], weight=weights[unseen], nthread=1)
    options = {"evals": [(part, "unseen")], "early_stopping_rounds": _PATIENCE}
    booster = _trained(parameters, x[seen], classes[seen], weights[seen], _ROUNDS, options)
    return int(booster.best_iteration) + 1


def _trained(
    parameters: Mapping[str, Any],
    x: Floats,
    classes: Integers,
    weights: Floats,
    rounds: int,
    options: Mapping[str, Any] | None = None,
) -> Any:
    import xgboost

    data = xgboost.DMatrix(x, classes, weight=weights, nthread=1)
    return xgboost.train(dict(parameters), data, rounds, verbose_eval=False, **(options or {}))
