"""Training of a sequence model, in torch: weighted likelihood of good configs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.torch_threads import one_thread
from loopwright.costmodel.sequence.description import Floats
from loopwright.costmodel.sequence.examples import Batch, Group, Vocabulary, batch, vocabulary
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.sequence.network import SCALE, Network, shapes

WIDTH = 128
"""Numbers of the state."""
_GROUPS, _SEQUENCES, _EACH = 16, 384, 64
"""Groups and sequences of a batch, and sequences of a group, at most."""
_STEPS, _OF_GROUP = 1500, 30
"""Batches, at most, and for each group; few groups are soon learned by heart."""
_RATE, _DECAY, _CLIP = 3e-3, 1e-2, 1.0


@one_thread()
def train(
    groups: Sequence[Group],
    steps: int | None = None,
    seed: int = 0,
    width: int = WIDTH,
    base: SequenceModel | None = None,
) -> SequenceModel:
    """A model of the groups' good configs, after so many batches, by default as many as they need;
    it goes on from a base, whose width it has.

    All groups count alike; within one, configs are drawn by their weights. AdamW (Loshchilov and
    Hutter 2019) with a rate that rises and falls. Raises `ModelError` where there is no group.
    """
    groups = [g for g in groups if any(g.chosen)]
    if not groups:
        raise ModelError("there is nothing to learn from: give records, or costs of pass lists")
    steps = steps or min(_STEPS, _OF_GROUP * len(groups))
    words, rng = vocabulary(groups), np.random.default_rng(seed)
    first: dict[str, Floats] = {}
    if base:
        old = base.network
        first, width = dict(old.parameters), len(old.parameters["start"])
        more = sorted(set(words) - set(old.words))
        words = {**old.words, **{w: 1 + len(old.words) + n for n, w in enumerate(more)}}
        first["words"] = np.concatenate([first["words"], _initial((len(more), width), rng)])
    sizes = (groups[0].context.axes.shape[1], len(groups[0].context.machine))
    parameters = {
        name: torch.tensor(first.get(name, _initial(shape, rng))).requires_grad_()
        for name, shape in shapes(len(words), width, *sizes).items()
    }
    optimizer = torch.optim.AdamW(parameters.values(), _RATE, weight_decay=_DECAY)
    known, losses = Vocabulary(words), []
    for step in range(steps):
        rate = min(1.0, 20 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.param_groups[0]["lr"] = _RATE * rate
        few = rng.permutation(len(groups))[:_GROUPS]
        each = min(_EACH, _SEQUENCES // len(few))
        loss = _loss(parameters, batch([groups[g] for g in few], known, each, rng))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), _CLIP)
        optimizer.step()
        losses.append(loss.item())
    learned = {name: p.detach().numpy() for name, p in parameters.items()}
    about: dict[str, object] = {
        "groups": len(groups),
        "configs": sum(len(g.weights) for g in groups),
        "steps": steps,
        "loss": round(float(np.mean(losses[-max(1, steps // 10) :])), 4),
    }
    if base:
        about["base"] = base.about
    return SequenceModel(Network(learned, words, sizes), about)


def _initial(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    scale = 1 / math.sqrt(max(shape[0], 1)) if len(shape) > 1 else 0.1
    return rng.normal(0.0, min(scale, 0.2), shape).astype(np.float32)


def _loss(p: Mapping[str, torch.Tensor], data: Batch) -> torch.Tensor:
    """Mean over sequences of the negative logarithm of their probability."""
    width = len(p["start"])
    axes = torch.relu(SCALE * torch.from_numpy(data.axes) @ p["axes"] + p["axis"])
    pooled = torch.zeros(len(data.machines), width)
    pooled = pooled.index_add(0, torch.from_numpy(data.axis_of), axes)
    machine = SCALE * torch.from_numpy(data.machines) @ p["machine"]
    state = torch.tanh(SCALE * pooled @ p["pooled"] + machine + p["start"])
    state = state[torch.from_numpy(data.context)]
    places = torch.from_numpy(data.words)
    words = torch.nn.functional.embedding_bag(
        places.clamp(min=0), p["words"], mode="sum", per_sample_weights=(places >= 0).float()
    )
    numbers = SCALE * torch.from_numpy(data.numbers) @ p["numbers"]
    e = torch.relu(words + numbers + p["choice"])
    scored, taken = e @ p["scored"], e @ p["taken"] + p["gates"]
    states = []
    for chosen in torch.from_numpy(data.taken):
        states.append(state)
        own = taken[chosen.clamp(min=0)]
        kept = state @ p["kept"]
        gates = torch.sigmoid(own[:, : 2 * width] + kept[:, : 2 * width])
        update, reset = gates[:, :width], gates[:, width:]
        new = torch.tanh(own[:, 2 * width :] + reset * kept[:, 2 * width :])
        state = update * state + (1 - update) * new
    row, choice = torch.from_numpy(data.row), torch.from_numpy(data.scored)
    asked = (torch.cat(states) @ p["state"])[row]
    logits = torch.relu(scored[choice] + asked) @ p["score"]
    rows = data.taken.size
    most = torch.full((rows,), -torch.inf).scatter_reduce(0, row, logits.detach(), "amax")
    sums = torch.zeros(rows).index_add(0, row, torch.exp(logits - most[row]))
    made = torch.from_numpy(data.taken.reshape(-1))[row] == choice
    return (torch.log(sums[row]) + most[row] - logits)[made].sum() / data.taken.shape[1]
