"""What the nodes of an ONNX graph read, need and state: names, shapes, attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def read_in(graph: Any) -> Iterator[str]:
    """The names that nodes read, those of graphs inside too."""
    for node in graph.node:
        yield from node.input
        for a in node.attribute:
            for inner in (a.g, *a.graphs):
                for name in (*read_in(inner), *(v.name for v in inner.output)):
                    yield name
                    yield name  # as often as a loop does


def described(graph: Any) -> Iterator[str]:
    """The names of which nodes read the shape or the type alone."""
    for node in graph.node:
        if node.op_type in ("Shape", "Size"):
            yield from node.input
        elif node.op_type == "CastLike":
            yield from node.input[1:]


def needed(graph: Any) -> list[Any]:
    """The nodes that outputs depend on, in order."""
    wanted = {v.name for v in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
            for a in node.attribute:
                for inner in (a.g, *a.graphs):
                    wanted.update((*read_in(inner), *(v.name for v in inner.output)))
    return kept[::-1]


def stated(graph: Any) -> dict[str, tuple[int, ...]]:
    """The fixed shapes that a graph states for its values."""
    found = {}
    for value in (*graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
            found[value.name] = tuple(d.dim_value for d in kind.shape.dim)
    return found


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of a node as values of Python's."""
    return {a.name: _attribute(a) for a in node.attribute}


def _attribute(a: Any) -> Any:
    from onnx import helper, numpy_helper

    value = helper.get_attribute_value(a)
    if a.HasField("t"):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return [v.decode(errors="replace") if isinstance(v, bytes) else v for v in value]
    return value
