"""Errors about whole models."""

from __future__ import annotations

from loopwright.dsl.errors import LoopwrightError


class ModelError(LoopwrightError):
    """A model that cannot be imported, built or called as asked."""


class OpenShape(ModelError):  # noqa: N818 - it says what is the matter
    """An input `name` whose shape the model leaves open: the `problem` without its remedy, and an
    `example` of a shape."""

    def __init__(self, name: str, shown: str, example: tuple[int, ...]) -> None:
        self.problem = f"input {name} has the open shape ({shown})"
        self.name, self.example = name, example
        super().__init__(f'{self.problem}: give its shape, e.g. inputs={{"{name}": {example}}}')


class UnsupportedOperator(ModelError):  # noqa: N818 - it says what is the matter
    """A function of TVM's that the notation cannot say; the message is the reason."""
