"""Graphs of torch.compile whose shapes are open, as one model for all of their sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopwright.dsl.size import dim
from loopwright.dsl.tensor import Tensor
from loopwright.packages import torch

_MOST_SYMBOLS = 2
_LEAST = 2  # torch makes graphs of their own for 0 and 1
_HIGH, _APART = 512, 4
"""The greatest size that a model is built for, and how many times as large the next one is."""


@dataclass(frozen=True)
class OpenAxes:
    """The axes of a graph's inputs that are open, by the names of torch's symbols; and the inputs
    that are numbers, each the size of a symbol."""

    of: Mapping[int, Mapping[int, str]]
    numbers: Mapping[int, str]

    @staticmethod
    def found(graph: Any) -> OpenAxes | None:
        """Open axes of a graph; None where a size is no symbol itself."""
        of: dict[int, dict[int, str]] = {}
        numbers: dict[int, str] = {}
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        for n, x in enumerate(node.meta.get("example_value") for node in nodes):
            if not hasattr(x, "shape"):
                numbers[n] = _symbol(x)
                continue
            of[n] = {k: _symbol(size) for k, size in enumerate(x.shape) if _is_open(size)}
        names = {name for axes in of.values() for name in axes.values()}
        known = all(map(str.isidentifier, names)) and names.issuperset(numbers.values())
        return OpenAxes(of, numbers) if known and names else None

    def only(self, names: Collection[str]) -> OpenAxes:
        """The axes of some symbols; the others are of the sizes that a call gives."""
        of = {n: {k: s for k, s in axes.items() if s in names} for n, axes in self.of.items()}
        return OpenAxes(of, {n: s for n, s in self.numbers.items() if s in names})

    def sizes(self, inputs: Sequence[Any]) -> dict[str, int]:
        """The sizes of a call, by the names of their symbols."""
        return {
            name: int(inputs[n].shape[k])
            for n, axes in self.of.items()
            for k, name in axes.items()
        }

    def bounds(self, inputs: Sequence[Any]) -> tuple[tuple[str, int], ...] | None:
        """The greatest sizes of the model that is right for a call; None where none is, as for
        more symbols than are built for."""
        sizes = self.sizes(inputs)
        if not 0 < len(sizes) <= _MOST_SYMBOLS or min(sizes.values()) < _LEAST:
            return None
        return tuple((name, _high(size)) for name, size in sizes.items())


@dataclass(eq=False)
class Calls:
    """What calls of a graph leave open of its axes: all, or where these are too many, or cannot
    be, those of which two calls had other sizes."""

    axes: OpenAxes | None
    _whole: bool = True
    _first: dict[str, int] = field(default_factory=dict)
    _others: set[str] = field(default_factory=set)

    def open_axes(self, inputs: Sequence[Any]) -> OpenAxes | None:
        """The axes that the model for a call has open; None where it has none."""
        if self.axes is None:
            return None
        sizes = self.axes.sizes(inputs)
        self._first = self._first or sizes
        self._others |= {name for name, size in sizes.items() if size != self._first[name]}
        every = self._whole and len(sizes) <= _MOST_SYMBOLS
        return self.axes if every else self.axes.only(self._others)

    def fixed(self, axes: OpenAxes, inputs: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of a call that a model with these axes open has not."""
        own = axes.sizes(inputs)
        every = {} if self.axes is None else self.axes.sizes(inputs)
        return tuple(size for name, size in every.items() if name not in own)

    def failed(self, axes: OpenAxes) -> None:
        """Note that there is no model with these axes open."""
        self._whole = False
        if axes is not self.axes:
            self.axes = None


def _high(size: int) -> int:
    high = _HIGH
    while high < size:
        high *= _APART
    return high


def _is_open(size: Any) -> bool:
    return not isinstance(size, int) and not _symbol(size).isdigit()  # a known one is a symbol too


def _symbol(size: Any) -> str:
    return str(size.node.expr) if hasattr(size, "node") else ""


def built_open(
    graph: Any,
    inputs: Sequence[Any],
    weights: Sequence[int],
    axes: OpenAxes,
    bounds: Sequence[tuple[str, int]],
    options: Mapping[str, Any],
) -> Callable[..., Any]:
    """A graph as a model for all sizes up to the bounds, its parameters and buffers inside.
    `inputs` are those of a call. Raises `LoopwrightError`."""
    tensors = [n for n in axes.of if n not in weights and hasattr(inputs[n], "shape")]
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    place = {s: (tensors.index(n), k) for n in tensors for k, s in axes.of[n].items()}
    dims = {name: dim(name, _LEAST, high) for name, high in bounds}
    given = {}
    for n in tensors:
        x = inputs[n]
        shape = tuple(dims[axes.of[n][k]] if k in axes.of[n] else e for k, e in enumerate(x.shape))
        given[n] = Tensor(names[n], shape, str(x.dtype).removeprefix("torch."))
    numbers = {n: place[symbol] for n, symbol in axes.numbers.items()}
    return built(graph, inputs, weights, given, numbers, options)


def built(
    graph: Any,
    inputs: Sequence[Any],
    weights: Sequence[int],
    given: Mapping[int, Any],
    numbers: Mapping[int, tuple[int, int]],
    options: Mapping[str, Any],
) -> Callable[..., Any]:
    """A graph as a model of those inputs that are `given`. Parameters and buffers are inside of
    it; `numbers` are the size of an axis of a given one, and the others are as in `inputs`."""
    from loopwright.graph.build import build_model

    # As messages call them.
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]

    class Closed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for n in weights:
                self.register_buffer(names[n], inputs[n].detach())

        def forward(self, *rest: Any) -> Any:
            left = iter(rest)
            every = []
            for n, x in enumerate(inputs):
                if n in numbers:
                    tensor, axis = numbers[n]
                    every.append(rest[tensor].shape[axis])
                elif n in given:
                    every.append(next(left))
                else:
                    every.append(getattr(self, names[n]) if n in weights else x)
            return graph.forward(*every)  # a call of it would print errors that are caught

    with torch.no_grad():
        return build_model(Closed(), tuple(given.values()), **options)
