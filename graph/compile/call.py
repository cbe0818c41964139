"""Calls of a compiled model, with what the model that it was made of takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from loopwright.codegen.library.calls import positional
from loopwright.codegen.library.signature import Parameter
from loopwright.codegen.library.torch_tensors import any_tensor, to_numpy, to_torch
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.words import brief

_ROWS = (tuple, list)


class Callee(Protocol):
    """A callable that computes outputs of inputs, by position or by name, as a `Library` does."""

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Inputs of a call, in order."""

    def __call__(self, /, *inputs: Any, **named: Any) -> Any: ...


@dataclass(frozen=True, eq=False)
class ModelCall:
    """Calls a model's library as the model is called. `several`: the model returns a tuple, of one
    element too, or what `structure` makes. `order` names the inputs, with those `fixed` since they
    decide what is computed. `arguments` are
    nested as the model takes them, with the names of inputs."""

    library: Callee
    several: bool
    structure: Callable[[Sequence[Any]], Any] | None = None
    order: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Outputs for inputs by position or by name: torch tensors if any input is one."""
        if self.arguments and (_is_by_name(inputs) or any(map(_is_nested, named.values()))):
            inputs, named = (), self._by_input(inputs, named)
        inputs = tuple(_leaves(inputs))
        is_torch = any_tensor((*inputs, *named.values()))
        if is_torch:
            inputs = tuple(to_numpy(x) for x in inputs)
            named = {name: to_numpy(x) for name, x in named.items()}
        if self.fixed:
            inputs, named = (), self._without_fixed(inputs, named)
        result = self.library(*inputs, **named)
        outputs = result if isinstance(result, tuple) else (result,)
        if is_torch:
            outputs = tuple(map(to_torch, outputs))
        if self.structure is not None:
            return self.structure(outputs)
        return outputs if self.several else outputs[0]

    def _by_input(self, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of a call by name, of arguments that are nested."""
        taken = f"the model takes {', '.join(self.arguments)}"
        values = positional(tuple(given), named, tuple(self.arguments), taken)
        return dict(_named(tuple(self.arguments.values()), values))

    def _without_fixed(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The inputs of a call by name. Raises `ModelError` where fixed ones differ."""
        taken = [p.name for p in self.library.inputs]
        names = self.order if self.order and len(inputs) > len(taken) else taken
        if len(inputs) > len(names):
            raise ShapeError(f"got {len(inputs)} inputs; the model takes {', '.join(names)}")
        by_position = dict(zip(names, inputs))
        if twice := by_position.keys() & named.keys():
            raise ShapeError(f"{min(twice)!r} was given twice, by position and by name")
        by_name = by_position | named
        for name in self.fixed.keys() & by_name.keys():
            if not np.array_equal(by_name[name], self.fixed[name]):
                raise ShapeError(
                    f"{name} decides what is computed, and was fixed to "
                    f"{self.fixed[name].tolist()}: leave it out, or build the model again"
                )
        return {name: x for name, x in by_name.items() if name not in self.fixed}


def _named(names: Any, x: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of a nested input, by their names, which are nested alike."""
    if names is None and x is None:
        return
    if isinstance(names, str):
        yield names, x
    elif isinstance(names, Mapping) and isinstance(x, Mapping) and names.keys() == x.keys():
        for key, inner in names.items():
            yield from _named(inner, x[key])
    elif isinstance(names, _ROWS) and isinstance(x, _ROWS) and len(names) == len(x):
        for inner, one in zip(names, x):
            yield from _named(inner, one)
    else:
        raise ShapeError(
            f"{brief(x)} is nested otherwise than the model takes it: give {names}, with an array "
            "for each name"
        )


def _is_by_name(x: Any) -> bool:
    """Return whether the order of an input's arrays does not tell their names."""
    return (
        x is None or isinstance(x, Mapping) or (isinstance(x, _ROWS) and any(map(_is_by_name, x)))
    )


def _is_nested(x: Any) -> bool:
    has_arrays = isinstance(x, _ROWS) and any(hasattr(y, "shape") for y in x)
    return has_arrays or _is_by_name(x)


def _leaves(inputs: Sequence[Any]) -> Iterator[Any]:
    """Arrays of inputs that may be nested, as the states of an LSTM are."""
    for x in inputs:
        if isinstance(x, _ROWS) and any(hasattr(y, "shape") for y in x):
            yield from _leaves(x)
        else:
            yield x
