"""Boosted trees over counts of symbols and auxiliary numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopwright.costmodel.model import Floats, Integers
from loopwright.costmodel.models.gbt import booster_of_text, booster_to_text
from loopwright.costmodel.source.batch import Batch
from loopwright.packages import xgboost

_ROUNDS = 600
_LIGHTER = 0.25  # a row of a group of n counts n to this power less: large ones would decide all
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
    """Multi-class boosted trees, in which a row of a large group counts less."""

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
        light = np.bincount(groups)[groups] ** -_LIGHTER
        data = xgboost.DMatrix(x, classes, weight=weights * light, nthread=1)
        self._booster = xgboost.train(parameters, data, _ROUNDS)

    def scores(self, batch: Batch) -> Floats:
        """Share of belief in each class: (sources, classes)."""
        scores: Floats = self._booster.inplace_predict(self._read(batch))
        return scores

    @staticmethod
    def _read(batch: Batch) -> Floats:
        return np.concatenate([batch.counts(), batch.auxiliary], axis=1).astype(np.float32)

    def content(self) -> dict[str, Any]:
        """The trees, as JSON."""
        return {"trees": booster_to_text(self._booster)}

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over what `content` told."""
        self._booster = booster_of_text(content, threads=1)
