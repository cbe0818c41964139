"""Errors about whole models."""

from __future__ import annotations

import numpy as np

from loopwright.dsl.errors import LoopwrightError


class ModelError(LoopwrightError):
    """A model that cannot be imported, built or called as asked."""


class OpenShape(ModelError):  # noqa: N818 - it says what is the matter
    """An input `name` whose shape the model leaves open: the `problem` without its remedy, an
    `example` of a shape, and the `axes` that have a name."""

    def __init__(
        self,
        name: str,
        shown: str,
        example: tuple[int, ...],
        axes: tuple[str, ...],
        note: str = "",
    ) -> None:
        self.problem = f"input {name} has the open shape ({shown}){note}"
        self.name, self.example, self.axes = name, example, axes
        bounds = ", ".join(f'"{axis}": (1, 512)' for axis in axes)
        remedy = f'give its shape, e.g. inputs={{"{name}": {example}}}'
        remedy += f", or bounds for all sizes, e.g. dims={{{bounds}}}" if axes else ""
        super().__init__(f"{self.problem}: {remedy}")


class UnsupportedOperator(ModelError):  # noqa: N818 - it says what is the matter
    """A function of TVM's that the notation cannot say; the message is the reason."""


def check_sparse(sparse: bool, is_open: bool) -> None:
    """Raises `ModelError` where zeros are to be skipped in a network of open axes."""
    if sparse and is_open:
        raise ModelError(
            "sparse=True is for networks of fixed sizes: programs for open axes skip no zeros; "
            "leave sparse out, or build the model for each size that is needed"
        )


def check_switches(**switches: object) -> None:
    """Raises `ModelError` for a switch that is neither on nor off: "no" would be on."""
    for name, value in switches.items():
        if not isinstance(value, (bool, np.bool_)):
            raise ModelError(f"{name} is {value!r}; it must be True or False")
