"""Sequences of tensors, followed where their lengths are known: none is left in the network.

An operator of sequences becomes ordinary operators on the tensors that stand in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.graph.errors import UnsupportedOperator
from loopwright.graph.importers.onnx.call import NotKnown
from loopwright.graph.importers.onnx.values import Value, shape_of
from loopwright.packages import onnx

_READING = (
    "ConcatFromSequence",
    "SequenceAt",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
)
"""Operators whose first input is a sequence."""
_ADDED = 13
"""The version of ONNX since which parts and axes are inputs."""


@dataclass(frozen=True)
class Sequences:
    """The names of the tensors in each sequence, by its name."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def has(self, node: Any) -> bool:
        """Return whether a node is an operator of sequences, or passes one on."""
        passed = node.op_type == "Identity" and any(n in self.names for n in node.input)
        return not node.domain and (passed or node.op_type in OPERATORS)

    def first(self, node: Any) -> int:
        """The number of the first input that is a tensor; one before it is a sequence."""
        return int(node.op_type in ("Identity", *_READING) and len(node.input) > 0)

    def plain(self, node: Any, label: str, values: dict[str, Value], version: int) -> list[Any]:
        """The ordinary nodes that stand for a node; a sequence that it gives is kept here."""
        if node.op_type == "Identity":
            self.names[node.output[0]] = self.names[node.input[0]]
            return []
        return OPERATORS[node.op_type](_Use(node, label, values, version, self.names))


@dataclass(frozen=True)
class _Use:
    """One use of an operator of sequences."""

    node: Any
    label: str
    values: dict[str, Value]
    version: int
    names: dict[str, list[str]]

    def given(self) -> list[str]:
        """The sequence that is the first input."""
        name = self.node.input[0]
        if name not in self.names:
            raise UnsupportedOperator(
                f"{self.label}: {name!r} is no sequence that is followed: those of loops, and of "
                "branches that a call chooses, are not; export the model with tensors there"
            )
        return list(self.names[name])

    def give(self, names: list[str]) -> list[Any]:
        """Keep the sequence that is the output; no nodes are left."""
        self.names[self.node.output[0]] = names
        return []

    def known(self, number: int) -> np.ndarray[Any, Any] | None:
        """An input whose elements must be known; None where it is left out."""
        if number >= len(self.node.input) or not self.node.input[number]:
            return None
        value = self.values[self.node.input[number]]
        if not isinstance(value, np.ndarray):
            raise NotKnown(self.label, self.node.input[number], value)
        return value

    def place(self, number: int, length: int, last: int, default: int) -> int:
        """A place in a sequence, counted from the front, and no further than the `last`."""
        known = self.known(number)
        place = default if known is None else self.integer(known)
        if not -length <= place <= last:
            allowed = f"; it may be {-length} to {last}" if last >= 0 else ""
            raise UnsupportedOperator(
                f"{self.label}: its place is {place}, in a sequence of {length}{allowed}"
            )
        return place + length if place < 0 else place

    def integer(self, known: np.ndarray[Any, Any]) -> int:
        """The only element of an input."""
        if known.size != 1:
            raise UnsupportedOperator(
                f"{self.label}: an input of it is {known.shape}; it may be one number"
            )
        return int(known.reshape(-1)[0])

    def attribute(self, name: str, default: int) -> int:
        """An attribute that is an integer."""
        return next((a.i for a in self.node.attribute if a.name == name), default)

    def new(self, count: int) -> list[str]:
        """Names of tensors that no model has."""
        return [f"{self.node.output[0]}:{n}" for n in range(count)]

    def with_integers(self, op: str, name: str, inputs: list[str], whole: list[int]) -> Any:
        """A node without outputs, of which integers are an input, or an attribute once."""
        if self.version < _ADDED:
            return onnx.helper.make_node(op, inputs, [], **{name: whole})
        known = f"{self.node.output[0]}:{op}"
        self.values[known] = np.array(whole, np.int64)
        return onnx.helper.make_node(op, [*inputs, known], [])


def _insert(use: _Use) -> list[Any]:
    names = use.given()
    names.insert(use.place(2, len(names), len(names), len(names)), use.node.input[1])
    return use.give(names)


def _erase(use: _Use) -> list[Any]:
    names = use.given()
    del names[use.place(1, len(names), len(names) - 1, -1)]
    return use.give(names)


def _at(use: _Use) -> list[Any]:
    names = use.given()
    place = use.place(1, len(names), len(names) - 1, 0)
    return [onnx.helper.make_node("Identity", [names[place]], use.node.output)]


def _length(use: _Use) -> list[Any]:
    use.values[use.node.output[0]] = np.array(len(use.given()), np.int64)
    return []


def _joined(use: _Use) -> list[Any]:
    names, axis, nodes = use.given(), use.attribute("axis", 0), []
    if not names:
        raise UnsupportedOperator(f"{use.label}: it joins a sequence of no tensors")
    if use.attribute("new_axis", 0):
        for old, new in zip(names, use.new(len(names)), strict=True):
            nodes.append(use.with_integers("Unsqueeze", "axes", [old], [axis]))
            nodes[-1].output.append(new)
        names = use.new(len(names))
    return [*nodes, onnx.helper.make_node("Concat", names, use.node.output, axis=axis)]


def _split(use: _Use) -> list[Any]:
    """Parts of an axis; without that axis where no lengths are said, and it is not to be kept."""
    x, parts = use.node.input[0], use.known(1)
    axis, shape = use.attribute("axis", 0), shape_of(use.values[x])
    if not -len(shape) <= axis < len(shape):
        raise UnsupportedOperator(f"{use.label}: its axis is {axis}, of {len(shape)} axes")
    extent = shape[axis]
    if parts is not None and parts.ndim:
        lengths = parts.tolist()
    else:
        step = 1 if parts is None else use.integer(parts)
        if step < 1:
            raise UnsupportedOperator(
                f"{use.label}: its parts are of {step}; allowed is 1 or more"
            )
        lengths = [min(step, extent - start) for start in range(0, extent, step)]
    names = use.new(len(lengths))
    use.give(names)
    if not names:
        return []
    made = use.with_integers("Split", "split", [x], lengths)
    made.attribute.add(name="axis", type=2, i=axis)  # an integer
    if parts is not None or use.attribute("keepdims", 1):
        made.output.extend(names)
        return [made]
    made.output.extend(f"{name}:1" for name in names)
    nodes = [made]
    for name in names:
        nodes.append(use.with_integers("Squeeze", "axes", [f"{name}:1"], [axis]))
        nodes[-1].output.append(name)
    return nodes


OPERATORS: Mapping[str, Callable[[_Use], list[Any]]] = {
    "ConcatFromSequence": _joined,
    "SequenceAt": _at,
    "SequenceConstruct": lambda use: use.give(list(use.node.input)),
    "SequenceEmpty": lambda use: use.give([]),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
"""What stands for each operator."""
