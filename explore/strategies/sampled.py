"""Sampled search: what a sequence model proposes, in the order of what it may cost."""

from __future__ import annotations

import itertools

import numpy as np

from loopwright.costmodel.model import CostModel
from loopwright.costmodel.sequence.decoders import Decoder, Varied
from loopwright.costmodel.sequence.examples import TAU
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.explore.strategies.annealing import programs
from loopwright.explore.strategies.encoded_space import EncodedSpace, Floats, Hashes, Points
from loopwright.explore.strategies.features import Features
from loopwright.explore.strategies.process import expected
from loopwright.explore.strategies.proposals import Proposals
from loopwright.explore.strategies.selection import select
from loopwright.explore.strategies.strategy import Strategy

_POOL = 2048
"""Samples that a correction chooses among."""
_JUDGED = 512
"""Samples that a cost model judges, in about a millisecond each."""
_SCORE = 0.06
"""The logarithm of the cost falls by this where a cost model's score rises by one: so it did on
records of C1 to C12 and of networks."""
_ALPHA = 0.1
"""The weight of diversity in Eq. 3, where a cost model judges."""
_KNOWN = 256
"""The cheapest points that a correction knows."""
_FEWEST = 2
"""Costs from which on there is something to correct."""


class Sampled(Strategy):
    """Measures what a sequence model proposes, its most confident sample first.

    A model whose weights are exp(-(c / c_best - 1) / τ) says what a config costs: its probability
    falls with the cost. So as soon as costs are known, a Gaussian process learns by how much they
    differ from that, and those proposals come next of which both together expect the least.
    """

    least = 4

    def __init__(
        self,
        encoded: EncodedSpace,
        rng: np.random.Generator,
        model: SequenceModel,
        decoder: Decoder | None = None,
        corrected: bool = True,
        default: bool = True,
    ) -> None:
        """
        Parameters
        ----------
        decoder: by default the greedy sample, then various ones (`Varied`).
        corrected: whether costs change the order of what is left.
        default: whether the default config comes first.
        """
        super().__init__(encoded, rng)
        self.proposals = Proposals(encoded, model, rng, decoder or Varied())
        self.corrected = corrected
        self._said = np.empty(0)
        """What a model says of every point told."""
        if not default:
            self.seen.add(encoded.default)

    def choose(self) -> Points:
        """The model's first choice of what was not told, a batch of one, or none."""
        for n in itertools.count(1):
            points = self.proposals.first(n)
            if len(points) < n or not self.seen.has(points[-1:])[0]:
                return points[n - 1 :]
        raise AssertionError

    def _propose(self, n: int) -> Points:
        return self._completed(self._best(n) if self._corrects else self._next(n), n)

    @property
    def _corrects(self) -> bool:
        return self.corrected and int(np.isfinite(self.costs).sum()) >= _FEWEST

    def _next(self, n: int) -> Points:
        """Up to `n` new points, by the model alone."""
        return self.seen.unseen(self.proposals.first(len(self.seen) + n))[:n]

    def _best(self, n: int, alpha: float = 0.0) -> Points:
        """Up to `n` new points of which the least is expected, by Eq. 3."""
        points, said = self._pool()
        places = self.seen.places(points)
        points, costs = points[places], self._expected(said[places])
        if self._corrects:
            costs = costs + self._correction(points)
        return points[select(-costs, self.encoded.values(points), n, alpha)]

    def _learn(self) -> None:
        self._said = np.append(self._said, self._judged(self.points[len(self._said) :]))

    def _pool(self) -> tuple[Points, Floats]:
        """The points that are chosen among, and what a model says of them."""
        points = self.proposals.first(_POOL)
        return points, self.proposals.logs[: len(points)]

    def _judged(self, points: Points) -> Floats:
        """What a model says of points, the more the better."""
        return self.proposals.log_probabilities(points)

    def _expected(self, said: Floats) -> Floats:
        """Logarithms of costs, but for a constant, by what the model says."""
        costs: Floats = np.log1p(TAU * (self.proposals.logs.max() - said))
        return costs

    def _correction(self, points: Points) -> Floats:
        """By how much the logarithms of costs differ from that, but for a constant, as far as can
        be told."""
        best = self._cheapest(_KNOWN)
        apart = np.log(self.costs[best]) - self._expected(self._said[best])
        values = self.encoded.values
        return expected(values(self.points[best]), apart, values(points))


class Judged(Sampled):
    """Sampled search in the order of a cost model that has learned elsewhere. It is surer than the
    sequence model's own, and still corrected by costs."""

    def __init__(
        self,
        encoded: EncodedSpace,
        rng: np.random.Generator,
        model: SequenceModel,
        judge: CostModel,
        default: bool = True,
    ) -> None:
        super().__init__(encoded, rng, model, default=default)
        self.judge, self._features = judge, Features(encoded.space, judge.reads)
        self._known: tuple[Points, Floats] | None = None

    def _next(self, n: int) -> Points:
        return self._best(n)

    def _best(self, n: int, alpha: float = _ALPHA) -> Points:
        return super()._best(n, alpha)

    def _pool(self) -> tuple[Points, Floats]:
        """A point of each program that is proposed."""
        if self._known is None:
            points = self.proposals.first(_JUDGED)
            scores, found = self._scored(points)
            first = np.sort(np.unique(found, return_index=True)[1])
            self._known = points[first], scores[first]
        return self._known

    def _judged(self, points: Points) -> Floats:
        return self._scored(points)[0]

    def _scored(self, points: Points) -> tuple[Floats, Hashes]:
        """Scores of the cost model, and hashes of the programs."""
        rows = self._features.directly(points)
        return np.asarray(self.judge.predict(rows), np.float64), programs(rows)

    def _expected(self, said: Floats) -> Floats:
        return -_SCORE * said
