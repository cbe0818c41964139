"""Sampled search: the configs that a sequence model proposes, corrected by what they cost."""

from __future__ import annotations

import itertools

import numpy as np

from loopwright.costmodel.sequence.decoders import Decoder, Varied
from loopwright.costmodel.sequence.examples import TAU
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.explore.strategies.encoded_space import EncodedSpace, Floats, Points
from loopwright.explore.strategies.process import expected
from loopwright.explore.strategies.proposals import Proposals
from loopwright.explore.strategies.strategy import Strategy

_POOL = 2048
"""Samples that a correction chooses among."""
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
        self._logs = np.empty(0)
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
        if not self.corrected or np.isfinite(self.costs).sum() < _FEWEST:
            more = self.seen.unseen(self.proposals.first(len(self.seen) + n))
            return self._completed(more[:n], n)
        pool = self.proposals.first(_POOL)
        places = self.seen.places(pool)
        order = np.argsort(self._expected(places), kind="stable")[:n]
        return self._completed(pool[places[order]], n)

    def _learn(self) -> None:
        new = self.points[len(self._logs) :]
        self._logs = np.append(self._logs, self.proposals.log_probabilities(new))

    def _expected(self, places: Points) -> Floats:
        """Logarithms of the costs of proposals, but for a constant, as far as can be told."""
        best = np.argsort(self.costs, kind="stable")[:_KNOWN]
        best = best[np.isfinite(self.costs[best])]
        known, found = self.points[best], self.proposals.points[places]
        apart = np.log(self.costs[best]) - self._prior(self._logs[best])
        values = self.encoded.values
        return self._prior(self.proposals.logs[places]) + expected(
            values(known), apart, values(found)
        )

    def _prior(self, logs: Floats) -> Floats:
        """Logarithm of the cost over the best that the model thinks of."""
        prior: Floats = np.log1p(TAU * (self.proposals.logs.max() - logs))
        return prior
