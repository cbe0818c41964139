"""The network of Cummins et al. 2017 (DeepTune) as a classifier.

Needs torch, which is imported when a model first learns or is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopwright.costmodel.model import Floats, Integers, ModelError
from loopwright.costmodel.models.file import numbers_of_text, numbers_to_text
from loopwright.costmodel.models.torch_threads import one_thread
from loopwright.costmodel.source.batch import Batch
from loopwright.packages import optional


class LSTMClassifier:
    """Embedding, two LSTMs, auxiliary numbers, batch normalization and a dense layer.

    Trained as published: Adam, 50 epochs, batches of 64, the loss of a second head on the LSTMs'
    output with weight 0.2. Sequences are padded behind their end instead of at the front.
    """

    epochs = 50

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sizes: tuple[int, int, int] = (0, 0, 0)
        self._network: Any = None

    def fit(self, batch: Batch, classes: Integers, weights: Floats, groups: Integers) -> None:
        """Learn the classes of a batch; groups do not matter to it."""
        network = _module()
        self._sizes = (batch.size, batch.auxiliary.shape[1], int(classes.max()) + 1)
        self._network = self._empty()
        rng = np.random.default_rng(self._seed)
        columns = (batch.sequences(), batch.auxiliary, classes, weights)
        with one_thread():
            network.learn(self._network, *columns, self.epochs, rng)

    def _empty(self) -> Any:
        """A network that has not learned."""
        network = _module()
        return network.made(lambda: network.Classifier(*self._sizes), self._seed)

    def scores(self, batch: Batch) -> Floats:
        """Share of belief in each class: (sources, classes)."""
        scores: Floats = _module().scores(self._network, batch.sequences(), batch.auxiliary)
        return scores

    def content(self) -> dict[str, Any]:
        """The weights, as JSON."""
        weights = self._network.state_dict()
        return {
            "sizes": list(self._sizes),
            "weights": {name: numbers_to_text(w.numpy()) for name, w in weights.items()},
        }

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over what `content` told."""
        torch = optional("torch", 'kind="lstm"', ModelError)
        symbols, auxiliary, classes = content["sizes"]
        self._sizes = (symbols, auxiliary, classes)
        self._network = self._empty()
        found = {n: torch.as_tensor(numbers_of_text(w)) for n, w in content["weights"].items()}
        self._network.load_state_dict(found)


def _module() -> Any:
    """The module that imports torch; a `ModelError` says how to get it where it is missing."""
    optional("torch", 'kind="lstm"', ModelError)
    from loopwright.costmodel.source import network

    return network
