"""Annealing with compiler feedback: many candidates are built, and their code says which run.

Grubisic's thesis (2024, chapter 5) feeds back what a compile tells before any run. It also found
that a model which predicts a checkable number wrongly is wrong elsewhere, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from loopwright.codegen.facts.facts import Facts, names_of_facts
from loopwright.costmodel.models.gbt import GBTModel
from loopwright.costmodel.models.residual import Residual
from loopwright.explore.strategies.annealing import Annealing, Found, Guide
from loopwright.explore.strategies.encoded_space import Points
from loopwright.explore.strategies.features import Rows
from loopwright.schedule.sketch.sketch import Config

Feedback = Callable[[Sequence[Config]], Sequence[Facts | None]]
"""Builds configs, and tells the facts of each, or None for one that cannot be built. It may build
the first ones alone, where time is up."""

CHECKED = "spills"
"""The fact that is predicted beside the score."""
WRONG = 0.5
"""Error of its logarithm to base 2 from which on a prediction is wrong."""
QUOTA = 8
"""Candidates that run for each one that is there because a prediction was wrong."""
ASKED = 64
"""Points measured last, of which facts are asked for where they are not known."""
_ROUNDS, _DEPTH = 60, 4
"""Trees that predict it, at most, and their depth."""


class Compiled(Annealing):
    """Proposes by a model of loop trees, builds the λb candidates of Eq. 3, and chooses among them
    by a second model, which reads the facts of their code, too.

    As long as nothing was learned from this space the first model is asked alone. Beside the
    score, trees predict how often a candidate's code goes to the stack. Where the build shows
    otherwise the model does not know such programs, and a few of them run to learn from.
    """

    least = 16  # the process chooses none, and several times as many are built at a time

    def __init__(self, guide: Guide, feedback: Feedback, seed: int = 0) -> None:
        """`feedback` builds; `seed` is that of the models made here. The second model goes on from
        the base of the first one."""
        super().__init__(guide)
        self.feedback, model = feedback, guide.model
        base = model.base if isinstance(model, Residual) else None
        self.second = GBTModel("rank", seed, reads=model.reads, base=base)
        self.checker = GBTModel(
            "regression", seed, reads=model.reads, rounds=_ROUNDS, depth=_DEPTH
        )
        self.names = names_of_facts(guide.encoded.space.target.gpu is not None)
        self.facts: dict[Config, Facts] = {}
        """The facts of every config that was built."""
        self._built: list[tuple[Rows, Rows]] = []

    def note(self, configs: Iterable[Config], facts: Iterable[Facts]) -> None:
        """Take notice of facts that are known already, before the costs are told."""
        self.facts |= {config: known for config, known in zip(configs, facts) if known}

    def _learn(self) -> None:
        super()._learn()
        if self._knows_enough:
            self._ask_for_measured()
            rows = self._with_facts(self.points, self.known)
            self.second.shared = self.known.shape[1]
            self.second.fit(rows, self.costs, np.zeros(len(self.costs), np.int64))

    def _likely(self, n: int) -> Points:
        """No points: facts of code choose them all."""
        return self.points[:0]

    def _anneal(self, keep: int) -> Found:
        found = super()._anneal(keep)
        if not (self._knows_enough and self.second.ready and len(found.points)):
            return found
        found = self._build(found)
        if not len(found.points):
            return found
        rows = self.features(found.points)
        scores = np.asarray(self.second.predict(self._with_facts(found.points, rows)), np.float64)
        doubtful = self._check(found.points, rows)
        doubtful = doubtful[np.argsort(-scores[doubtful], kind="stable")]
        count = int(keep / self.schedule.candidates) // QUOTA
        scores[doubtful[:count]] = scores.max()
        return replace(found, scores=scores)

    def _ask_for_measured(self) -> None:
        """Facts of what ran last, where nobody told them: built-in code is not read before it is
        asked for, and old records have none."""
        ran = self.encoded.configs(self.points[np.isfinite(self.costs)][-ASKED:])
        lacking = [config for config in ran if config not in self.facts]
        told = zip(lacking, self.feedback(lacking)) if lacking else ()
        self.facts |= {config: facts or {} for config, facts in told}

    def _build(self, found: Found) -> Found:
        """The candidates that could be built; the others are known as failures from now on."""
        configs = self.encoded.configs(found.points)
        new = [config for config in configs if config not in self.facts]
        told = dict(zip(new, self.feedback(new))) if new else {}
        self.facts |= {c: facts for c, facts in told.items() if facts is not None}
        failed = found.points[[c in told and told[c] is None for c in configs]]
        if len(failed):
            self.tell(failed, np.full(len(failed), np.inf))
        return found.take(np.flatnonzero([c in self.facts for c in configs]))

    def _check(self, points: Points, rows: Rows) -> Points:
        """The places of points whose code has another number of `CHECKED` than was predicted; the
        predictor learns from all of them."""
        actual = self._facts_of(points)[:, self.names.index(CHECKED)]
        wrong = np.zeros(len(points), np.bool_)
        if self.checker.ready:
            least = min(values.min() for _, values in self._built)
            predicted = least - np.asarray(self.checker.predict(rows), np.float64)
            wrong = np.abs(predicted - actual) > WRONG
        told = np.isfinite(actual)
        if told.any():
            self._built.append((rows[told], actual[told]))
            known = np.concatenate([r for r, _ in self._built])
            values = np.exp2(np.concatenate([v for _, v in self._built]))
            self.checker.fit(known, values, np.zeros(len(values), np.int64))
        return np.flatnonzero(wrong)

    def _with_facts(self, points: Points, rows: Rows) -> Rows:
        return np.concatenate([rows, self._facts_of(points)], axis=1)

    def _facts_of(self, points: Points) -> Rows:
        """Logarithms of facts, shape (n, names); NaN where they are not known."""
        made = np.full((len(points), len(self.names)), np.nan, np.float32)
        for row, config in zip(made, self.encoded.configs(points)):
            known: Mapping[str, int] = self.facts.get(config, {})
            for place, name in enumerate(self.names):
                if name in known:
                    row[place] = np.log2(1.0 + known[name])
        return made
