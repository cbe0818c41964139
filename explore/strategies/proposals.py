"""Proposals: the points of a space that a sequence model samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from loopwright.costmodel.sequence.decoders import Decoder, PrioritySampling, Sample
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.explore.strategies.encoded_space import EncodedSpace, Floats, Points

_LISTED = 1 << 15
"""Spaces up to this size, where not all points are legal, are listed, so that samples are."""
_REPEATS = 1000
"""Samples in a row without a new one after which a decoder is given up."""


class Proposals:
    """Legal points that a sequence model samples, each once, in the decoder's order."""

    def __init__(
        self,
        encoded: EncodedSpace,
        model: SequenceModel,
        rng: np.random.Generator,
        decoder: Decoder | None = None,
    ) -> None:
        self.encoded, self._model = encoded, model
        gaps = encoded.legal is not None and encoded.space.size <= _LISTED
        self._grammar = Grammar(encoded.space, encoded.listed if gaps else None)
        decoder = decoder or PrioritySampling()
        self._samples = _different(model.samples(self._grammar, decoder, rng))
        self.points = np.empty((0, encoded.width), np.int64)
        """Points sampled so far."""
        self.logs = np.empty(0)
        """Logarithms of their probabilities."""

    def first(self, n: int) -> Points:
        """The first `n` points, or as many as there are."""
        while (lacks := n - len(self.points)) > 0:
            new = list(itertools.islice(self._samples, lacks))
            if not new:
                break
            points = np.zeros((len(new), self.encoded.width), np.int64)
            for row, sample in zip(points, new, strict=True):
                point = self._grammar.point(sample.sequence)
                row[: len(point)] = point
            legal = self.encoded.is_legal(points)
            logs = np.array([s.log_probability for s in new])
            self.points = np.concatenate([self.points, points[legal]])
            self.logs = np.append(self.logs, logs[legal])
        return self.points[:n]

    def log_probabilities(self, points: Points) -> Floats:
        """Logarithms of the probabilities of any points of the space."""
        sequences = [self._grammar.sequence(point) for point in points.tolist()]
        return np.array([self._model.log_probability(self._grammar, s) for s in sequences])


def _different(samples: Iterator[Sample]) -> Iterator[Sample]:
    """Samples without those that came before; it ends where a decoder goes on repeating them."""
    known: set[tuple[int, ...]] = set()
    repeated = 0
    for sample in samples:
        repeated = repeated + 1 if sample.sequence in known else 0
        if not repeated:
            known.add(sample.sequence)
            yield sample
        elif repeated == _REPEATS:
            return
