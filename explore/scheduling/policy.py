"""`Policy`: a network that schedules in ten actions, run by NumPy and kept as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.costmodel.model import ModelError
from loopwright.costmodel.models.file import (
    numbers_of_text,
    numbers_to_text,
    read_model,
    write_model,
)
from loopwright.dsl.words import brief
from loopwright.explore.scheduling.environment import STEPS
from loopwright.explore.scheduling.evaluators import Evaluator
from loopwright.explore.scheduling.loops import ACTIONS, NUMBERS, ROWS, Floats, Problem, State

KIND, VERSION = "schedule policy", 1
INPUTS = ROWS * NUMBERS + STEPS + 1


def inputs(states: Sequence[State], left: Sequence[int]) -> Floats:
    """What a network reads, of shape (states, `INPUTS`): logarithms of observations, and how many
    actions are left, one-hot."""
    made = np.zeros((len(states), INPUTS), np.float32)
    for row, state, steps in zip(made, states, left, strict=True):
        row[: ROWS * NUMBERS] = np.log2(1 + state.observation).ravel() / 4
        row[ROWS * NUMBERS + steps] = 1
    return made


class Policy:
    """Chooses actions by the largest output of a network: values of Q-learning, or logits.

    Attributes
    ----------
    layers: weights of shape (inputs, outputs) and biases, with rectifiers between the layers.
    about: how it was trained, as JSON.
    temperature: of the softmax by which episodes are drawn, in units of the outputs.
    """

    def __init__(
        self,
        layers: Sequence[tuple[Floats, Floats]],
        about: dict[str, Any],
        temperature: float = 1.0,
    ) -> None:
        self.layers, self.about, self.temperature = tuple(layers), about, temperature

    def outputs(self, x: Floats) -> Floats:
        """The network's outputs of shape (n, actions), for inputs of shape (n, `INPUTS`)."""
        for n, (weights, biases) in enumerate(self.layers):
            x = x @ weights + biases
            x = x if n == len(self.layers) - 1 else np.maximum(x, 0)
        return x

    def episodes(
        self, problem: Problem, count: int = 1, rng: np.random.Generator | None = None
    ) -> list[list[State]]:
        """Episodes side by side, as the states of each step, the first ones included. The first
        episode takes the best actions, others are drawn. Nothing is measured."""
        steps = [[State.first(problem)] * count]
        for left in range(STEPS, 0, -1):
            states = steps[-1]
            legal = np.array([state.mask for state in states], bool)
            scores = np.where(legal, self.outputs(inputs(states, [left] * count)), -np.inf)
            if rng is not None:
                noise = rng.gumbel(size=scores.shape)
                noise[0] = 0
                scores = scores + self.temperature * noise
            actions = scores.argmax(axis=1)
            after = [s.successors[a] for s, a in zip(states, actions, strict=True)]
            steps.append([s for s in after if s is not None])
        return steps

    def schedule(
        self, problem: Problem, model: Evaluator | None = None, count: int = 32, seed: int = 0
    ) -> State:
        """The schedule that it chooses: the end of its best episode. With a model, such as
        `Modelled`, it is the one that this thinks the fastest of all on the way of `count`
        episodes, most of them drawn."""
        if model is None:
            return self.episodes(problem)[-1][0]
        steps = self.episodes(problem, count, np.random.default_rng(seed))
        met = list({s.key: s for states in reversed(steps) for s in states}.values())
        return met[int(np.argmax(model.speeds(met)))]

    def __repr__(self) -> str:
        return f"<Policy: {', '.join(f'{name}: {value}' for name, value in self.about.items())}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file; `ModelError` where that cannot be done."""
        layers = [[numbers_to_text(w), numbers_to_text(b)] for w, b in self.layers]
        content = {"version": VERSION, "actions": list(ACTIONS), "layers": layers}
        write_model(path, KIND, content | {"about": self.about, "temperature": self.temperature})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Policy:
        """Read what `save` wrote; `ModelError` for anything else."""
        _, content = read_model(path, KIND, "train_policies")
        if content.get("version") != VERSION or content.get("actions") != list(ACTIONS):
            raise ModelError(
                f"{path} is of version {content.get('version')} and this is {VERSION}: train the "
                "policy again"
            )
        try:
            layers = [(numbers_of_text(w), numbers_of_text(b)) for w, b in content["layers"]]
            policy = Policy(layers, dict(content["about"]), float(content["temperature"]))
            fits = policy.outputs(np.zeros((1, INPUTS), np.float32)).shape == (1, len(ACTIONS))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"{path} holds no policy ({brief(error)})") from error
        if not fits:
            raise ModelError(f"{path} holds a network of another shape")
        return policy
