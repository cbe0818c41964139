"""Network and training of Cummins et al. 2017, section 3, in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from loopwright.costmodel.model import Floats, Integers
from loopwright.costmodel.source.tokens import LONGEST

WIDTH = 64
"""Numbers of an embedding and of an LSTM's state."""
DENSE = 32
_BATCH = 64
_SECOND = 0.2  # weight of the loss of the second head
_SCORED = 256  # sources scored at a time


class Encoder(torch.nn.Module):
    """Table 5 of the paper, without its head."""

    def __init__(self, symbols: int, auxiliary: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(symbols, WIDTH)
        self.lstm = torch.nn.LSTM(WIDTH, WIDTH, num_layers=2)
        self.normalization = torch.nn.BatchNorm1d(WIDTH + auxiliary)
        self.hidden = torch.nn.Linear(WIDTH + auxiliary, DENSE)

    def encode(self, sequences: Sequence[Any], auxiliary: Any) -> tuple[Any, Any]:
        """The LSTMs' output, and that of the dense layer: (sources, `WIDTH`) and `DENSE`."""
        # Padded behind the end, where nothing is read. The gradient of a packed LSTM takes time
        # that grows with the square of the length: each step's is as long as the batch.
        embedded = self.embedding(pad_sequence(sequences))
        last = torch.as_tensor([len(s) - 1 for s in sequences], device=embedded.device)
        places = torch.arange(len(sequences), device=embedded.device)
        text = self.lstm(embedded)[0][last, places]
        both = self.normalization(torch.cat([text, auxiliary], dim=1))
        return text, torch.relu(self.hidden(both))


class Classifier(Encoder):
    """The head of the paper, with the second one of its notebook."""

    def __init__(self, symbols: int, auxiliary: int, classes: int) -> None:
        super().__init__(symbols, auxiliary)
        self.head = torch.nn.Linear(DENSE, classes)
        self.second = torch.nn.Linear(WIDTH, classes)

    def forward(self, sequences: Sequence[Any], auxiliary: Any) -> tuple[Any, Any]:
        """Logits of both heads, each (sources, classes)."""
        text, dense = self.encode(sequences, auxiliary)
        return self.head(dense), self.second(text)


class Ranker(Encoder):
    """One number in place of the head: a predicted cost."""

    def __init__(self, symbols: int, auxiliary: int) -> None:
        super().__init__(symbols, auxiliary)
        self.head = torch.nn.Linear(DENSE, 1)

    def forward(self, read: tuple[Sequence[Any], Any]) -> Any:
        """Predicted costs of sequences with their auxiliary numbers, of shape (sources,)."""
        return self.head(self.encode(*read)[1])[:, 0]

    @property
    def device(self) -> str:
        """Device of the weights."""
        return str(self.head.bias.device)


Made = TypeVar("Made", bound=Encoder)


def made(make: Callable[[], Made], seed: int) -> Made:
    """A network with weights that the seed decides; the caller's random numbers stay."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % (1 << 63))
        network = make()
    with torch.no_grad():  # forget gates begin open, as the published ones do
        for layer in range(2):
            getattr(network.lstm, f"bias_ih_l{layer}")[WIDTH : 2 * WIDTH] = 1.0
    return network


def learn(
    network: Classifier,
    sequences: list[Integers],
    auxiliary: Floats,
    classes: Integers,
    weights: Floats,
    epochs: int,
    rng: np.random.Generator,
) -> None:
    """Adjust the weights of a network by Adam. `weights`, of rows, have a mean of 1."""
    texts, beside = _tensors(sequences, auxiliary)
    labels = torch.as_tensor(classes)
    scale = torch.as_tensor(weights, dtype=torch.float32)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    network.train()
    count = -(-len(texts) // _BATCH)
    for _ in range(epochs):
        # Parts of equal size: normalization cannot learn from a batch of one.
        for part in np.array_split(rng.permutation(len(texts)), count):
            places = torch.as_tensor(part)
            heads = network([texts[i] for i in part], beside[places])
            first, second = (_errors(logits, labels[places]) for logits in heads)
            optimizer.zero_grad()
            (scale[places] * (first + _SECOND * second)).mean().backward()
            optimizer.step()
    network.eval()


def scores(network: Classifier, sequences: list[Integers], auxiliary: Floats) -> Floats:
    """Share of belief in each class: (sources, classes)."""
    texts, beside = _tensors(sequences, auxiliary)
    network.eval()
    with torch.no_grad():
        parts = [
            torch.sigmoid(network(texts[at : at + _SCORED], beside[at : at + _SCORED])[0])
            for at in range(0, len(texts), _SCORED)
        ]
    beliefs = torch.cat(parts).numpy()
    shares: Floats = beliefs / beliefs.sum(axis=1, keepdims=True)
    return shares


def _tensors(sequences: list[Integers], auxiliary: Floats) -> tuple[list[Any], Any]:
    """Texts and auxiliary numbers as tensors; an empty text is one unknown symbol."""
    texts = [torch.as_tensor(s[-LONGEST:] if len(s) else np.zeros(1, np.int64)) for s in sequences]
    return texts, torch.as_tensor(auxiliary, dtype=torch.float32)


def _errors(logits: Any, labels: Any) -> Any:
    """Cross-entropy of each row, where sigmoids that are divided by their sum are the shares."""
    beliefs = torch.sigmoid(logits)
    chosen = torch.gather(beliefs, 1, labels[:, None])[:, 0]
    return torch.log(beliefs.sum(dim=1)) - torch.log(chosen.clamp_min(1e-7))
