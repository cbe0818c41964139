"""Several models of one kind, whose disagreement says how uncertain they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from loopwright.costmodel.file import StoredModel, learned_from, packed, unpacked
from loopwright.costmodel.losses import relative
from loopwright.costmodel.model import Floats, Integers, ModelError, RandomModel, check_data

MEMBERS = 5  # as in section 5 of Chen et al. 2018


class Ensemble(StoredModel):
    """A bootstrap ensemble: each member learns from as many records as there are, drawn with
    replacement. Scores are the mean of its members'.

    Parameters
    ----------
    members: models of one kind, with different seeds; for `uncertainty` to mean what it should,
        regressions.
    seed: decides the samples, and the random scores before there is data.
    """

    kind: ClassVar[str] = "ensemble"

    def __init__(self, members: Sequence[StoredModel], seed: int = 0) -> None:
        if len(members) < 2 or len({m.reads for m in members}) > 1:
            raise ModelError("an ensemble has two or more members, which read the same features")
        self.members, self.seed = tuple(members), int(seed)
        self.reads = members[0].reads
        self.uncertain = True
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
            drawn = np.append(best, rng.integers(0, max(len(costs), 1), len(costs)))
            member.fit(features[drawn], costs[drawn], groups[drawn])
        self.about |= learned_from(costs, groups)

    def predict(self, features: Floats) -> Floats:
        return self.uncertainty(features)[0] if self.ready else self._random.predict(features)

    def uncertainty(self, features: Floats) -> tuple[Floats, Floats]:
        if not self.ready:
            raise ModelError("this ensemble has not learned anything yet: fit it first")
        scores = np.stack([member.predict(features) for member in self.members])
        return scores.mean(axis=0), scores.std(axis=0, ddof=1)

    def describe(self) -> str:
        return f"{len(self.members)} times {self.members[0].describe()}"

    def importance(self) -> dict[str, float]:
        result: dict[str, float] = {}
        for shares in (member.importance() for member in self.members):
            for name, share in shares.items():
                result[name] = result.get(name, 0.0) + share / len(self.members)
        return result

    def content(self) -> dict[str, Any]:
        return {"seed": self.seed, "members": [packed(member) for member in self.members]}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> Ensemble:
        return cls([unpacked(member) for member in content["members"]], content["seed"])
