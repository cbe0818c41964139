"""A multilayer perceptron as a cost model, in NumPy.

It is smooth where trees have steps, and errs elsewhere: the mean of both ranks better than either
(`docs/global-models.md`). Two hidden layers see standardized features; several networks from
different seeds learn the same, and scores are their mean. The losses are those of boosting, each
minimized over batches of whole groups by Adam (Kingma and Ba 2015) with weight decay that is
decoupled from it (Loshchilov and Hutter 2019), a step size that rises and falls, and dropout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from loopwright.costmodel.features.representation import as_read, names_of
from loopwright.costmodel.model import Floats, Integers, RandomModel, check_data
from loopwright.costmodel.models.file import (
    StoredModel,
    checked_base,
    learned_from,
    numbers_of_text,
    numbers_to_text,
    packed,
    unpacked,
)
from loopwright.costmodel.models.holdout import Index
from loopwright.costmodel.models.losses import LOSSES, Loss, checked_objective, relative

_FEWEST = 8  # successful records below which the scores are random
_BATCH = 768  # records, about
_PIECE = 256  # records of one group that are compared in a batch, at most
_DROPPED = 0.1  # share of hidden units
_STEP, _DECAY = 2e-3, 1e-4
_FEWEST_STEPS = 300
_RISE = 0.3  # of all steps, in which the size of a step rises
_FAR = 5.0  # standard deviations beyond which a feature is no further away
_STILL = 1e-3  # standard deviation below which a feature says nothing


class MLP(StoredModel):
    """Multilayer perceptrons.

    Parameters
    ----------
    objective: as for `GBTModel`.
    seed: decides the first weights, the batches, what is dropped, and the random scores before
        there is data.
    nets: networks whose mean the scores are.
    width: units of each hidden layer.
    epochs: how often every record is seen; more often where that makes few steps.
    reads: the representation of its features.
    base: a model of the same features that it goes on from: f(x) = f_base(x) + f_own(x).
    """

    kind: ClassVar[str] = "mlp"

    def __init__(
        self,
        objective: str = "rank",
        seed: int = 0,
        nets: int = 3,
        width: int = 128,
        epochs: int = 40,
        reads: str = "relation",
        base: StoredModel | None = None,
    ) -> None:
        self.objective, self.seed = checked_objective(objective), int(seed)
        self.nets, self.width, self.epochs, self.reads = nets, width, epochs, reads
        self.base = checked_base(base, reads)
        self.about: dict[str, Any] = {}
        self._random = RandomModel(seed)
        self._scale: _Scale | None = None
        self._learned: list[_Net] = []

    @property
    def ready(self) -> bool:
        return bool(self._learned) or self.base is not None

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        check_data(features, costs, groups)
        self._learned = []
        rng = np.random.default_rng(self.seed)
        compared = relative(costs, groups)
        if np.isfinite(costs).sum() < _FEWEST:
            return
        if not LOSSES[self.objective].of(compared, groups, rng).informative:
            return
        start = np.zeros(len(costs)) if self.base is None else -self.base.predict(features)
        self._scale = _Scale.of(features)
        data = _Data(self._scale(features), compared, groups, start, self.objective)
        self._learned = [data.learned(self.width, self.epochs, rng) for _ in range(self.nets)]
        self.about |= learned_from(costs, groups)

    def predict(self, features: Floats) -> Floats:
        if not self.ready:
            return self._random.predict(features)
        start: Floats = np.zeros(len(features), np.float32)
        if self.base is not None:
            start = self.base.predict(features)
        if self._scale is None or not self._learned:
            return start
        x = self._scale(as_read(features, self.reads, len(self._scale.mean)))
        scores: Floats = start - np.mean([net(x) for net in self._learned], axis=0)
        return scores

    def describe(self) -> str:
        text = (
            f"{len(self._learned)} perceptrons of two layers of {self.width}, "
            f"{self.objective} objective"
        )
        return text if self.base is None else f"{text}, on top of {self.base.describe()}"

    def importance(self) -> dict[str, float]:
        """Importance of features, by the weights of the first layer: the sum of their squares for
        each feature."""
        if self._scale is None or not self._learned:
            return {} if self.base is None else self.base.importance()
        squares = np.mean([(net.layers[0][0] ** 2).sum(axis=1) for net in self._learned], axis=0)
        squares *= self._scale.factor > 0
        shares = squares / max(float(squares.sum()), 1e-30)
        names = names_of(self.reads, len(shares))
        return {name: float(share) for name, share in zip(names, shares) if share > 0}

    def content(self) -> dict[str, Any]:
        scale = self._scale
        return {
            "objective": self.objective,
            "seed": self.seed,
            "count": self.nets,
            "width": self.width,
            "epochs": self.epochs,
            "reads": self.reads,
            "base": None if self.base is None else packed(self.base),
            "scale": None
            if scale is None
            else [numbers_to_text(scale.mean), numbers_to_text(scale.factor)],
            "nets": [
                [numbers_to_text(a) for layer in net.layers for a in layer]
                for net in self._learned
            ],
        }

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> MLP:
        base = None if content["base"] is None else unpacked(content["base"])
        model = cls(
            content["objective"],
            content["seed"],
            int(content["count"]),
            int(content["width"]),
            int(content["epochs"]),
            content["reads"],
            base,
        )
        if not content["nets"] and base is None:
            raise ValueError("it has no networks")
        if content["nets"]:
            model._scale = _Scale(*map(numbers_of_text, content["scale"]))
            inputs = len(model._scale.mean)
            model._learned = [
                _Net.of(list(map(numbers_of_text, n)), inputs) for n in content["nets"]
            ]
        return model


@dataclass(frozen=True, eq=False)
class _Scale:
    """Standardizes features."""

    mean: Floats
    factor: Floats

    @staticmethod
    def of(features: Floats) -> _Scale:
        known = np.nan_to_num(features)
        deviation = known.std(axis=0)
        moves = deviation > _STILL
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=moves)
        return _Scale(known.mean(axis=0), factor)

    def __call__(self, features: Floats) -> Floats:
        known = np.nan_to_num(features)  # what a sketch does not have is no number
        scaled: Floats = np.clip((known - self.mean) * self.factor, -_FAR, _FAR)
        return scaled.astype(np.float32, copy=False)


Layer = tuple[Floats, Floats]


@dataclass(eq=False)
class _Net:
    """Layers of weights, of shape (inputs, outputs), and biases; what comes out of the last one is
    the predicted cost."""

    layers: list[Layer]

    @staticmethod
    def drawn(sizes: Sequence[int], rng: np.random.Generator) -> _Net:
        """Network with the weights to begin with, of which the last layer's are 0."""
        layers = []
        for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes), 2):
            bound = 0.0 if number == len(sizes) else 1.0 / math.sqrt(inputs)
            weights = rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)
            layers.append((weights, np.zeros(outputs, np.float32)))
        return _Net(layers)

    @staticmethod
    def of(arrays: Sequence[Floats], inputs: int) -> _Net:
        """Network of weights and biases, alternating; ValueError where their shapes do not fit
        each other."""
        layers = list(zip(arrays[::2], arrays[1::2], strict=True))
        for weights, biases in layers:
            if weights.shape != (inputs, *biases.shape) or biases.ndim != 1:
                raise ValueError("the layers of a network do not fit each other")
            inputs = len(biases)
        if inputs != 1:
            raise ValueError(f"a network has {inputs} results")
        return _Net(layers)

    def __call__(self, x: Floats) -> Floats:
        for weights, biases in self.layers[:-1]:
            x = _silu(x @ weights + biases)[0]
        weights, biases = self.layers[-1]
        cost: Floats = (x @ weights + biases)[:, 0]
        return cost

    def gradients(
        self, x: Floats, start: Floats, loss: Loss, rng: np.random.Generator
    ) -> list[Layer]:
        """Gradients of the loss of `start` and what is added to it, some units being dropped."""
        seen, slopes = [x], []
        for weights, biases in self.layers[:-1]:
            x, slope = _silu(x @ weights + biases)
            kept = (rng.random(x.shape, np.float32) >= _DROPPED) / np.float32(1.0 - _DROPPED)
            x, slope = x * kept, slope * kept
            seen.append(x)
            slopes.append(slope)
        weights, biases = self.layers[-1]
        slope, _ = loss.derivatives(start + (x @ weights + biases)[:, 0])
        back = (slope / len(x)).astype(np.float32)[:, None]
        found: list[Layer] = []
        for (weights, _), x in zip(reversed(self.layers), reversed(seen)):
            found.append((x.T @ back, back.sum(axis=0)))
            if slopes:
                back = (back @ weights.T) * slopes.pop()
        return found[::-1]


