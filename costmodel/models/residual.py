"""Models that go on from another one: f(x) = f_base(x) + f_own(x), Eq. 4 of Chen et al. 2018."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from loopwright.costmodel.features.representation import names_of
from loopwright.costmodel.model import Floats, Integers, RandomModel, check_data
from loopwright.costmodel.models.file import (
    StoredModel,
    checked_base,
    learned_from,
    packed,
    unpacked,
)
from loopwright.costmodel.models.holdout import Index
from loopwright.costmodel.models.losses import LOSSES, Loss, checked_objective, relative

_FEWEST = 8  # successful records below which nothing is learned

Model = TypeVar("Model", bound="Residual")


@dataclass(frozen=True, eq=False)
class Training:
    """Features, costs relative to the best, groups, and predictions to go on from."""

    features: Floats
    costs: Floats
    groups: Integers
    start: Floats

    def part(self, places: Index) -> Training:
        """Some of the records."""
        return Training(*(a[places] for a in vars(self).values()))

    def loss(self, objective: str, rng: np.random.Generator) -> Loss:
        """The loss of what is added to `start`."""
        return LOSSES[objective].of(self.costs, self.groups, rng)


class Residual(StoredModel):
    """A model that adds to the scores of a base. Without one, and as long as nothing was learned
    here, scores are random.

    Parameters
    ----------
    objective: "rank" (Eq. 2 of Chen et al. 2018; only the order of costs matters, and failures
        come last) or "regression" (of the logarithm of throughput; failures are left out).
    seed: decides all that is drawn.
    reads: the representation of its features.
    base: a model of the same features, trained on other records: the global one of Eq. 4.

    Attributes
    ----------
    shared: the columns that a base reads, where this model is given more behind them; None for
        all.
    """

    shared: int | None = None

    stored: ClassVar[Mapping[str, tuple[str, Callable[[Any], Any]]]]
    """The other parameters, by their names in files: the attribute, and its type."""

    def __init__(self, objective: str, seed: int, reads: str, base: StoredModel | None) -> None:
        self.objective, self.seed, self.reads = checked_objective(objective), int(seed), reads
        self.base = checked_base(base, reads)
        self.about: dict[str, Any] = {}
        self._random = RandomModel(seed)
        self._own: Any = None  # what was learned here

    @abstractmethod
    def learned(self, training: Training, loss: Loss, rng: np.random.Generator) -> Any:
        """The own part of the model."""

    @abstractmethod
    def costs(self, features: Floats) -> Floats:
        """Costs that the own part adds to those of the base."""

    @abstractmethod
    def shares(self) -> Floats:
        """Importance of each feature for the own part, in any unit."""

    @abstractmethod
    def own_content(self) -> dict[str, Any]:
        """The own part as JSON, if there is one or not."""

    @abstractmethod
    def own_of(self, content: Mapping[str, Any]) -> Any:
        """The own part of `own_content`; raises what `of_content` does."""

    @property
    def ready(self) -> bool:
        return self._own is not None or self.base is not None

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        check_data(features, costs, groups)
        self._own = None
        if np.isfinite(costs).sum() < _FEWEST:
            return
        rng = np.random.default_rng(self.seed)
        start = np.zeros(len(costs)) if self.base is None else -self._of_base(features)
        training = Training(features, relative(costs, groups), groups, start)
        loss = training.loss(self.objective, rng)
        if loss.informative:
            self._own = self.learned(training, loss, rng)
            self.about |= learned_from(costs, groups)

    def predict(self, features: Floats) -> Floats:
        if not self.ready:
            return self._random.predict(features)
        scores: Floats = np.zeros(len(features), np.float32)
        if self.base is not None:
            scores = self._of_base(features)
        if self._own is not None:
            scores = scores - self.costs(features)
        return scores

    def _of_base(self, features: Floats) -> Floats:
        """Scores of the base, which may have learned from fewer columns: those at the begin."""
        assert self.base is not None
        return self.base.predict(features[:, : self.shared])

    def describe_own(self, size: str) -> str:
        """The description of a model whose own part is of some size."""
        text = f"{size}, {self.objective} objective"
        return text if self.base is None else f"{text}, on top of {self.base.describe()}"

    def importance(self) -> dict[str, float]:
        if self._own is None:
            return {} if self.base is None else self.base.importance()
        shares = self.shares() / max(float(self.shares().sum()), 1e-30)
        names = names_of(self.reads, len(shares))
        return {name: float(share) for name, share in zip(names, shares) if share > 0}

    def content(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "seed": self.seed,
            **{name: getattr(self, attribute) for name, (attribute, _) in self.stored.items()},
            "reads": self.reads,
            "base": None if self.base is None else packed(self.base),
            **self.own_content(),
        }

    @classmethod
    def of_content(cls: type[Model], content: Mapping[str, Any]) -> Model:
        base = None if content["base"] is None else unpacked(content["base"])
        same = {name: content[name] for name in ("objective", "seed", "reads")}
        sizes = {attribute: kind(content[name]) for name, (attribute, kind) in cls.stored.items()}
        model = cls(**same, **sizes, base=base)
        model._own = model.own_of(content)
        if not model.ready:
            raise ValueError("it has learned nothing")
        return model
