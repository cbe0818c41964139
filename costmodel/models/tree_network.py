"""The network of the TreeGRU (Chen et al. 2018, section 4, Figures 3c and 3d), in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from loopwright.costmodel.model import Floats
from loopwright.costmodel.models.tree_batch import TreeBatch


class TreeNetwork(nn.Module):
    """From tree batches to predicted costs.

    A loop's vector z is its columns, standardized, or, where identifiers are given, with a learned
    embedding in place of the last one. A GRU, whose state is the sum of what the loops inside of
    it came to, makes its embedding h, from the innermost loops outwards:

        h = GRU(z, Σ h of the loops inside)

    Each h is scattered into m slots by softmax(Wᵀh), the slots are summed over all loops of the
    tree, and a linear layer makes a number of them:

        f = v · Σ softmax(Wᵀh) ⊗ h + b

    which is computed as Σ softmax(Wᵀh) · (Vh), with the rows of V one for each slot: the same sum,
    without the slots of every loop in memory.
    """

    def __init__(self, columns: int, identifiers: int, hidden: int, slots: int) -> None:
        """`identifiers` is how many the last column has; 0 if it is a column like the others."""
        super().__init__()
        self.identifiers = identifiers
        plain = columns - 1 if identifiers else columns
        self.mean = nn.Parameter(torch.zeros(plain), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(plain), requires_grad=False)
        self.names = nn.Embedding(identifiers + 1, _EMBEDDED) if identifiers else None
        self.cell = nn.GRUCell(plain + (_EMBEDDED if identifiers else 0), hidden)
        self.scatter = nn.Linear(hidden, slots, bias=False)
        self.linear = nn.Linear(hidden, slots, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, tree_batch: Batch) -> Any:
        """Predicted costs, shape (n,)."""
        return self.summarize(tree_batch, self.encode(tree_batch.loops))

    def summarize(self, tree_batch: Batch, z: Any) -> Any:
        """Predicted costs, shape (n,), from the vectors of all loops."""
        inside: Any = None
        found = []
        for start, end in reversed(list(zip(tree_batch.levels, tree_batch.levels[1:]))):
            state = z.new_zeros(end - start, self.cell.hidden_size)
            if inside is not None:
                below = slice(end, end + len(inside))
                state = state.index_add(0, tree_batch.parents[below], inside)
            inside = self.cell(z[start:end], state)
            found.append(inside)
        sums = z.new_zeros(tree_batch.n)
        if found:
            h = torch.cat(found[::-1])
            parts = (self.scatter(h).softmax(dim=1) * self.linear(h)).sum(dim=1)
            sums = sums.index_add(0, tree_batch.trees, parts)
        return sums + self.bias

    def encode(self, loops: Any) -> Any:
        """The vectors z of loops, from their columns."""
        if self.names is None:
            return (loops - self.mean) * self.scale
        plain = (loops[:, :-1] - self.mean) * self.scale
        return torch.cat([plain, self.names(loops[:, -1].long())], dim=1)

    @property
    def device(self) -> str:
        """Device of the weights."""
        return str(self.bias.device)

    def standardize(self, loops: Floats) -> None:
        """Take mean and scale from the loops that will be learned from, if there are any."""
        if not len(loops):
            return
        plain = torch.as_tensor(loops[:, : len(self.mean)])
        self.mean.copy_(plain.mean(dim=0))
        self.scale.copy_(1.0 / (plain.std(dim=0, unbiased=False) + _SMALL))


_EMBEDDED = 16  # numbers that stand for an identifier
_SMALL = 1e-2


class Batch:
    """A tree batch as tensors on a device."""

    def __init__(self, tree_batch: TreeBatch, device: str) -> None:
        self.loops = torch.as_tensor(tree_batch.loops, dtype=torch.float32, device=device)
        self.trees = torch.as_tensor(tree_batch.trees, device=device)
        self.parents = torch.as_tensor(tree_batch.parents, device=device)
        self.levels, self.n = tree_batch.levels, tree_batch.n


def explained(network: TreeNetwork, rows: Floats, names: tuple[str, ...]) -> Floats:
    """Importance of a loop's columns, shape (columns,). It is the mean of |∂f/∂z| over the loops
    of some trees, z being the columns over their standard deviation."""
    batch = Batch(TreeBatch.of(rows, names), network.device)
    z = network.encode(batch.loops).detach().requires_grad_()
    if not len(z):
        return np.zeros(len(names))
    (gradient,) = torch.autograd.grad(network.summarize(batch, z).sum(), z)
    matter: Floats = gradient.abs().mean(dim=0).double().cpu().numpy()
    return np.add.reduceat(matter, range(len(names)))  # an embedding counts as its column
