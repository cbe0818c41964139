"""Examples of good configs, in arrays that a network is trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.sequence.description import Context, Floats
from loopwright.costmodel.sequence.grammar import Decision, Decisions, Prefix

Integers = np.ndarray[Any, np.dtype[np.int64]]

TAU = 0.1
"""τ: a config that takes 1 + τ times as long as the best of its group has 1/e of its weight."""
_LEAST = 1e-3
"""Weight of the best below which a config is left out."""


@dataclass(frozen=True, eq=False)
class Group:
    """Whole sequences of one space with weights, the larger the better a config is."""

    context: Context
    decisions: tuple[tuple[Decision, ...], ...]
    chosen: tuple[tuple[int, ...], ...]
    """For each sequence the place of each choice among the allowed ones."""
    weights: Floats

    @staticmethod
    def of(
        grammar: Decisions, sequences: Sequence[Prefix], costs: Floats, tau: float = TAU
    ) -> Group:
        """A group by its costs, of any unit: weights are exp(-(c / c_best - 1) / τ).

        Raises `ModelError` where no cost is finite and positive, or numbers of both differ.
        """
        costs = np.asarray(costs, np.float64)
        if len(costs) != len(sequences) or not (costs > 0).all() or not np.isfinite(costs).any():
            raise ModelError(
                f"{len(sequences)} configs have the costs {costs}: give a positive one for each, "
                "of which one is finite"
            )
        return weighted(grammar, sequences, np.exp(-(costs / costs.min() - 1) / tau))


def weighted(grammar: Decisions, sequences: Sequence[Prefix], weights: Floats) -> Group:
    """A group by weights, of which the largest is 1."""
    kept = np.flatnonzero(weights > _LEAST)
    found = [_decisions(grammar, sequences[place]) for place in kept.tolist()]
    chosen = tuple(
        tuple(d.allowed.index(c) for d, c in zip(decisions, sequences[place], strict=True))
        for place, decisions in zip(kept.tolist(), found, strict=True)
    )
    shares = weights[kept] / weights[kept].sum()
    return Group(grammar.context, tuple(found), chosen, shares.astype(np.float32))


def _decisions(grammar: Decisions, sequence: Prefix) -> tuple[Decision, ...]:
    """The decisions that a whole sequence answers."""
    found = (grammar.decision(sequence[:end]) for end in range(len(sequence)))
    return tuple(decision for decision in found if decision is not None)


class Vocabulary:
    """Words by number, from 1, and the words of decisions as numbers."""

    def __init__(self, words: Mapping[str, int]) -> None:
        self.words = words
        self._known: dict[Decision, Integers] = {}

    def numbers(self, decision: Decision) -> Integers:
        """The words of each choice, 0 for an unknown one, padded with -1."""
        if decision not in self._known:
            every = decision.described.words
            found = np.full((len(every), max(map(len, every))), -1, np.int64)
            for row, own in zip(found, every, strict=True):
                row[: len(own)] = [self.words.get(w, 0) for w in own]
            self._known[decision] = found
        return self._known[decision]


def vocabulary(groups: Sequence[Group]) -> dict[str, int]:
    """Numbers of the words that more than one group has, or the only one, from 1."""
    counts: Counter[str] = Counter()
    for group in groups:
        found = {d for own in group.decisions for d in own}
        counts.update({w for d in found for own in d.described.words for w in own})
    least = min(2, len(groups))
    return {word: 1 + n for n, word in enumerate(sorted(w for w in counts if counts[w] >= least))}


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences as flat arrays, padded at the end.

    Attributes
    ----------
    axes, axis_of: axes of all contexts, and the context of each.
    machines: machine numbers of each context.
    context: the context of each sequence.
    numbers, words: of each choice of the different decisions; words padded with -1.
    taken: of each step of a sequence the choice that was made, -1 behind its end; (steps, n).
    scored, row: the choices that are to be scored, and the step, counted over (steps, n), where.
    """

    axes: Floats
    axis_of: Integers
    machines: Floats
    context: Integers
    numbers: Floats
    words: Integers
    taken: Integers
    scored: Integers
    row: Integers


def batch(
    groups: Sequence[Group], vocabulary: Vocabulary, each: int, rng: np.random.Generator
) -> Batch:
    """A batch of `each` sequences of every group, drawn by weight."""
    first: dict[Decision, int] = {}
    numbers: list[Floats] = []
    words: list[Integers] = []
    steps: list[list[tuple[int, int, int]]] = []
    size = 0
    for group in groups:
        for place in rng.choice(len(group.weights), each, p=_shares(group.weights)).tolist():
            own = []
            for decision, choice in zip(group.decisions[place], group.chosen[place]):
                if decision not in first:
                    first[decision] = size
                    size += len(decision.allowed)
                    numbers.append(decision.described.numbers)
                    words.append(vocabulary.numbers(decision))
                own.append((first[decision], len(decision.allowed), choice))
            steps.append(own)
    longest, count = max(map(len, steps)), len(steps)
    taken = np.full((longest, count), -1, np.int64)
    scored, row = [], []
    for n, own in enumerate(steps):
        for t, (start, among, choice) in enumerate(own):
            taken[t, n] = start + choice
            scored.append(np.arange(start, start + among))
            row.append(np.full(among, t * count + n))
    widest = max(known.shape[1] for known in words)
    padded = [np.pad(w, ((0, 0), (0, widest - w.shape[1])), constant_values=-1) for w in words]
    contexts = [group.context for group in groups]
    return Batch(
        np.concatenate([c.axes for c in contexts]),
        np.repeat(np.arange(len(contexts)), [len(c.axes) for c in contexts]),
        np.stack([c.machine for c in contexts]),
        np.repeat(np.arange(len(contexts)), each),
        np.concatenate(numbers),
        np.concatenate(padded),
        taken,
        np.concatenate(scored),
        np.concatenate(row),
    )


def _shares(weights: Floats) -> np.ndarray[Any, np.dtype[np.float64]]:
    shares = weights.astype(np.float64)
    result: np.ndarray[Any, np.dtype[np.float64]] = shares / shares.sum()
    return result
