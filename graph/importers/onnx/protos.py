"""What the nodes of an ONNX graph read, need and state: names, shapes, attributes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from loopwright.packages import onnx


def in_order(model: Any) -> Any:
    """A `ModelProto` whose nodes stand behind those whose results they read, which onnxruntime's
    converters do not ensure: the same one where they do."""
    if all(_order(graph) == [*range(len(graph.node))] for graph in _graphs(model.graph)):
        return model
    made = type(model)()
    made.CopyFrom(model)
    for graph in [*_graphs(made.graph)]:
        nodes = [graph.node[n] for n in _order(graph)]
        kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)
    return made


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph behind those inside of it."""
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from _graphs(inner)
    yield graph


def inner_graphs(node: Any) -> list[Any]:
    """The graphs inside of a node. Converters leave empty ones in attributes of other types."""
    own = [a.g for a in node.attribute if a.type == a.GRAPH]
    return own + [graph for a in node.attribute if a.type == a.GRAPHS for graph in a.graphs]


def _order(graph: Any) -> list[int]:
    """The numbers of nodes in an order in which each reads what is there, as near as may be to
    theirs; those that wait for themselves are last."""
    makers = {name: n for n, node in enumerate(graph.node) for name in node.output if name}
    readers: dict[int, list[int]] = {}
    waiting = []
    for n, node in enumerate(graph.node):
        names = {*node.input, *(name for graph in inner_graphs(node) for name in read_in(graph))}
        before = {makers[name] for name in names if name in makers}
        waiting.append(len(before))
        for maker in before:
            readers.setdefault(maker, []).append(n)
    ready = [n for n, count in enumerate(waiting) if not count]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for n in readers.get(order[-1], ()):
            waiting[n] -= 1
            if not waiting[n]:
                heapq.heappush(ready, n)
    return order + [n for n, count in enumerate(waiting) if count]


def read_in(graph: Any) -> Iterator[str]:
    """The names that nodes read, those of graphs inside too."""
    for node in graph.node:
        yield from node.input
        for inner in inner_graphs(node):
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
            for inner in inner_graphs(node):
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


def attribute(a: Any) -> Any:
    """The attribute of a node as a value of Python's."""
    value = onnx.helper.get_attribute_value(a)
    if a.HasField("t"):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        strings = bool(value) and isinstance(value[0], bytes)
        return [v.decode(errors="replace") for v in value] if strings else list(value)
    return value
