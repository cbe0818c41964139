"""Network and training of Cummins et al. 2017, section 3, in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from loopwright.costmodel.model import Floats, Integers

_WIDTH = 64  # numbers of an embedding and of an LSTM's state
_DENSE = 32
_LONGEST = 1024  # symbols that are read, the last ones
_BATCH = 64
_SECOND = 0.2  # weight of the loss of the second head
_SCORED = 256  # sources scored at a time


class Network(torch.nn.Module):
    """Table 5 of the paper, with the second head of its notebook."""

    def __init__(self, symbols: int, auxiliary: int, classes: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(symbols, _WIDTH)
        self.lstm = torch.nn.LSTM(_WIDTH, _WIDTH, num_layers=2)
        self.normalization = torch.nn.BatchNorm1d(_WIDTH + auxiliary)
        self.hidden = torch.nn.Linear(_WIDTH + auxiliary, _DENSE)
        self.head = torch.nn.Linear(_DENSE, classes)
        self.second = torch.nn.Linear(_WIDTH, classes)

    def forward(self, sequences: list[Any], auxiliary: Any) -> tuple[Any, Any]:
        """Logits of both heads, each (sources, classes)."""
        # Padded behind the end, where nothing is read. The gradient of a packed LSTM takes time
        # that grows with the square of the length: each step's is as long as the batch.
        embedded = self.embedding(pad_sequence(sequences))
        last = torch.as_tensor([len(s) - 1 for s in sequences])
        text = self.lstm(embedded)[0][last, torch.arange(len(sequences))]
        both = self.normalization(torch.cat([text, auxiliary], dim=1))
        return self.head(torch.relu(self.hidden(both))), self.second(text)


def made(symbols: int, auxiliary: int, classes: int, seed: int) -> Network:
    """A network with weights that the seed decides; the caller's random numbers stay."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % (1 << 63))
        network = Network(symbols, auxiliary, classes)
    with torch.no_grad():  # forget gates begin open, as the published ones do
        for layer in range(2):
            getattr(network.lstm, f"bias_ih_l{layer}")[_WIDTH : 2 * _WIDTH] = 1.0
    return network


def learn(
    network: Network,
    sequences: list[Integers],
    auxiliary: Floats,
    classes: Integers,
    weights: Floats,
    epochs: int,
    rng: np.random.Generator,
) -> None:
    """Adjust the weights of a network by Adam."""
    texts, beside = _tensors(sequences, auxiliary)
    labels = torch.as_tensor(classes)
    scale = torch.as_tensor(weights / weights.mean(), dtype=torch.float32)
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


def scores(network: Network, sequences: list[Integers], auxiliary: Floats) -> Floats:
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
    texts = [
        torch.as_tensor(s[-_LONGEST:] if len(s) else np.zeros(1, np.int64)) for s in sequences
    ]
    return texts, torch.as_tensor(auxiliary, dtype=torch.float32)


def _errors(logits: Any, labels: Any) -> Any:
    """Cross-entropy of each row, where sigmoids that are divided by their sum are the shares."""
    beliefs = torch.sigmoid(logits)
    chosen = torch.gather(beliefs, 1, labels[:, None])[:, 0]
    return torch.log(beliefs.sum(dim=1)) - torch.log(chosen.clamp_min(1e-7))
