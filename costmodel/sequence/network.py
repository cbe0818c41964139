"""Network of a sequence model in NumPy: a context, a recurrent state, a score for each choice.

A choice is embedded by its numbers and words, so that the network has no fixed set of choices:
e = relu(words + numbers W + b). The state begins as h = tanh(Σ relu(axis W) V + machine M + c),
and a gated recurrent unit (Cho et al. 2014) takes in each choice that is made. The logit of a
choice is v · relu(e A + h U), and a softmax runs over those that are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.sequence.description import (
    AXIS,
    MACHINE,
    NUMBERS,
    Context,
    Described,
    Floats,
)

HIDDEN = 64
"""Hidden units of the score: most of the time goes into these, once for each choice."""
SCALE = 0.25
"""Factor of numbers on their way in: they are logarithms up to about 20."""


def shapes(
    words: int, width: int, axis: int = AXIS, machine: int = MACHINE
) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters, for so many known words, and numbers of an axis and a machine;
    word 0 is any unknown one."""
    return {
        "words": (1 + words, width),
        "numbers": (NUMBERS, width),
        "choice": (width,),
        "axes": (axis, width),
        "axis": (width,),
        "pooled": (width, width),
        "machine": (machine, width),
        "start": (width,),
        "taken": (width, 3 * width),
        "kept": (width, 3 * width),
        "gates": (3 * width,),
        "scored": (width, HIDDEN),
        "state": (width, HIDDEN),
        "score": (HIDDEN,),
    }


@dataclass(frozen=True, eq=False)
class Embedded:
    """Choices of a decision for the network: what the score adds, and what the state takes in."""

    scored: Floats
    taken: Floats


@dataclass(frozen=True, eq=False)
class Network:
    """Parameters by name, with the number of each word, and how many numbers describe an axis and
    a machine of the context."""

    parameters: Mapping[str, Floats]
    words: Mapping[str, int]
    sizes: tuple[int, int] = (AXIS, MACHINE)

    def __post_init__(self) -> None:
        width = len(self.parameters["start"])
        for name, shape in shapes(len(self.words), width, *self.sizes).items():
            if self.parameters[name].shape != shape:
                found = self.parameters[name].shape
                raise ModelError(f"parameters {name!r} have the shape {found}, not {shape}")

    def start(self, context: Context) -> Floats:
        """The state before the first decision, of shape (width,)."""
        p = self.parameters
        axes = np.maximum(SCALE * context.axes @ p["axes"] + p["axis"], 0).sum(axis=0)
        machine = SCALE * context.machine @ p["machine"]
        state: Floats = np.tanh(SCALE * axes @ p["pooled"] + machine + p["start"])
        return state

    def embedded(self, described: Described) -> Embedded:
        """The choices of a decision, embedded."""
        p = self.parameters
        known = [[self.words.get(w, 0) for w in own] for own in described.words]
        words = np.stack([p["words"][own].sum(axis=0) for own in known])
        e = np.maximum(words + SCALE * described.numbers @ p["numbers"] + p["choice"], 0)
        return Embedded(e @ p["scored"], e @ p["taken"] + p["gates"])

    def log_probabilities(self, state: Floats, embedded: Embedded) -> Floats:
        """Logarithms of the probabilities of a decision's choices."""
        p = self.parameters
        logits = np.maximum(embedded.scored + state @ p["state"], 0) @ p["score"]
        logits -= logits.max()
        result: Floats = logits - np.log(np.exp(logits).sum())
        return result

    def next(self, state: Floats, taken: Floats) -> Floats:
        """The state after a choice, of which `taken` is the row of `Embedded.taken`."""
        width = len(state)
        kept = state @ self.parameters["kept"]
        gates = 1 / (1 + np.exp(-(taken[: 2 * width] + kept[: 2 * width])))
        update, reset = gates[:width], gates[width:]
        new = np.tanh(taken[2 * width :] + reset * kept[2 * width :])
        return np.asarray(update * state + (1 - update) * new, np.float32)
