"""Best-first search: the decoder that finds sequences in exact order, to compare others with."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.sequence.decoders import Decoder, Node, Sample


@dataclass(frozen=True)
class BestFirst(Decoder):
    """The most probable sequences, exactly, in order. Paths only lose probability."""

    def samples(self, root: Node, rng: np.random.Generator) -> Iterator[Sample]:
        queue: list[tuple[float, int, Node, int]] = [(0.0, 0, root, -1)]
        numbers = itertools.count(1)
        while queue:
            lost, _, node, place = heapq.heappop(queue)
            if place >= 0:
                node = node.child(place)
            logs = node.log_probabilities
            if logs is None:
                yield Sample(node.sequence, -lost)
                continue
            for other, own in enumerate(logs.tolist()):
                if own > -math.inf:
                    heapq.heappush(queue, (lost - own, next(numbers), node, other))
