"""Elements by their rank: sorted ones, medians, and places among sorted ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from loopwright.graph.importers.torch.operators.parts import like, op, whole
from loopwright.packages import aten

_INT32, _INT64, _BOOL = 6, 7, 9  # of ONNX's types


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    return {
        aten.kthvalue.default: _of_rank,
        aten.median.default: _of_all(_median),
        aten.median.dim: _median,
        aten.nanmedian.default: _of_all(_median_of_numbers),
        aten.nanmedian.dim: _median_of_numbers,
        aten.searchsorted.Scalar: _place,
        aten.searchsorted.Tensor: _place,
        aten.sort.stable: _sorted,
    }


def _of_all(median: Callable[..., Any]) -> Callable[[Any], Any]:
    """The median of all elements."""

    def found(x: Any) -> Any:
        flat = op.Reshape(x, whole(-1))
        flat.dtype, flat.shape = x.dtype, type(x.shape)([None])
        return median(flat)[0]

    return found


def _sorted(x: Any, stable: Any = True, dim: int = -1, descending: bool = False) -> Any:
    """The elements along an axis in order, and their places: ours of equal ones stay in theirs."""
    if not x.shape:
        return op.Identity(x), op.Constant(value_int=0)
    return op.TopK(x, _count(x, dim), axis=dim, largest=int(descending))


def _of_rank(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element along an axis, counted from 1, and its place."""
    if not x.shape:
        return op.Identity(x), op.Constant(value_int=0)
    first = op.TopK(x, whole(k), axis=dim, largest=0)
    last = (op.Slice(part, whole(k - 1), whole(k), whole(dim)) for part in first)
    return tuple(_with_axis(part, dim, keepdim) for part in last)


def _median(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower one of the middle elements along an axis, or one that is NaN, and its place."""
    if not x.shape:
        return op.Identity(x), op.Constant(value_int=0)
    before = op.Div(op.Sub(_count(x, dim), whole(1)), whole(2))
    after = op.Add(before, whole(1))
    value, place = (op.Slice(part, before, after, whole(dim)) for part in _sorted(x, dim=dim))
    if x.dtype.is_floating_point():
        nan = op.Cast(op.IsNaN(x), to=_INT32)
        some = op.Cast(op.ReduceMax(nan, whole(dim), keepdims=1), to=_BOOL)
        value = op.Where(some, like(math.nan, x), value)
        place = op.Where(some, op.ArgMax(nan, axis=dim, keepdims=1), place)
    return _with_axis(value, dim, keepdim), _with_axis(place, dim, keepdim)


def _median_of_numbers(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The same without those that are NaN, unless all are."""
    if not (x.shape and x.dtype.is_floating_point()):
        return _median(x, dim, keepdim)
    numbers = op.Cast(op.Not(op.IsNaN(x)), to=_INT64)
    count = op.ReduceSum(numbers, whole(dim), keepdims=1)
    before = op.Div(op.Max(op.Sub(count, whole(1)), whole(0)), whole(2))
    found = (op.GatherElements(part, before, axis=dim) for part in _sorted(x, dim=dim))
    return tuple(_with_axis(part, dim, keepdim) for part in found)


def _place(
    sequence: Any,
    x: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """How many elements of a sorted sequence are below x, or, at its right side, not above it."""
    if isinstance(x, (int, float)):
        x = like(x, sequence)
    several = len(sequence.shape) > 1
    if sorter is not None:
        sequence = op.GatherElements(sequence, sorter, axis=-1)
    if several:
        sequence = op.Unsqueeze(sequence, whole(-2))
    beyond = op.Greater if right or side == "right" else op.GreaterOrEqual
    below = op.Not(beyond(sequence, op.Unsqueeze(x, whole(-1))))
    kind = _INT32 if out_int32 else _INT64
    return op.ReduceSum(op.Cast(below, to=kind), whole(-1), keepdims=0)


def _count(x: Any, dim: int) -> Any:
    return op.Gather(op.Shape(x), whole(dim))


def _with_axis(x: Any, dim: int, keepdim: bool) -> Any:
    return x if keepdim else op.Squeeze(x, whole(dim))
