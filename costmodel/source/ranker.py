"""The encoder of Cummins et al. 2017 as a cost model, under Eq. 2 of Chen et al. 2018.

Needs torch, which is imported when a model is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from loopwright.costmodel.features.representation import as_read
from loopwright.costmodel.model import Floats, Integers, ModelError, RandomModel, check_data
from loopwright.costmodel.models.file import (
    StoredModel,
    learned_from,
    numbers_of_text,
    numbers_to_text,
)
from loopwright.costmodel.models.losses import RankLoss, relative
from loopwright.costmodel.models.mlp import Scale
from loopwright.costmodel.models.torch_threads import one_thread
from loopwright.costmodel.source.tokens import LONGEST, SYMBOLS
from loopwright.packages import optional

if TYPE_CHECKING:
    from loopwright.costmodel.models.network_training import Training

_FEWEST = 8  # successful records below which the scores are random
_SCORED = 128  # sources scored at a time
_SEEN = 2000  # records that are read in training, a hundred a second, if epochs allow it
_EPOCHS = (6, 40)  # the fewest and the most


class SourceLSTM(StoredModel):
    """Ranks programs by their text: embedding, two LSTMs, auxiliary numbers, batch normalization
    and a dense layer, as in `LSTMClassifier`, then one number in place of classes.

    Rows hold auxiliary numbers, then `LONGEST` numbers of symbols, -1 behind the end. The most
    frequent `SYMBOLS` of the rows that it learns from have an embedding, the unknown included.

    Parameters
    ----------
    seed: decides the first weights, the order of records, and scores before there is data.
    training: the numbers of training; if None, epochs are the fewer, the more records there are.
    device: where torch computes, "cpu" or "cuda".
    """

    kind: ClassVar[str] = "source-lstm"
    reads = "source-lstm"

    def __init__(
        self, seed: int = 0, training: Training | None = None, device: str = "cpu"
    ) -> None:
        _torch()  # its absence is told before anything was measured
        self.seed, self.training, self.device = int(seed), training, device
        self.about: dict[str, Any] = {}
        self._random = RandomModel(seed)
        self._symbols: Integers = np.zeros(0, np.int64)
        self._scale: Scale | None = None
        self._network: Any = None

    @property
    def ready(self) -> bool:
        return self._network is not None

    def fit(self, features: Floats, costs: Floats, groups: Integers) -> None:
        from loopwright.costmodel.models.network_training import Records, Training, learn

        check_data(features, costs, groups)
        self._network = None
        costs, rng = relative(costs, groups), np.random.default_rng(self.seed)
        enough = np.isfinite(costs).sum() >= _FEWEST
        if not enough or not RankLoss.of(costs, groups, rng).informative:
            return
        width = features.shape[1] - LONGEST
        if width < 0:
            raise ModelError(
                f"features of shape {features.shape}: this model reads {LONGEST} symbols behind "
                "auxiliary numbers, as the representation of sources makes them"
            )
        self._scale = Scale.of(features[:, :width])
        found, counts = np.unique(_numbers(features[:, width:]), return_counts=True)
        counts, found = counts[found > 0], found[found > 0]
        self._symbols = np.sort(found[np.argsort(-counts, kind="stable")[: SYMBOLS - 1]])
        epochs = int(np.clip(_SEEN // len(costs), *_EPOCHS))
        training = self.training or replace(Training(), epochs=epochs)
        network = self._empty()
        with one_thread():
            learn(network, Records(features, costs, groups, self._read), "rank", training, rng)
        self._network = network
        self.about |= learned_from(costs, groups)

    def predict(self, features: Floats) -> Floats:
        if self._network is None or self._scale is None:
            return self._random.predict(features)
        from loopwright.costmodel.models.network_training import predicted

        rows = as_read(features, self.reads, len(self._scale.mean) + LONGEST)
        if not len(rows):
            return np.zeros(0)
        with one_thread():
            return -predicted(self._network, rows, self._read, _SCORED)

    def _read(self, rows: Floats, device: str) -> tuple[list[Any], Any]:
        """Sequences and auxiliary numbers as tensors; an empty text is one unknown symbol."""
        torch, scale = _torch(), self._scale
        assert scale is not None
        width = len(scale.mean)
        known = np.append(-1, self._symbols)  # which no symbol is called
        numbers = _numbers(rows[:, width:])
        places = np.searchsorted(known, numbers).clip(max=len(known) - 1)
        places[known[places] != numbers] = 0
        lengths = (numbers >= 0).sum(axis=1).clip(min=1)
        texts = [torch.as_tensor(p[:n], device=device) for p, n in zip(places, lengths)]
        beside = torch.as_tensor(scale(rows[:, :width]), device=device)
        return texts, beside

    def _empty(self) -> Any:
        """A network that has not learned."""
        from loopwright.costmodel.source import network

        assert self._scale is not None
        sizes = len(self._symbols) + 1, len(self._scale.mean)
        return network.made(lambda: network.Ranker(*sizes), self.seed).to(self.device)

    def describe(self) -> str:
        count = sum(w.numel() for w in self._network.parameters()) if self.ready else 0
        return f"two LSTMs over text, {count} numbers, rank objective"

    def importance(self) -> dict[str, float]:
        """Not known: empty."""
        return {}

    def content(self) -> dict[str, Any]:
        assert self._scale is not None
        weights = self._network.state_dict()
        return {
            "seed": self.seed,
            "symbols": self._symbols.tolist(),
            "scale": [numbers_to_text(a) for a in (self._scale.mean, self._scale.factor)],
            "weights": {name: numbers_to_text(w.cpu().numpy()) for name, w in weights.items()},
        }

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> SourceLSTM:
        torch, model = _torch(), cls(content["seed"])
        model._symbols = np.array(content["symbols"], np.int64)
        model._scale = Scale(*map(numbers_of_text, content["scale"]))
        weights = {n: torch.as_tensor(numbers_of_text(w)) for n, w in content["weights"].items()}
        network = model._empty()
        network.load_state_dict(weights)
        model._network = network
        return model


def _numbers(symbols: Floats) -> Integers:
    """Symbols as integers; a program that could not be written has none."""
    return np.nan_to_num(symbols, nan=-1.0).astype(np.int64)


def _torch() -> Any:
    """torch, or a `ModelError` that says how to get it."""
    return optional("torch", 'model="source-lstm"', ModelError)
