"""A multilayer perceptron as a cost model, in NumPy.

It is smooth where trees have steps: the mean of both ranks better than either
(`docs/global-models.md`). Two hidden layers see standardized features; scores are the mean of
several networks from different seeds. Losses are those of boosting, over batches of whole groups,
by Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019) and dropout.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from loopwright.costmodel.features.representation import as_read
from loopwright.costmodel.model import Floats, Integers
from loopwright.costmodel.models.file import StoredModel, numbers_of_text, numbers_to_text
from loopwright.costmodel.models.holdout import Index
from loopwright.costmodel.models.losses import Loss
from loopwright.costmodel.models.residual import Residual, Training

_BATCH = 768  # records, about
_PIECE = 256  # records of one group that are compared in a batch, at most
_DROPPED = 0.1  # share of hidden units
_STEP, _DECAY = 2e-3, 1e-4
_FEWEST_STEPS = 300
_RISE = 0.3  # of all steps, in which the size of a step rises
_FAR = 5.0  # standard deviations beyond which a feature is no further away
_STILL = 1e-3  # standard deviation below which a feature says nothing


class MLP(Residual):
    """Multilayer perceptrons.

    Parameters
    ----------
    objective, seed, reads, base: see `Residual`.
    nets: networks whose mean the scores are.
    width: units of each hidden layer.
    epochs: how often every record is seen; more often where that makes few steps.
    """

    kind: ClassVar[str] = "mlp"
    stored = {"count": ("nets", int), "width": ("width", int), "epochs": ("epochs", int)}

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
        super().__init__(objective, seed, reads, base)
        self.nets, self.width, self.epochs = nets, width, epochs

    def learned(self, training: Training, loss: Loss, rng: np.random.Generator) -> _Nets:
        scale = Scale.of(training.features)
        scaled = replace(training, features=scale(training.features))
        with _one_thread():
            return _Nets(scale, [self._net(scaled, rng) for _ in range(self.nets)])

    def _net(self, training: Training, rng: np.random.Generator) -> _Net:
        x = training.features
        net = _Net.drawn((x.shape[1], self.width, self.width, 1), rng)
        batches: list[tuple[Index, Integers]] = []
        for epoch in itertools.count():
            if epoch >= self.epochs and len(batches) >= _FEWEST_STEPS:
                break
            batches += _batches(training.groups, rng)
        adam = _Adam(net, len(batches))
        for batch, pieces in batches:
            loss = replace(training.part(batch), groups=pieces).loss(self.objective, rng)
            if loss.informative:
                adam.step(net.gradients(x[batch], training.start[batch], loss, rng))
        return net

    def costs(self, features: Floats) -> Floats:
        scale = self._own.scale
        x = scale(as_read(features, self.reads, len(scale.mean)))
        with _one_thread():
            costs: Floats = np.mean([net(x) for net in self._own.nets], axis=0)
        return costs

    def describe(self) -> str:
        count = 0 if self._own is None else len(self._own.nets)
        return self.describe_own(f"{count} perceptrons of two layers of {self.width}")

    def shares(self) -> Floats:
        """The sum of the squares of a feature's weights in the first layer."""
        weights = [(net.layers[0][0] ** 2).sum(axis=1) for net in self._own.nets]
        shares: Floats = np.mean(weights, axis=0) * (self._own.scale.factor > 0)
        return shares

    def own_content(self) -> dict[str, Any]:
        if self._own is None:
            return {"scale": None, "nets": []}
        scale = [numbers_to_text(a) for a in (self._own.scale.mean, self._own.scale.factor)]
        nets = [
            [numbers_to_text(a) for layer in net.layers for a in layer] for net in self._own.nets
        ]
        return {"scale": scale, "nets": nets}

    def own_of(self, content: Mapping[str, Any]) -> _Nets | None:
        if not content["nets"]:
            return None
        scale = Scale(*map(numbers_of_text, content["scale"]))
        inputs = len(scale.mean)
        nets = (_Net.of(list(map(numbers_of_text, n)), inputs) for n in content["nets"])
        return _Nets(scale, list(nets))


def _one_thread() -> Any:
    """Multiply matrices with one thread within. Products are small: threads would wait for each
    other, and spin for a while after each product, where a search has other work."""
    return _controller().limit(limits=1)


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")  # looking for it takes milliseconds


@dataclass(frozen=True, eq=False)
class _Nets:
    """Networks that read features to one scale."""

    scale: Scale
    nets: list[_Net]


@dataclass(frozen=True, eq=False)
class Scale:
    """Standardizes features."""

    mean: Floats
    factor: Floats

    @staticmethod
    def of(features: Floats) -> Scale:
        known = np.nan_to_num(features)
        deviation = known.std(axis=0)
        moves = deviation > _STILL
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=moves)
        return Scale(known.mean(axis=0), factor)

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
        """Network of weights and biases by turns. Raises `ValueError` where they do not fit."""
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


def _batches(groups: Integers, rng: np.random.Generator) -> Iterator[tuple[Index, Integers]]:
    """All records once, in batches of whole groups, or of pieces of large ones, and which
    records are of one piece."""
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    ends = np.flatnonzero(np.diff(groups[order])) + 1
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
