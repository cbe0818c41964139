"""Gradient-boosted trees as a cost model: xgboost with our own losses.

xgboost grows the trees; what they minimize is in `losses`, so that nothing depends on what a
version of it calls ranking. Only its stable interface is used: `DMatrix`, `train` with `obj` and
`custom_metric`, `Booster.inplace_predict`, `save_raw`, `load_model`, and its JSON format of trees.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from loopwright.costmodel.features.representation import as_read
from loopwright.costmodel.model import Floats
from loopwright.costmodel.models.file import StoredModel
from loopwright.costmodel.models.holdout import split
from loopwright.costmodel.models.losses import Loss
from loopwright.costmodel.models.residual import Residual, Training
from loopwright.packages import xgboost

_UNCHECKED = 120  # trees where too few records are held out
_PATIENCE = 40  # trees without a lower loss on the held-out records
_SHAPE = {"min_child_weight": 0.5, "subsample": 0.8, "colsample_bynode": 0.5}


class GBTModel(Residual):
    """Boosted trees, grown from the scores of the base.

    A part of the records, drawn by the seed, is held out; boosting stops when the loss on it has
    not fallen for a while, and as many trees as were best are grown again from all records.

    Parameters
    ----------
    objective, seed, reads, base: see `Residual`.
    rounds, depth, eta: most trees, their depth, and the share of each that is added.
    threads: that xgboost may use.
    """

    kind: ClassVar[str] = "gbt"
    stored = {"rounds": ("rounds", int), "depth": ("depth", int), "eta": ("eta", float)}

    def __init__(
        self,
        objective: str = "rank",
        seed: int = 0,
        rounds: int = 150,
        threads: int = 1,
        reads: str = "relation",
        base: StoredModel | None = None,
        depth: int = 5,
        eta: float = 0.12,
    ) -> None:
        super().__init__(objective, seed, reads, base)
        self.rounds, self.threads, self.depth, self.eta = rounds, threads, depth, eta

    @property
    def trees(self) -> int:
        """Trees grown; 0 before there is data."""
        return int(self._own.num_boosted_rounds()) if self._own is not None else 0

    def learned(self, training: Training, loss: Loss, rng: np.random.Generator) -> Any:
        return self._train(training, loss, self._best_rounds(training, rng))

    def _best_rounds(self, training: Training, rng: np.random.Generator) -> int:
        """Number of trees that is best for records that the trees have not seen."""
        places = split(training.features, training.groups, rng)
        seen, held_out = map(training.part, places)
        losses = [part.loss(self.objective, rng) for part in (seen, held_out)]
        if not all(loss.informative for loss in losses):
            return min(_UNCHECKED, self.rounds)
        booster = self._train(
            seen,
            losses[0],
            self.rounds,
            evals=[(self._matrix(held_out), "unseen")],
            custom_metric=lambda f, _: ("loss", losses[1].value(f.astype(np.float64))),
            early_stopping_rounds=_PATIENCE,
            verbose_eval=False,
        )
        return int(booster.best_iteration) + 1

    def _train(self, training: Training, loss: Loss, rounds: int, **options: Any) -> Any:
        parameters = {
            **_SHAPE,
            "max_depth": self.depth,
            "eta": self.eta,
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "nthread": self.threads,
            "seed": self.seed % (1 << 31),  # all that xgboost takes
            "verbosity": 1,
        }
        return xgboost.train(
            parameters,
            self._matrix(training),
            rounds,
            obj=lambda f, _: loss.derivatives(f.astype(np.float64)),
            **options,
        )

    def _matrix(self, training: Training) -> Any:
        x, start = training.features, training.start
        return xgboost.DMatrix(x, np.zeros(len(x)), base_margin=start, nthread=self.threads)

    def costs(self, features: Floats) -> Floats:
        read = as_read(features, self.reads, self._own.num_features())
        costs: Floats = self._own.inplace_predict(read)
        return costs

    def describe(self) -> str:
        return self.describe_own(f"{self.trees} boosted trees")

    def shares(self) -> Floats:
        """The part of the loss that splits on a feature took away (xgboost's total gain)."""
        shares = np.zeros(self._own.num_features())
        for feature, gain in self._own.get_score(importance_type="total_gain").items():
            shares[int(feature[1:])] = gain
        return shares

    def own_content(self) -> dict[str, Any]:
        return {"trees": None if self._own is None else booster_to_text(self._own)}

    def own_of(self, content: Mapping[str, Any]) -> Any:
        return booster_of_text(content, self.threads)


def booster_to_text(booster: Any) -> str:
    """Trees for a file: without what only training needs, gains to three digits."""
    model = json.loads(bytes(booster.save_raw("json")))
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        tree["base_weights"] = tree["sum_hessian"] = [0.0] * len(tree["left_children"])
        tree["loss_changes"] = [float(f"{gain:.3g}") for gain in tree["loss_changes"]]
    lean = xgboost.Booster()
    lean.load_model(bytearray(json.dumps(model).encode()))
    return base64.b64encode(zlib.compress(bytes(lean.save_raw("ubj")), 9)).decode()


def booster_of_text(content: Mapping[str, Any], threads: int) -> Any:
    """The trees of a file, None where it has none; raises ValueError for damaged ones."""
    trees = _of_text(content)
    if trees is None:
        return None
    booster = xgboost.Booster({"nthread": threads})
    try:
        booster.load_model(bytearray(trees))
    except xgboost.core.XGBoostError as error:
        raise ValueError(f"xgboost cannot read its trees: {error}") from error
    return booster


def _of_text(content: Mapping[str, Any]) -> bytes | None:
    """The trees of a file, of an earlier version too."""
    if "booster" in content:
        text = content["booster"]
        return None if text is None else base64.b64decode(text, validate=True)
    if content["trees"] is None:
        return None
    try:
        return zlib.decompress(base64.b64decode(content["trees"], validate=True))
    except zlib.error as error:
        raise ValueError(f"its trees are damaged: {error}") from error
