"""Sequence models of records: which of the configs that were measured are good."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from loopwright.costmodel.model import Floats, ModelError
from loopwright.costmodel.sequence.examples import Group
from loopwright.costmodel.sequence.grammar import Grammar
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.packages import optional
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space
from loopwright.transfer.pretrained.dataset import known_costs
from loopwright.transfer.records.lookup import Setting, comparable
from loopwright.transfer.records.store import RecordStore


def read_examples(
    stores: Iterable[RecordStore], wanted: Callable[[Setting], bool] = lambda _: True
) -> Iterator[Group]:
    """The good configs of stores, a group for each workload on each machine.

    Settings that are not `wanted` are left out, and so are those of which no config that this
    version has worked.
    """
    for store in stores:
        for members in comparable(filter(wanted, store.settings())):
            found = known_costs(store, members)
            if found and any(map(math.isfinite, found[1].values())):
                points, costs, _ = found
                yield _group(points, list(costs), np.array(list(costs.values())))


def _group(points: Space, configs: list[Config], costs: Floats) -> Group:
    grammar = Grammar(points)
    numbers = {sketch.name: number for number, sketch in enumerate(points.sketches)}
    sequences = [
        grammar.sequence((numbers[c.sketch], *points.sketch(c.sketch).numbers(c))) for c in configs
    ]
    return Group.of(grammar, sequences, costs)


def train_sequence(
    groups: Sequence[Group], seed: int = 0, base: SequenceModel | None = None
) -> SequenceModel:
    """A sequence model of groups; `base` is one that it goes on from. Raises `ModelError` where
    there is nothing to learn, or no torch."""
    optional("torch", "the training of a sequence model", ModelError)
    from loopwright.costmodel.sequence.training import train

    return train(groups, seed=seed, base=base)
