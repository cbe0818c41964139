"""Decoders: which sequences of a model of decisions are taken, and in which order."""

from __future__ import annotations

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from loopwright.costmodel.model import ModelError

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

KEYS = ("token", "mean", "joint")
"""Keys of Priority Sampling: the probability of the alternative alone, the geometric mean of the
prefix that it ends, and the probability of that prefix."""


class Node(Protocol):
    """A prefix with what a model says of its continuations."""

    @property
    def sequence(self) -> tuple[int, ...]: ...

    @property
    def log_probabilities(self) -> Floats | None:
        """Log-probability of each allowed choice; None where the sequence is whole."""

    def child(self, place: int) -> Node:
        """The prefix that the choice at a place of the allowed ones makes."""


@dataclass(frozen=True)
class Sample:
    """A whole sequence and the logarithm of its probability."""

    sequence: tuple[int, ...]
    log_probability: float


class Decoder(ABC):
    """Takes sequences from a model, one after the other, for as long as they are asked for."""

    @abstractmethod
    def samples(self, root: Node, rng: np.random.Generator) -> Iterator[Sample]:
        """Samples from the empty prefix; only `Nucleus` is random, repeats and never ends."""


class Greedy(Decoder):
    """The likeliest choice at each step: one sample."""

    def samples(self, root: Node, rng: np.random.Generator) -> Iterator[Sample]:
        yield from itertools.islice(PrioritySampling().samples(root, rng), 1)


@dataclass(frozen=True)
class Nucleus(Decoder):
    """Draws among the likeliest choices that together have the share `top` (Holtzman et al. 2020).

    Probabilities are sharpened by a `temperature` below 1, and flattened by one above it.
    """

    temperature: float = 1.0
    top: float = 0.95

    def __post_init__(self) -> None:
        if not self.temperature > 0 or not 0 < self.top <= 1:
            raise ModelError(
                f"temperature = {self.temperature} and top = {self.top}: give a positive "
                "temperature, and a share above 0 and at most 1"
            )

    def samples(self, root: Node, rng: np.random.Generator) -> Iterator[Sample]:
        while True:
            node, total = root, 0.0
            while (logs := node.log_probabilities) is not None:
                place = self._drawn(logs, rng)
                total += float(logs[place])
                node = node.child(place)
            yield Sample(node.sequence, total)

    def _drawn(self, logs: Floats, rng: np.random.Generator) -> int:
        scaled = np.asarray(logs, np.float64) / self.temperature
        chances = np.exp(scaled - scaled.max())
        chances /= chances.sum()
        order = np.argsort(-chances, kind="stable")
        before = np.cumsum(chances[order]) - chances[order]
        kept = order[before < self.top]
        return int(rng.choice(kept, p=chances[kept] / chances[kept].sum()))


@dataclass(frozen=True)
class PrioritySampling(Decoder):
    """Different samples, the most confident ones first (Grubisic et al. 2024).

    The first sample is greedy. Each step puts its alternatives on a priority queue. The next
    sample follows the best of them, and is greedy from there. `key` is one of `KEYS`; `branches`
    limits the alternatives of a step, the likeliest first.
    """

    key: str = "token"
    branches: int | None = None

    def __post_init__(self) -> None:
        if self.key not in KEYS:
            raise ModelError(f"key = {self.key!r}: use one of {', '.join(KEYS)}")
        if self.branches is not None and self.branches < 1:
            raise ModelError(f"branches = {self.branches}: give an integer of at least 1, or None")

    def samples(self, root: Node, rng: np.random.Generator) -> Iterator[Sample]:
        queue: list[tuple[float, int, float, Node, int]] = [(0.0, 0, 0.0, root, -1)]
        numbers = itertools.count(1)
        while queue:
            _, _, total, node, place = heapq.heappop(queue)
            if place >= 0:
                node = node.child(place)
            while (logs := node.log_probabilities) is not None:
                order = np.argsort(-logs, kind="stable").tolist()
                for other in order[1:][: self.branches]:
                    own, depth = float(logs[other]), len(node.sequence) + 1
                    key = self._key(own, total + own, depth)
                    heapq.heappush(queue, (-key, next(numbers), total + own, node, other))
                total += float(logs[order[0]])
                node = node.child(order[0])
            yield Sample(node.sequence, total)

    def _key(self, own: float, total: float, depth: int) -> float:
        if self.key == "token":
            return own
        return total if self.key == "joint" else total / depth


@dataclass(frozen=True)
class Varied(Decoder):
    """The greedy sample, then those of a flattened nucleus: among a few that are measured, one is
    the better the less they are alike."""

    temperature: float = 1.6

    def samples(self, root: Node, rng: np.random.Generator) -> Iterator[Sample]:
        yield from Greedy().samples(root, rng)
        yield from Nucleus(self.temperature).samples(root, rng)


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
