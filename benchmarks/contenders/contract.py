"""What a contender is: a function of a row, its inputs and a number of threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from suites.row import Row

from loopwright.dsl.tensor import Tensor


def _as_is(value: Any) -> np.ndarray:
    return np.asarray(value)


@dataclass(frozen=True)
class Prepared:
    """Work that was made ready: constants laid out, graphs compiled, memory taken.

    Attributes
    ----------
    run: does it once. It is what is timed.
    result: the array in the row's layout, from what `run` returned. It is not timed.
    facts: anything to be kept beside the times.
    keeps: arrays whose memory the work uses, where nothing else keeps them.
    """

    run: Callable[[], Any]
    result: Callable[[Any], np.ndarray] = _as_is
    facts: Mapping[str, Any] = field(default_factory=dict)
    keeps: Any = None


def filled(row: Row, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the row's operator, with values in place of tensors."""
    arguments = row.request.arguments
    return {n: values[a.name] if isinstance(a, Tensor) else a for n, a in arguments.items()}


def strides_and_pads(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """The stride and the padding of a row, which are the same for both axes."""
    return arguments.get("stride", arguments.get("window", 1)), arguments.get("padding", 0)
