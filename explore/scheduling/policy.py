"""`Policy`: a network that schedules in ten actions, run by NumPy and kept as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from loopwright.explore.scheduling.loops import (
    ACTIONS,
    NUMBERS,
    ROWS,
    Floats,
    Problem,
    State,
    check_problems,
)

if TYPE_CHECKING:
    from loopwright.explore.scheduling.evaluators import Evaluator

KIND, VERSION = "schedule policy", 1
INPUTS = ROWS * NUMBERS + STEPS + 1


def inputs(states: Sequence[State], left: Sequence[int]) -> Floats:
    """Inputs of a network, of shape (states, `INPUTS`): logarithms of observations, and how many
    actions are left, one-hot."""
    made = np.zeros((len(states), INPUTS), np.float32)
    for row, state, steps in zip(made, states, left, strict=True):
        row[: ROWS * NUMBERS] = np.log2(1 + state.observation).ravel() / 4
        row[ROWS * NUMBERS + steps] = 1
    return made


class Policy:
    """Chooses actions by the largest output of a network: values of Q-learning, or logits.
    `layers` are weights (inputs, outputs) and biases, with rectifiers between; `about` is JSON."""

    def __init__(self, layers: Sequence[tuple[Floats, Floats]], about: dict[str, Any]) -> None:
        self.layers, self.about = tuple(layers), about

    def outputs(self, x: Floats) -> Floats:
        """The network's outputs of shape (n, actions), for inputs of shape (n, `INPUTS`)."""
        for n, (weights, biases) in enumerate(self.layers):
            x = x @ weights + biases
            x = x if n == len(self.layers) - 1 else np.maximum(x, 0)
        return x

    def episode(self, problem: Problem) -> list[State]:
        """The states of the episode of the best actions, from the first. Nothing is measured."""
        states = [State.first(problem)]
        for left in range(STEPS, 0, -1):
            outputs = self.outputs(inputs(states[-1:], [left]))[0]
            best = int(np.where(states[-1].mask, outputs, -np.inf).argmax())
            after = states[-1].successors[best]
            assert after is not None
            states.append(after)
        return states

    def schedule(self, problem: Problem, evaluator: Evaluator | None = None) -> State:
        """The schedule that it chooses: the end of its episode, or the fastest on its way as an
        evaluator tells. Raises `ConfigError` for what is no problem."""
        check_problems([problem])
        states = self.episode(problem)
        if evaluator is None:
            return states[-1]
        return states[int(np.argmax(evaluator.speeds(states)))]

    def __repr__(self) -> str:
        return f"<Policy: {', '.join(f'{name}: {value}' for name, value in self.about.items())}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file; `ModelError` where that cannot be done."""
        layers = [[numbers_to_text(w), numbers_to_text(b)] for w, b in self.layers]
        content = {"version": VERSION, "actions": list(ACTIONS), "layers": layers}
        write_model(path, KIND, content | {"about": self.about})

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
            policy = Policy(layers, dict(content["about"]))
            fits = policy.outputs(np.zeros((1, INPUTS), np.float32)).shape == (1, len(ACTIONS))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"{path} holds no policy ({brief(error)})") from error
        if not fits:
            raise ModelError(f"{path} holds a network of another shape")
        return policy
