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
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from loopwright.costmodel.features.representation import as_read, names_of
from loopwright.costmodel.model import Floats, Integers, RandomModel, check_data
from loopwright.costmodel.models.file import (
    StoredModel,
    checked_base,
    learned_from,
    packed,
    unpacked,
)
from loopwright.costmodel.models.holdout import Index, split
from loopwright.costmodel.models.losses import LOSSES, Loss, checked_objective, relative

_FEWEST = 8  # successful records below which the scores are random
_UNCHECKED = 120  # trees where too few records are held out
_PATIENCE = 40  # trees without a lower loss on the held-out records
_SHAPE = {
    "min_child_weight": 0.5,
    "subsample": 0.8,
    "colsample_bynode": 0.5,
}


class GBTModel(StoredModel):
    """Boosted trees.

    A part of the records, drawn by the seed, is held out; boosting stops when the loss on it has
    not fallen for a while, and as many trees as were best are grown again from all records.

    Parameters
    ----------
    objective: "rank" (Eq. 2 of Chen et al. 2018; only the order of costs matters, and failures
        come last) or "regression" (of the logarithm of throughput; failures are left out).
    seed: decides the split, the pairs, the trees, and the random scores before there is data.
    rounds, depth, eta: most trees, their depth, and the share of each that is added.
    threads: that xgboost may use.
    reads: the representation of its features.
    base: a model of the same features, trained on other records, the global one of Eq. 4: boosting
        goes on from its scores, f(x) = f_global(x) + f_local(x), and as long as nothing was
        learned here, they are the scores.
    """

    kind: ClassVar[str] = "gbt"

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
        self.objective, self.seed = checked_objective(objective), int(seed)
        self.rounds, self.threads, self.reads = rounds, threads, reads
        self.depth, self.eta = depth, eta
        self.base = checked_base(base, reads)
        self.about: dict[str, Any] = {}
        self._random = RandomModel(seed)
        self._booster: Any = None

    @property
    def ready(self) -> bool:
        return self._booster is not None or self.base is not None

    @property
    def trees(self) -> int:
        """Trees grown; 0 before there is data."""
        return int(self._booster.num_boosted_rounds()) if self._booster is not None else 0

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        check_data(features, costs, groups)
        self._booster = None
        if np.isfinite(costs).sum() < _FEWEST:
            return
        rng = np.random.default_rng(self.seed)
        start = np.zeros(len(costs)) if self.base is None else -self.base.predict(features)
        data = _Data(features, relative(costs, groups), groups, start)
        loss = data.loss(self.objective, rng)
        if loss.informative:
            self._booster = self._train(data, loss, self._best_rounds(data, rng))
            self.about |= learned_from(costs, groups)

    def _best_rounds(self, data: _Data, rng: np.random.Generator) -> int:
        """Number of trees that is best for records that the trees have not seen."""
        seen, held_out = map(data.part, split(data.features, data.groups, rng))
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
            data.matrix(self.threads),
            rounds,
            obj=lambda f, _: loss.derivatives(f.astype(np.float64)),
            **options,
        )

    def predict(self, features: Floats) -> Floats:
        if not self.ready:
            return self._random.predict(features)
        start: Floats = np.zeros(len(features), np.float32)
        if self.base is not None:
            start = self.base.predict(features)
        if self._booster is None:
            return start
        features = as_read(features, self.reads, self._booster.num_features())
        scores: Floats = start - self._booster.inplace_predict(features)
        return scores

    def describe(self) -> str:
        text = f"{self.trees} boosted trees, {self.objective} objective"
        return text if self.base is None else f"{text}, on top of {self.base.describe()}"

    def importance(self) -> dict[str, float]:
        """Importance of features: the share of the loss that splits on a feature took away
        (xgboost's total gain)."""
        if self._booster is None:
            return {} if self.base is None else self.base.importance()
        names = names_of(self.reads, self._booster.num_features())
        gains = self._booster.get_score(importance_type="total_gain")
        whole = sum(gains.values()) or 1.0
        return {names[int(f[1:])]: gain / whole for f, gain in gains.items()}

    def content(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "seed": self.seed,
            "rounds": self.rounds,
            "reads": self.reads,
            "depth": self.depth,
            "eta": self.eta,
            "base": None if self.base is None else packed(self.base),
            "trees": None if self._booster is None else _to_text(self._booster),
        }

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> GBTModel:
        import xgboost

        base = None if content["base"] is None else unpacked(content["base"])
        model = cls(
            content["objective"],
            content["seed"],
            int(content["rounds"]),
            reads=content["reads"],
            base=base,
            depth=int(content["depth"]),
            eta=float(content["eta"]),
        )
        trees = _of_text(content)
        if trees is None and base is None:
            raise ValueError("it has no trees")
        if trees is not None:
            model._booster = xgboost.Booster({"nthread": model.threads})
            try:
                model._booster.load_model(bytearray(trees))
            except xgboost.core.XGBoostError as error:
                raise ValueError(f"xgboost cannot read its trees: {error}") from error
        return model


def _to_text(booster: Any) -> str:
    """Trees for a file, as small as can be: without what only training needs, gains to three
    digits."""
    import xgboost

    model = json.loads(bytes(booster.save_raw("json")))
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        tree["base_weights"] = tree["sum_hessian"] = [0.0] * len(tree["left_children"])
        tree["loss_changes"] = [float(f"{gain:.3g}") for gain in tree["loss_changes"]]
    lean = xgboost.Booster()
    lean.load_model(bytearray(json.dumps(model).encode()))
    return base64.b64encode(zlib.compress(bytes(lean.save_raw("ubj")), 9)).decode()


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


@dataclass(frozen=True, eq=False)
class _Data:
    features: Floats
    costs: Floats
    groups: Integers
    start: Floats
    """Predictions that boosting goes on from."""

    def part(self, places: Index) -> _Data:
        of_records = self.features[places], self.costs[places], self.groups[places]
        return _Data(*of_records, self.start[places])

    def loss(self, objective: str, rng: np.random.Generator) -> Loss:
        return LOSSES[objective].of(self.costs, self.groups, rng)

    def matrix(self, threads: int) -> Any:
        import xgboost

        nothing = np.zeros(len(self.costs))
        return xgboost.DMatrix(self.features, nothing, base_margin=self.start, nthread=threads)
