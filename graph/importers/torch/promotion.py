"""Elements that torch casts to the type of an operator's result, where its exporter does not."""

from __future__ import annotations

from typing import Any

from loopwright.packages import aten, torch


def promote(graph: Any, node: Any) -> None:
    """Cast integers, and floats of fewer digits, to the type that a node computes in."""
    wanted = _computed_in(node)
    if wanted is None:
        return
    cast = torch.ops.aten._to_copy.default

    def promoted(x: Any) -> Any:
        value = getattr(x, "meta", {}).get("val")
        if not isinstance(value, torch.Tensor) or not _is_narrower(value.dtype, wanted):
            return x
        if not value.ndim and wanted in (torch.float16, torch.bfloat16):
            return x  # a single number is not rounded to a half
        made = graph.call_function(cast, (x,), {"dtype": wanted})
        made.meta["val"] = value.to(wanted)
        return made

    with graph.inserting_before(node):
        node.args = tuple(map(promoted, node.args))


def _computed_in(node: Any) -> Any:
    """The type of an operator of elements; None for what tests or chooses them, or is another."""
    packet = getattr(node.target, "overloadpacket", None)
    no_tags = packet in (aten.ldexp, aten.rsub) or str(packet).startswith("aten.special_")
    if not no_tags and torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return None
    if packet in (aten.isfinite, aten.isinf, aten.isnan, aten.isneginf, aten.isposinf):
        return torch.float32
    if packet in (aten.where, aten.masked_fill):  # whose truth values are no elements
        return None
    dtype = getattr(node.meta.get("val"), "dtype", torch.bool)
    return None if dtype == torch.bool else dtype


def _is_narrower(dtype: Any, wanted: Any) -> bool:
    """Return whether all numbers of a type are cast to another one without a choice."""
    if dtype.is_complex or wanted.is_complex:
        return False
    if dtype.is_floating_point:
        return bool(wanted.is_floating_point and dtype.itemsize < wanted.itemsize)
    return bool(dtype != wanted)
