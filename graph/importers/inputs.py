"""Inputs of a model as users give them, and the errors of TVM's importers."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief
from loopwright.graph.errors import ModelError

Inputs = Sequence[Any] | Mapping[str, Any] | None
_LINES = 4  # of an error of torch's


def by_name(inputs: Inputs, names: Sequence[str]) -> Mapping[str, Any]:
    """Inputs given for these names; of tensors of the notation the shapes. Raises `ModelError`."""
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        check_several(inputs)
        if len(inputs) > len(names):
            raise ModelError(f"{len(inputs)} inputs given; the model takes {', '.join(names)}")
        inputs = dict(zip(names, inputs))
    unknown = [n for n in inputs if n not in names]
    if unknown:
        raise ModelError(f"the model has no input {unknown[0]!r}; it takes {', '.join(names)}")
    return {n: x.shape if isinstance(x, Tensor) else x for n, x in inputs.items()}


def arrays(inputs: Inputs, names: Sequence[str]) -> tuple[Any, ...]:
    """The arrays given for these names, in order; none where one is missing or is a shape."""
    given = by_name(inputs, names)
    if all(hasattr(given.get(name), "dtype") for name in names):
        return tuple(given[name] for name in names)
    return ()


def check_several(inputs: Any) -> None:
    """Raises `ModelError` for what is no tuple of inputs. One array would be taken apart into what
    stands along its first axis."""
    if hasattr(inputs, "shape"):
        raise ModelError(
            f"inputs is one array, of shape {tuple(inputs.shape)}: give a tuple of arrays, one "
            "for each input of the model, such as (x,)"
        )
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise ModelError(
            f"inputs is {brief(inputs)}: give a tuple of arrays or shapes, one for each input of "
            'the model, such as (x,), or a dict by their names, such as {"x": (1, 3, 224, 224)}'
        )


def shape_of(name: str, x: Any) -> tuple[int, ...]:
    """The shape of an array, or what is one. Raises `ModelError` for anything else."""
    given: Any = x.shape if hasattr(x, "shape") else x
    try:
        shape = tuple(map(operator.index, given))
    except TypeError:
        shape = (0,)
    if any(n < 1 for n in shape) and not (hasattr(x, "shape") and all(n >= 0 for n in shape)):
        raise ModelError(
            f"input {name}: {brief(given)} is no shape: give an array, or extents of at least 1, "
            "such as (1, 3, 224, 224)"
        )
    return shape


def reason(error: Exception) -> str:
    """Reason that an error gives: of TVM's the last line, without the stack of its calls; of
    others the first lines, before what torch adds of its graph and its logs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    of_tvm = bool(lines) and type(error).__module__.startswith("tvm")
    return lines[-1] if of_tvm else "\n".join(lines[:_LINES])
