"""Reads of a tensor's storage by strides, which ONNX has not: its tensors have elements alone."""

from __future__ import annotations

from typing import Any

from loopwright.graph.errors import ModelError
from loopwright.packages import aten


def read_in_order(graph: Any, node: Any) -> None:
    """Let `as_strided` read a tensor whose elements lie in the order of its axes.

    Raises `ModelError` for a view that has gaps, or that begins behind what is read.
    """
    if node.target is not aten.as_strided.default:
        return
    source, size, stride, *rest = node.args
    value = source.meta["val"]
    extents, steps = ([_known(n) for n in each] for each in (value.shape, value.stride()))
    order = sorted((d for d, n in enumerate(extents) if n != 1), key=lambda d: -steps[d])
    step = 1
    for d in reversed(order):
        if steps[d] != step:
            raise _between(node, value)
        step *= extents[d]
    offset = rest[0] if rest else node.kwargs.get("storage_offset")
    if offset is not None:
        start = _known(value.storage_offset())
        if start and (not isinstance(offset, int) or offset < start):
            raise _between(node, value)
        offset = offset - start if start else offset
    if order != sorted(order):
        order += [d for d in range(len(extents)) if d not in order]
        with graph.inserting_before(node):
            made = graph.call_function(aten.permute.default, (source, order))
        made.meta["val"] = value.permute(order)
        source = made
    node.args, node.kwargs = (source, size, stride, offset), {}


def _known(extent: Any) -> int:
    """An extent, or what it is in the example of an open one."""
    return extent if isinstance(extent, int) else int(extent.node.hint)


def _between(node: Any, value: Any) -> ModelError:
    return ModelError(
        f"{node.name} reads the storage of a view of shape {tuple(value.shape)} and strides "
        f"{tuple(value.stride())}, elements outside of it among them: call .contiguous() before "
        "as_strided, or take slices and unfold"
    )
