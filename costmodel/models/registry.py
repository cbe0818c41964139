"""Cost models by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopwright.costmodel.model import CostModel, ModelError, RandomModel
from loopwright.costmodel.models.ensemble import Ensemble
from loopwright.costmodel.models.file import StoredModel
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.mlp import MLP
from loopwright.costmodel.models.treegru import TreeGRU

Base = StoredModel | None


def _gbt(objective: str) -> Callable[[int, Base], StoredModel]:
    return lambda seed, base: GBTModel(objective, seed, base=base)


def _mlp(objective: str) -> Callable[[int, Base], StoredModel]:
    return lambda seed, base: MLP(objective, seed, base=base)


def blend(seed: int, base: Base, **trees: Any) -> Ensemble:
    """Boosted trees, made with `trees`, and perceptrons, which err elsewhere."""
    members = GBTModel("rank", seed, base=base, **trees), MLP("rank", seed, base=base)
    return Ensemble(members, seed, bootstrap=False)


def _treegru(objective: str, reads: str = "tree") -> Callable[[int, Base], StoredModel]:
    return lambda seed, base: TreeGRU(objective, seed, reads=reads, base=base)


def _ensemble(make: Callable[[int, Base], StoredModel]) -> Callable[[int, Base], StoredModel]:
    return lambda seed, base: Ensemble.of(lambda s: make(s, base), seed)


MODELS: dict[str, Callable[[int, Base], CostModel]] = {
    "gbt": _gbt("rank"),
    "gbt-regression": _gbt("regression"),
    "gbt-ensemble": _ensemble(_gbt("regression")),
    "mlp": _mlp("rank"),
    "mlp-regression": _mlp("regression"),
    "blend": blend,
    "treegru": _treegru("rank"),
    "treegru-regression": _treegru("regression"),
    "treegru-plain": _treegru("rank", "text"),
    "treegru-ensemble": _ensemble(_treegru("regression")),
    "random": lambda seed, base: RandomModel(seed),
}
"""Models that a user may name where one is chosen, and how each is made from a seed and a base."""


def make_model(
    model: str | CostModel, seed: int = 0, base: Base = None, others: Sequence[str] = ()
) -> CostModel:
    """The model of a name, made anew, or a given object. `base` is the global model of Eq. 4, from
    which the named model goes on. Raises `ModelError`, which names `others` that are allowed, too.
    """
    if isinstance(model, CostModel):
        return model
    if not isinstance(model, str) or model not in MODELS:
        raise ModelError(
            f"model = {model!r}: use one of {', '.join((*MODELS, *others))}, or a CostModel"
        )
    return MODELS[model](seed, base)
