"""A sequence model of good pass lists: what it learns from, and what it proposes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np

from loopwright.codegen.passes.table import PASSES, PIPELINES, SWITCHES, Elements
from loopwright.costmodel.sequence.decoders import PrioritySampling
from loopwright.costmodel.sequence.examples import Group
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.sequence.pass_lists import LONGEST, PassGrammar, Vocabulary, context_of
from loopwright.explore.passes.lists import legal

VOCABULARY = Vocabulary((*PIPELINES, *PASSES, *SWITCHES))
"""The elements that a model knows."""
TAU = 0.02
"""τ of the weights: a list that costs 2 % more than the best has 1/e of its weight."""
WIDTH, STEPS = 64, 800
_BRANCHES = 5
"""Alternatives of a step that Priority Sampling keeps (Grubisic et al. 2024, Table 6.1)."""


def learned(
    examples: Iterable[tuple[str, Mapping[Elements, float]]], steps: int = STEPS
) -> SequenceModel:
    """A model of kernels, as LLVM IR before any pass, with the cost of lists that were tried.

    Costs are seconds or instructions; longer lists than `LONGEST` are left out. Needs the extra
    torch. Raises `ModelError` where there is nothing to learn from.
    """
    from loopwright.costmodel.sequence.training import train

    groups = []
    for ir, costs in examples:
        kept = {e: c for e, c in costs.items() if len(e) <= LONGEST}
        if kept:
            sequences = [VOCABULARY.sequence(e) for e in kept]
            grammar = PassGrammar(VOCABULARY, context_of(ir))
            groups.append(Group.of(grammar, sequences, np.array([*kept.values()]), TAU))
    return train(groups, steps=steps, width=WIDTH)


def proposed(model: SequenceModel, ir: str, count: int) -> list[Elements]:
    """Lists that a model proposes for a kernel, the most confident first, by Priority Sampling."""
    grammar = PassGrammar(VOCABULARY, context_of(ir))
    decoder = PrioritySampling(branches=_BRANCHES)
    samples = model.samples(grammar, decoder, np.random.default_rng(0))
    found = (legal(VOCABULARY.list_of(s.sequence)) for s in samples)
    return list(islice(dict.fromkeys(islice(found, 4 * count)), count))
