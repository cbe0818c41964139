"""Several models, whose mean is better than each, and whose disagreement says how uncertain they
are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from loopwright.costmodel.model import Floats, Integers, ModelError, RandomModel, check_data
from loopwright.costmodel.models.file import StoredModel, learned_from, packed, unpacked
from loopwright.costmodel.models.losses import relative

MEMBERS = 5  # as in section 5 of Chen et al. 2018


class Ensemble(StoredModel):
    """Scores are the mean of its members', by `weights`. Members have different seeds; for an
    `uncertainty` they are regressions of one kind. In a bootstrap ensemble each member learns from
    as many records as there are, drawn with replacement by the `seed`, which decides scores before
    there is data, too."""

    kind: ClassVar[str] = "ensemble"

    def __init__(
        self,
        members: Sequence[StoredModel],
        seed: int = 0,
        bootstrap: bool = True,
        weights: Sequence[float] | None = None,
    ) -> None:
        if len(members) < 2 or len({m.reads for m in members}) > 1:
            raise ModelError("an ensemble has two or more members, which read the same features")
        self.members, self.seed, self.bootstrap = tuple(members), int(seed), bootstrap
        self.weights = tuple(map(float, [1.0] * len(members) if weights is None else weights))
        if len(self.weights) != len(members) or min(self.weights) <= 0:
            raise ModelError(f"weights {self.weights}: give each member one above 0")
        self.reads = members[0].reads
        self.uncertain = bootstrap
        self.about: dict[str, Any] = {}
        self._random = RandomModel(seed)

    @staticmethod
    def of(make: Callable[[int], StoredModel], seed: int = 0) -> Ensemble:
        """`MEMBERS` models, made from seeds of their own."""
        seeds = np.random.SeedSequence(seed).generate_state(MEMBERS)
        return Ensemble([make(int(s) >> 1) for s in seeds], seed)

    @property
    def ready(self) -> bool:
        return all(member.ready for member in self.members)

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        check_data(features, costs, groups)
        rng = np.random.default_rng(self.seed)
        best = np.flatnonzero(relative(costs, groups) == 1.0)  # what all scores are relative to
        for member in self.members:
            if not self.bootstrap:
                member.fit(features, costs, groups)
                continue
            drawn = np.append(best, rng.integers(0, max(len(costs), 1), len(costs)))
            member.fit(features[drawn], costs[drawn], groups[drawn])
        if all("records" in member.about for member in self.members):
            self.about |= learned_from(costs, groups)

    def predict(self, features: Floats) -> Floats:
        if not self.ready:
            return self._random.predict(features)
        return self._mean(self._scores(features))

    def uncertainty(self, features: Floats) -> tuple[Floats, Floats]:
        if not self.uncertain:
            return super().uncertainty(features)
        if not self.ready:
            raise ModelError("this ensemble has not learned anything yet: fit it first")
        scores = self._scores(features)
        return self._mean(scores), scores.std(axis=0, ddof=1)

    def _mean(self, scores: Floats) -> Floats:
        mean: Floats = np.average(scores, axis=0, weights=np.array(self.weights, scores.dtype))
        return mean

    def _scores(self, features: Floats) -> Floats:
        return np.stack([member.predict(features) for member in self.members])

    def describe(self) -> str:
        if not self.bootstrap:
            return "; ".join(member.describe() for member in self.members)
        return f"{len(self.members)} times {self.members[0].describe()}"

    def importance(self) -> dict[str, float]:
        result: dict[str, float] = {}
        for member, weight in zip(self.members, self.weights, strict=True):
            for name, share in member.importance().items():
                result[name] = result.get(name, 0.0) + share * weight / sum(self.weights)
        return result

    def content(self) -> dict[str, Any]:
        members = [packed(member) for member in self.members]
        options = {"bootstrap": self.bootstrap, "weights": self.weights}
        return {"seed": self.seed, **options, "members": members}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> Ensemble:
        members = [unpacked(member) for member in content["members"]]
        # Files of earlier versions say neither this nor the weights.
        bootstrap = content.get("bootstrap", True)
        if not isinstance(bootstrap, bool):
            raise TypeError(f"bootstrap is {bootstrap!r}")
        return cls(members, content["seed"], bootstrap, content.get("weights"))
