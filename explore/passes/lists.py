"""Pass lists to begin with, random ones and varied ones.

A model proposes others. What of a list matters is found by leaving parts out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import numpy as np

from loopwright.codegen.passes.table import PASSES, PIPELINES, SWITCHES, Elements
from loopwright.costmodel.sequence.decoders import PrioritySampling
from loopwright.costmodel.sequence.examples import Group
from loopwright.costmodel.sequence.model import SequenceModel
from loopwright.costmodel.sequence.pass_lists import LONGEST, PassGrammar, Vocabulary, context_of

MOST = 24
"""Passes of a random list at most."""
_WHOLE = 0.7
"""Share of random lists that have one of LLVM's own inside."""
_CHANGES = 3
"""Elements that a variation changes at most."""


def drawn(rng: np.random.Generator, switches: int = 0) -> Elements:
    """A random list of single passes, mostly with one of LLVM's own, and some switches."""
    count = int(rng.integers(1, MOST + 1))
    passes = [PASSES[n] for n in rng.integers(len(PASSES), size=count)]
    if rng.random() < _WHOLE:
        passes.insert(int(rng.integers(count + 1)), _one(PIPELINES, rng))
    return legal((*passes, *(_one(SWITCHES, rng) for _ in range(rng.integers(switches + 1)))))


def varied(elements: Elements, rng: np.random.Generator, switches: int = 0) -> Elements:
    """A list that differs in a few elements: some are left out, put in, or of another kind."""
    left = list(elements)
    for _ in range(int(rng.integers(1, _CHANGES + 1))):
        kind = rng.integers(3)
        if kind < 2 and left:
            del left[int(rng.integers(len(left)))]
        if kind > 0:
            among = SWITCHES if switches and rng.random() < 0.5 else PASSES
            left.insert(int(rng.integers(len(left) + 1)), _one(among, rng))
    return legal(tuple(left)) or (_one(PASSES, rng),)


def minimized(elements: Elements, same: Callable[[Elements], bool]) -> Elements:
    """The list without elements that change nothing: those whose absence is the `same`, from the
    last to the first, until none is left to drop (Cummins et al. 2023, section III.B)."""
    before: Elements = ()
    while before != elements:
        before = elements
        for place in reversed(range(len(before))):
            fewer = (*elements[:place], *elements[place + 1 :])
            if fewer and same(fewer):
                elements = fewer
    return elements


def _one(among: Elements, rng: np.random.Generator) -> str:
    return among[int(rng.integers(len(among)))]


def legal(elements: Elements) -> Elements:
    """Elements without a second switch of one name, which LLVM refuses."""
    kept: dict[str, str] = {}
    for number, element in enumerate(elements):
        switch = element.startswith("-")
        kept.setdefault(element.partition("=")[0] if switch else str(number), element)
    return tuple(kept.values())


GOOD: tuple[Elements, ...] = (
    *((one,) for one in PIPELINES),
    *(("default<O3>", one) for one in SWITCHES),
)
"""LLVM's own lists, and -O3 with each of the switches: what a variation of the best combines."""


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