def _silu(x: Floats) -> tuple[Floats, Floats]:
    """x · sigmoid(x), and its derivative."""
    share = 1.0 / (1.0 + np.exp(-np.clip(x, -30.0, 30.0)))
    return x * share, share * (1.0 + x * (1.0 - share))


@dataclass(frozen=True, eq=False)
class _Data:
    """Training data: scaled features, relative costs, groups, and predictions that the networks go
    on from."""

    x: Floats
    costs: Floats
    groups: Integers
    start: Floats
    objective: str

    def learned(self, width: int, epochs: int, rng: np.random.Generator) -> _Net:
        """A network."""
        net = _Net.drawn((self.x.shape[1], width, width, 1), rng)
        batches: list[tuple[Index, Integers]] = []
        for epoch in itertools.count():
            if epoch >= epochs and len(batches) >= _FEWEST_STEPS:
                break
            batches += self._batches(rng)
        adam = _Adam(net, len(batches))
        for batch, pieces in batches:
            loss = LOSSES[self.objective].of(self.costs[batch], pieces, rng)
            if loss.informative:
                adam.step(net.gradients(self.x[batch], self.start[batch], loss, rng))
        return net

    def _batches(self, rng: np.random.Generator) -> Iterator[tuple[Index, Integers]]:
        """All records once, in batches of whole groups, or of pieces of large ones, and which
        records are of one piece."""
        order = rng.permutation(len(self.groups))
        order = order[np.argsort(self.groups[order], kind="stable")]
        ends = np.flatnonzero(np.diff(self.groups[order])) + 1
        pieces = [
            piece
            for group in np.split(order, ends)
            for piece in np.array_split(group, -(-len(group) // _PIECE))
        ]
        batch: list[Index] = []
        for number in rng.permutation(len(pieces)):
            batch.append(pieces[number])
            if sum(map(len, batch)) >= _BATCH:
                yield _joined(batch)
                batch = []
        if batch:
            yield _joined(batch)


def _joined(pieces: Sequence[Index]) -> tuple[Index, Integers]:
    return np.concatenate(pieces), np.repeat(np.arange(len(pieces)), list(map(len, pieces)))


class _Adam:
    """Adam with decoupled weight decay, its steps rising and falling over so many."""

    def __init__(self, net: _Net, steps: int) -> None:
        self.arrays = [a for layer in net.layers for a in layer]
        self.first, self.second = ([np.zeros_like(a) for a in self.arrays] for _ in range(2))
        self.steps, self.taken = steps, 0

    def step(self, gradients: Sequence[Layer]) -> None:
        """Change the net's weights, in place."""
        self.taken += 1
        size = _STEP * self._share()
        corrected = (1.0 - 0.9**self.taken, 1.0 - 0.999**self.taken)
        flat = [g for layer in gradients for g in layer]
        for a, g, m, v in zip(self.arrays, flat, self.first, self.second):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            a *= 1.0 - size * _DECAY
            a -= size * (m / corrected[0]) / (np.sqrt(v / corrected[1]) + 1e-8)

    def _share(self) -> float:
        rise = max(_RISE * self.steps, 1.0)
        if self.taken <= rise:
            return self.taken / rise
        return 0.5 * (1.0 + math.cos(math.pi * (self.taken - rise) / max(self.steps - rise, 1.0)))
