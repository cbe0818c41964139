"""Elements that are written where a mask is true: their number need not be known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopwright.graph.importers.torch.operators.parts import op, own, whole
from loopwright.packages import aten, torch

_INT64, _BOOL = 7, 9  # of ONNX's types


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    return {
        aten.index_put.default: _put,
        aten.masked_scatter.default: _scattered,
    }


def replaced() -> dict[Any, Callable[..., Any]]:
    """What takes the place of torch's functions while a program is traced."""
    return {torch.Tensor.fill_diagonal_: _fill_diagonal}


def _fill_diagonal(x: Any, fill_value: Any, wrap: bool = False) -> Any:
    """A number on the diagonal of a matrix, which torch writes by strides of its storage."""
    if wrap or x.dim() != 2:
        return x.fill_diagonal_(fill_value, wrap)
    return x.masked_fill_(torch.eye(*x.shape, dtype=torch.bool), fill_value)


def _put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Values in the places that indices name: where these are one mask, and the values do not
    differ from one place of it to another, a choice between two tensors."""
    given = [(n, each) for n, each in enumerate(indices) if each is not None]
    if len(given) == 1 and given[0][1].dtype == _BOOL:
        before, mask = given[0]
        behind = len(x.shape) - before - len(mask.shape)
        extra = len(values.shape) - behind
        if extra <= 0 or (extra == 1 and values.shape[0] == 1):
            values = op.CastLike(op.Squeeze(values, whole(0)) if extra == 1 else values, x)
            axes = range(len(mask.shape), len(mask.shape) + behind)
            chosen = op.Unsqueeze(mask, whole(*axes)) if behind else mask
            return op.Where(chosen, op.Add(x, values) if accumulate else values, x)
    return own("aten_index_put")(x, indices, values, accumulate)


def _scattered(x: Any, mask: Any, source: Any) -> Any:
    """The elements of a source, one after the other, where a mask is true."""
    shape = op.Shape(op.Or(mask, op.CastLike(x, mask)))
    flat = op.Reshape(op.Expand(mask, shape), whole(-1))
    count = op.CumSum(op.Cast(flat, to=_INT64), whole(0))
    places = op.Max(op.Sub(count, whole(1)), whole(0))
    last = op.Sub(op.Size(source), whole(1))
    chosen = op.Gather(op.Reshape(source, whole(-1)), op.Min(places, last))
    return op.Where(mask, op.Reshape(chosen, shape), x)
