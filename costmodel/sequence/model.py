"""`SequenceModel`: the probability of each sequence of decisions to be a good one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import (
    SEQUENCE,
    numbers_of_text,
    numbers_to_text,
    read_model,
    write_model,
)
from loopwright.costmodel.sequence.decoders import Decoder, Sample
from loopwright.costmodel.sequence.description import AXIS, MACHINE, Floats
from loopwright.costmodel.sequence.grammar import Decision, Decisions, Prefix
from loopwright.costmodel.sequence.network import Embedded, Network
from loopwright.dsl.words import brief

VERSION = 2
"""Version of the description of choices; a file of another one means something else."""


class SequenceModel:
    """Proposes configs, decision by decision, for any space; or pass lists, for any kernel.
    `about` tells what its `network` learned from, as JSON."""

    def __init__(self, network: Network, about: dict[str, Any]) -> None:
        self.network, self.about = network, about

    def samples(
        self, grammar: Decisions, decoder: Decoder, rng: np.random.Generator
    ) -> Iterator[Sample]:
        """Whole sequences of a grammar, in the decoder's order."""
        return decoder.samples(self.root(grammar), rng)

    def root(self, grammar: Decisions) -> Prediction:
        """The empty prefix. Raises `ModelError` for decisions of another kind than it learned."""
        wanted = self.network.sizes[0]
        if (found := grammar.context.axes.shape[1]) != wanted:
            about = {AXIS: "configs"}
            raise ModelError(
                f"this is a {self.describe()}, and proposes no "
                f"{about.get(found, 'pass lists')}: give a model that has learned these"
            )
        return Prediction(_Run(self.network, grammar), (), self.network.start(grammar.context))

    def log_probability(self, grammar: Decisions, sequence: Prefix) -> float:
        """Logarithm of the probability of a whole sequence."""
        node, total = self.root(grammar), 0.0
        for choice in sequence:
            decision = grammar.decision(node.sequence)
            logs = node.log_probabilities
            assert decision is not None
            assert logs is not None
            place = decision.allowed.index(choice)
            total += float(logs[place])
            node = node.child(place)
        return total

    def describe(self) -> str:
        """The model in a few words."""
        count = sum(p.size for p in self.network.parameters.values())
        return f"sequence model of good {self._of}, {count} parameters"

    @property
    def _of(self) -> str:
        return "configs" if self.network.sizes[0] == AXIS else "pass lists"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file; `ModelError` where that cannot be done."""
        parameters = {n: numbers_to_text(p) for n, p in self.network.parameters.items()}
        words = list(self.network.words)
        content = {"version": VERSION, "words": words, "parameters": parameters}
        content["context"] = list(self.network.sizes)
        write_model(path, SEQUENCE, content | {"about": self.about})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> SequenceModel:
        """Read what `save` wrote; `ModelError` for anything else."""
        _, content = read_model(path, SEQUENCE)
        if content.get("version") != VERSION:
            raise ModelError(
                f"{path} describes choices as version {content.get('version')} does, this is "
                f"{VERSION}: make it again with `loopwright model train --model sequence`"
            )
        try:
            parameters = {n: numbers_of_text(p) for n, p in content["parameters"].items()}
            words = {word: 1 + number for number, word in enumerate(content["words"])}
            axis, machine = content.get("context", (AXIS, MACHINE))
            network = Network(parameters, words, (axis, machine))
            return SequenceModel(network, dict(content["about"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"{Path(path)} holds no sequence model ({brief(error)})") from error


class _Run:
    """One network on one grammar: each decision is embedded once."""

    def __init__(self, network: Network, grammar: Decisions) -> None:
        self.network, self.grammar = network, grammar
        self._known: dict[Decision, Embedded] = {}

    def embedded(self, decision: Decision) -> Embedded:
        if decision not in self._known:
            self._known[decision] = self.network.embedded(decision.described)
        return self._known[decision]


class Prediction:
    """A prefix of a config and what the model says of its continuations: a decoder's `Node`."""

    def __init__(self, run: _Run, sequence: Prefix, state: Floats) -> None:
        self._run, self.sequence, self._state = run, sequence, state
        self._decision = run.grammar.decision(sequence)
        self.log_probabilities: Floats | None = None
        if self._decision is not None:
            embedded = run.embedded(self._decision)
            self.log_probabilities = run.network.log_probabilities(state, embedded)

    def child(self, place: int) -> Prediction:
        """The prefix with one more choice, the one at a place of the allowed ones."""
        assert self._decision is not None
        taken = self._run.embedded(self._decision).taken[place]
        state = self._run.network.next(self._state, taken)
        return Prediction(self._run, (*self.sequence, self._decision.allowed[place]), state)
