"""Training of networks from records, in torch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loopwright.costmodel.model import Floats, Integers
from loopwright.costmodel.models.holdout import Index, split
from loopwright.costmodel.models.losses import LOSSES, Loss

Read = Callable[[Floats, str], Any]
"""Makes of rows what a network takes, on a device."""

_CHUNK = 1024  # rows scored at a time


@dataclass(frozen=True)
class Training:
    """The numbers of training.

    Attributes
    ----------
    epochs: passes over the records, of which those after the best for held-out records are
        forgotten.
    patience: passes without a lower loss on the held-out records after which it ends.
    least: records from which on some are held out.
    steps: about so many make a pass; each sees 32 to 128 records, at least `block` of a group.
    rate: of Adam at the beginning; it falls to 0 by a cosine.
    decay: of weights, apart from the gradient, as AdamW does it.
    """

    epochs: int = 40
    patience: int = 15
    least: int = 200
    steps: int = 16
    block: int = 32
    rate: float = 1e-2
    decay: float = 1e-3


@dataclass(frozen=True, eq=False)
class Records:
    """Training data: rows, costs relative to the group's best, groups; how rows are read."""

    rows: Floats
    costs: Floats
    groups: Integers
    read: Read

    def part(self, places: Index) -> Records:
        return Records(self.rows[places], self.costs[places], self.groups[places], self.read)

    def loss(self, objective: str, rng: np.random.Generator) -> Loss:
        return LOSSES[objective].of(self.costs, self.groups, rng)


def learn(
    network: Any, records: Records, objective: str, training: Training, rng: np.random.Generator
) -> None:
    """Adjust the weights of a network, which predicts costs and says on which `device` it is.
    Those that were best for held-out records are kept."""
    places = split(records.rows, records.groups, rng, training.least)
    seen, held_out = map(records.part, places)
    losses = seen.loss(objective, rng), held_out.loss(objective, rng)
    checked = all(loss.informative for loss in losses)
    if not checked:
        seen = records
    optimizer = torch.optim.AdamW(
        [w for w in network.parameters() if w.requires_grad],
        training.rate,
        weight_decay=training.decay,
    )
    best, best_loss, waited = copy.deepcopy(network.state_dict()), np.inf, 0
    if checked:  # a network that has learned before may be better than what becomes of it
        best_loss = losses[1].value(predicted(network, held_out.rows, records.read))
    for epoch in range(training.epochs):
        for group in optimizer.param_groups:
            group["lr"] = 0.5 * training.rate * (1 + math.cos(math.pi * epoch / training.epochs))
        _epoch(network, optimizer, seen, objective, training, rng)
        if not checked:
            continue
        loss = losses[1].value(predicted(network, held_out.rows, records.read))
        waited += 1
        if loss < best_loss:
            best, best_loss, waited = copy.deepcopy(network.state_dict()), loss, 0
        if waited >= training.patience:
            break
    if checked:
        network.load_state_dict(best)


def predicted(network: Any, rows: Floats, read: Read, chunk: int = _CHUNK) -> Floats:
    """Predicted costs f of shape (n,), float64."""
    network.eval()
    starts = range(0, max(len(rows), 1), chunk)
    with torch.inference_mode():
        parts = [network(read(rows[i : i + chunk], network.device)) for i in starts]
    return torch.cat(parts).double().cpu().numpy()  # type: ignore[no-any-return]


def _epoch(
    network: Any,
    optimizer: Any,
    records: Records,
    objective: str,
    training: Training,
    rng: np.random.Generator,
) -> None:
    """One step for each batch."""
    network.train()
    for places in _batches(records.groups, training, rng):
        part = records.part(places)
        if not part.loss(objective, rng).informative:
            continue  # one record of a group, which normalization cannot learn from, either
        loss = _LOSSES[objective](network(part.read(part.rows, network.device)), part)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def _batches(groups: Integers, training: Training, rng: np.random.Generator) -> Iterator[Index]:
    """All records in random order, with several of a group in each batch."""
    blocks: list[Index] = []
    for group in np.unique(groups):
        members = rng.permutation(np.flatnonzero(groups == group))
        count = -(-len(members) // training.block)
        blocks += np.array_split(members, count)
    wanted = min(max(len(groups) // training.steps, 32), 128)
    per_batch = -(-wanted // training.block)
    order = rng.permutation(len(blocks))
    for start in range(0, len(order), per_batch):
        yield np.concatenate([blocks[i] for i in order[start : start + per_batch]])


def _rank(f: Any, records: Records) -> Any:
    """Eq. 2 over all pairs of a batch that are of one group."""
    costs, groups = records.costs, records.groups
    slower = (costs[:, None] > costs) & (groups[:, None] == groups)
    pairs = torch.as_tensor(slower, device=f.device)
    return torch.nn.functional.softplus(f[None, :] - f[:, None])[pairs].mean()


def _squared(f: Any, records: Records) -> Any:
    """½(f - log₂ c)², without the failures."""
    valid = np.isfinite(records.costs)
    targets = np.log2(records.costs[valid]).astype(np.float32)
    places = torch.as_tensor(np.flatnonzero(valid), device=f.device)
    errors = f[places] - torch.as_tensor(targets, device=f.device)
    return 0.5 * (errors**2).mean()


_LOSSES = {"rank": _rank, "regression": _squared}
