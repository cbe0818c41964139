"""Outputs of graphs of torch.compile: what is computed, and what is a view of that or of an input.

What is written to a view reaches its base, be it after the graph. So views stay views: the
compiled graph gives their base, and torch makes them of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from loopwright.dsl.errors import LoopwrightError
from loopwright.packages import torch


class Outputs:
    """The outputs of a graph, as torch lays them out. `graph` is what is to be compiled, whose
    outputs, if `any_computed`, share no memory."""

    def __init__(self, graph: Any, is_open: bool) -> None:
        *nodes, end = graph.graph.nodes
        results = end.args[0]
        inputs = [node for node in nodes if node.op == "placeholder"]
        owners: dict[int | None, Any] = {}
        for node in nodes:
            owners.setdefault(_storage(node), node)
        shared = [_storage(node) for node in results]
        self._bases = [
            owners[s] if s is not None and (owners[s] in inputs or shared.count(s) > 1) else node
            for node, s in zip(results, shared)
        ]
        computed = list(dict.fromkeys(node for node in self._bases if node not in inputs))
        self._inputs = {node: n for n, node in enumerate(inputs)}
        self._computed = {node: n for n, node in enumerate(computed)}
        self.any_computed = bool(computed)
        self.graph = _giving(graph, computed)
        self._traced = _giving(graph, [*self._bases, *results]) if is_open else None
        self._examples = [_example(node) for node in (*self._bases, *results)]
        self._views: dict[Any, list[tuple[Any, Any]]] = {}

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises `LoopwrightError` where some output is no view that can be made of its base, or
        where a graph that only gives views writes to its inputs. What writes in a graph that is
        compiled is found there."""
        self._found(inputs)
        if not self.any_computed and _writes(self.graph, inputs):
            raise LoopwrightError("it writes to its inputs: return new tensors")

    def of(self, inputs: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a call, by what the compiled graph gives."""
        bases: dict[Any, Any] = {}
        made = []
        for node, (base, view) in zip(self._bases, self._found(inputs)):
            if node not in bases:
                own = node in self._computed
                x = results[self._computed[node]] if own else inputs[self._inputs[node]]
                bases[node] = _laid_out(x, base) if own else x
            made.append(bases[node] if view is None else _view(bases[node], view))
        return tuple(made)

    def _found(self, inputs: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The strides of each output's base, and the view of it or None, found once for each
        shape."""
        key = () if self._traced is None else tuple(map(_layout, inputs))
        if key not in self._views:
            values = self._examples if self._traced is None else _traced(self._traced, inputs)
            count = len(self._bases)
            given = [node in self._inputs for node in self._bases]
            self._views[key] = list(map(_view_of, values[:count], values[count:], given))
        return self._views[key]


def _giving(graph: Any, results: Sequence[Any]) -> Any:
    """The graph with other outputs."""
    made = torch.fx.Graph()
    of: dict[Any, Any] = {}
    made.graph_copy(graph.graph, of)
    made.output(tuple(of.get(node, node) for node in results))
    return torch.fx.GraphModule(graph, made)


def _example(node: Any) -> Any:
    return getattr(node, "meta", {}).get("example_value")


def _storage(node: Any) -> int | None:
    """The identity of the memory of what a node stands for; None if it is no tensor."""
    value = _example(node)
    return value.untyped_storage()._cdata if hasattr(value, "untyped_storage") else None


def _layout(x: Any) -> Any:
    return (tuple(x.shape), tuple(x.stride())) if hasattr(x, "stride") else ()


def _traced(graph: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """The outputs of a graph for inputs like these, without elements."""
    with _likenesses(inputs) as made:
        results: Sequence[Any] = graph(*made)
        return results


def _writes(graph: Any, inputs: Sequence[Any]) -> bool:
    """Return whether a graph changes what it is given."""
    with torch.inference_mode(False), torch.no_grad(), _likenesses(inputs) as made:
        tensors = [x for x in made if hasattr(x, "_version")]
        before = [x._version for x in tensors]
        graph(*made)
        return [x._version for x in tensors] != before


@contextmanager
def _likenesses(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """Inputs like these, without elements."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as fake:
        yield [fake.from_tensor(x) if hasattr(x, "shape") else x for x in inputs]


def _view_of(base: Any, output: Any, given: bool) -> tuple[Any, Any]:
    """The strides of a base, and the shape, strides and offset of an output that is a view.

    A base that is computed must have no gaps, since what lies in these is not computed.
    """
    if not hasattr(output, "stride"):
        return None, None
    shape, strides = tuple(output.shape), tuple(output.stride())
    offset = output.storage_offset() - base.storage_offset()
    if (shape, strides, offset) == (*_layout(base), 0) and output.dtype == base.dtype:
        return strides, None
    inside = base.numel() == _reach(base) and 0 <= offset <= base.numel() - _reach(output)
    if output.dtype != base.dtype or not (given or inside):
        raise LoopwrightError(
            f"an output of shape {shape} and {output.dtype} shares memory with an input or output "
            "of which it is no part: return a copy, by .clone()"
        )
    return tuple(base.stride()), (shape, strides, offset)


def _reach(x: Any) -> int:
    """Elements of memory from a tensor's first to its last, these included."""
    return 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride())) if x.numel() else 0


def _view(base: Any, view: tuple[Any, Any, int]) -> Any:
    shape, strides, offset = view
    return base.as_strided(shape, strides, base.storage_offset() + offset)


def _laid_out(x: Any, strides: tuple[int, ...] | None) -> Any:
    """A tensor with strides that torch's own would have: what follows the graph may rely on them.

    An axis of stride 0 has one element in memory.
    """
    if strides is None or x.stride() == strides:
        return x
    once = x[tuple(slice(0, 1) if n == 0 else slice(None) for n in strides)]
    made = torch.empty_strided(once.shape, strides, dtype=x.dtype)
    return made.copy_(once).expand(x.shape)
