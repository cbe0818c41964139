"""Inputs whose integers index: a call that gives them one outside of the axis ends with an error.

The notation moves such an index to the nearest element; a token that a vocabulary lacks would
silently be another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loopwright.dsl.dtypes import INTEGERS
from loopwright.dsl.expr import Cast, Expr, Gather, Read, Select
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import children
from loopwright.dsl.workload import defined, tensor_shape
from loopwright.graph.importers.definitions import Definitions, Part, Repeated


def indexed(parts: Sequence[Part], inputs: set[Tensor]) -> dict[Tensor, int]:
    """The extent of the axis, the least of several, that all integers of an input index.

    What is read under a condition does not count, nor what a branch of an `If` may read, nor real
    numbers that are made integers, as those of Keras are.
    """
    found: dict[Tensor, int] = {}
    loops = [part for part in parts if isinstance(part, Repeated)]
    every = [*parts, *(inner for part in loops for inner in part.parts)]
    wholes = {r.part: r.whole for part in loops for r in part.loop.reads}
    if any(part.name == "if" for part in every):
        return found
    for part in every:
        for tensor in part.tensors if isinstance(part, Definitions) else ():
            d = defined(tensor)
            for gather in _gathers(d.body):
                for at, extent in zip(gather.at, gather.shape, strict=True):
                    source = None if at is None else _source(at, d)
                    source = wholes.get(source, source) if source is not None else None
                    if source in inputs and source.dtype in INTEGERS:
                        found[source] = min(found.get(source, extent), extent)
    return found


def _gathers(body: Expr) -> Iterator[Gather]:
    """Elements that are read at indices, whatever their type."""
    if isinstance(body, Select):
        return
    if isinstance(body, Gather):
        yield body
    for child in children(body):
        yield from _gathers(child)


def _source(at: Expr, d: Definition) -> Tensor | None:
    """The tensor all of whose elements an index is, as d's axes run; casts may stand between."""
    while isinstance(at, Cast):
        at = at.x
    if not isinstance(at, Read):
        return None
    # 0 stands for the index of an axis of one element.
    places = zip(at.index, tensor_shape(at.tensor), strict=True)
    axes = [(place.plain(), n) for place, n in places if n > 1]
    indices = {index for index, _ in axes}
    if len(indices) < len(axes) or any(i is None or d.extents[i] != n for i, n in axes):
        return None
    inner = at.tensor.definition
    if inner is None:
        return at.tensor
    return None if inner.reducer else _source(inner.body, inner)
