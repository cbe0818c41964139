"""Gradient-boosted trees as a cost model: xgboost with our own losses.

xgboost grows the trees; what they minimize is in `losses`, so that nothing depends on what a
version of it calls ranking. Only its stable interface is used: `DMatrix`, `train` with `obj` and
`custom_metric`, `Booster.inplace_predict`, `save_raw`, `load_model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.costmodel.file import read_model, write_model
from loopwright.costmodel.losses import Index, Loss, RankLoss, SquaredLoss, relative
from loopwright.costmodel.model import (
    CostModel,
    Floats,
    Integers,
    ModelError,
    RandomModel,
    check_data,
)

_LOSSES: dict[str, type[RankLoss] | type[SquaredLoss]] = {
    "rank": RankLoss,
    "regression": SquaredLoss,
}
_FEWEST = 8  # successful records below which the scores are random
_SPLIT = 100  # records from which on some are held out
_UNCHECKED = 120  # trees where none are
_HELD_OUT = 0.2
_PATIENCE = 40  # trees without a lower loss on the held-out records
_SHAPE = {
    "max_depth": 5,
    "eta": 0.12,
    "min_child_weight": 0.5,
    "subsample": 0.8,
    "colsample_bynode": 0.5,
}


class GBTModel(CostModel):
    """Boosted trees.

    A part of the records, drawn by the seed, is held out; boosting stops when the loss on it has
    not fallen for a while, and as many trees as were best are grown again from all records.

    Parameters
    ----------
    objective: "rank" (Eq. 2 of Chen et al. 2018; only the order of costs matters, and failures
        come last) or "regression" (of the logarithm of throughput; failures are left out).
    seed: decides the split, the pairs, the trees, and the random scores before there is data.
    rounds: most trees.
    threads: that xgboost may use.
    """

    def __init__(
        self, objective: str = "rank", seed: int = 0, rounds: int = 150, threads: int = 1
    ) -> None:
        if objective not in _LOSSES:
            raise ModelError(f"no objective {objective!r}: use {' or '.join(_LOSSES)}")
        self.objective, self.seed = objective, int(seed)
        self.rounds, self.threads = rounds, threads
        self._random = RandomModel(seed)
        self._booster: Any = None

    @property
    def ready(self) -> bool:
        return self._booster is not None

    @property
    def trees(self) -> int:
        """Trees grown; 0 before there is data."""
        return int(self._booster.num_boosted_rounds()) if self.ready else 0

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        check_data(features, costs, groups)
        self._booster = None
        if np.isfinite(costs).sum() < _FEWEST:
            return
        rng = np.random.default_rng(self.seed)
        data = _Data(features, relative(costs, groups), groups)
        loss = data.loss(self.objective, rng)
        if loss.informative:
            self._booster = self._train(data, loss, self._best_rounds(data, rng))

    def _best_rounds(self, data: _Data, rng: np.random.Generator) -> int:
        """How many trees are best for records that the trees have not seen."""
        order = rng.permutation(len(data.costs))
        count = int(_HELD_OUT * len(order)) if len(order) >= _SPLIT else 1
        seen, held_out = data.part(order[count:]), data.part(order[:count])
        losses = seen.loss(self.objective, rng), held_out.loss(self.objective, rng)
        if not all(loss.informative for loss in losses):
            return min(_UNCHECKED, self.rounds)
        booster = self._train(
            seen,
            losses[0],
            self.rounds,
            evals=[(held_out.matrix(self.threads), "unseen")],
            custom_metric=lambda f, _: ("loss", losses[1].value(f.astype(np.float64))),
            early_stopping_rounds=_PATIENCE,
            verbose_eval=False,
        )
        return int(booster.best_iteration) + 1

    def _train(self, data: _Data, loss: Loss, rounds: int, **options: Any) -> Any:
        import xgboost

        parameters = {
            **_SHAPE,
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "nthread": self.threads,
            "seed": self.seed % (1 << 31),  # all that xgboost takes
            "verbosity": 1,
        }
        return xgboost.train(
            parameters,
            data.matrix(self.threads),
            rounds,
            obj=lambda f, _: loss.derivatives(f.astype(np.float64)),
            **options,
        )

    def predict(self, features: Floats) -> Floats:
        if not self.ready:
            return self._random.predict(features)
        expected = self._booster.num_features()
        if features.shape[1:] != (expected,):
            raise ModelError(
                f"features of shape {features.shape}; this model was trained on {expected} a "
                "config: use the representation and the space that it was trained with"
            )
        scores: Floats = -self._booster.inplace_predict(features)
        return scores

    def save(self, path: Path) -> None:
        if not self.ready:
            raise ModelError("this model has not learned anything yet: fit it before saving it")
        content = {
            "objective": self.objective,
            "seed": self.seed,
            "rounds": self.rounds,
            "booster": self._booster.save_raw("json").decode(),
        }
        write_model(path, "gbt", content)

    @classmethod
    def load(cls, path: Path, threads: int = 1) -> GBTModel:
        """Read what `save` wrote. Raises `ModelError` for anything else."""
        import xgboost

        content = read_model(path, "gbt")
        try:
            model = cls(content["objective"], content["seed"], content["rounds"], threads)
            model._booster = xgboost.Booster({"nthread": threads})
            model._booster.load_model(bytearray(content["booster"].encode()))
        except (KeyError, TypeError, AttributeError, xgboost.core.XGBoostError) as error:
            raise ModelError(f"{path}: xgboost cannot read its trees: {error}") from error
        return model


@dataclass(frozen=True, eq=False)
class _Data:
    features: Floats
    costs: Floats
    groups: Integers

    def part(self, places: Index) -> _Data:
        return _Data(self.features[places], self.costs[places], self.groups[places])

    def loss(self, objective: str, rng: np.random.Generator) -> Loss:
        return _LOSSES[objective].of(self.costs, self.groups, rng)

    def matrix(self, threads: int) -> Any:
        import xgboost

        return xgboost.DMatrix(self.features, np.zeros(len(self.costs)), nthread=threads)
