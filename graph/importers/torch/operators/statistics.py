"""Modes, truth of any and of all elements, and covariances, which torch.export does not trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.graph.importers.torch.operators.parts import op, whole
from loopwright.packages import aten, torch

_UINT8, _INT64, _BOOL = 2, 7, 9  # of ONNX's types


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    reduced = {name: _reduced(op) for name, op in (("all", "ReduceMin"), ("any", "ReduceMax"))}
    return {
        aten.mode.default: _mode,
        **{
            getattr(getattr(aten, name), form): translated
            for name, translated in reduced.items()
            for form in ("default", "dim", "dims")
        },
    }


def replaced() -> dict[Any, Callable[..., Any]]:
    """What takes the place of torch's functions while a program is traced."""
    return {
        **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), _correlations),
        **dict.fromkeys((torch.cov, torch.Tensor.cov), _covariances),
    }


def _reduced(name: str) -> Callable[..., Any]:
    """The extreme of truth values. It is that of numbers without a sign, since among no elements
    the maximum is the least number of the type: 0, which is false."""

    def translated(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        axes = [dim] if isinstance(dim, int) else dim
        true = op.Cast(x, to=_BOOL)
        if not x.shape or (axes is not None and not axes):
            return true
        along = () if axes is None else (whole(*axes),)
        found = getattr(op, name)(op.Cast(true, to=_UINT8), *along, keepdims=int(keepdim))
        return op.Cast(found, to=_BOOL)

    return translated


def _mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element along an axis, of several the least, and its last place."""
    rank = len(x.shape)
    if not rank:
        return op.Identity(x), op.Constant(value_int=0)
    dim %= rank
    size = op.Gather(op.Shape(x), whole(dim))
    values, places = op.TopK(x, size, axis=dim, largest=0)  # the least first
    one, other = op.Unsqueeze(values, whole(dim + 1)), op.Unsqueeze(values, whole(dim))
    counts = op.ReduceSum(op.Cast(op.Equal(one, other), to=_INT64), whole(dim + 1), keepdims=0)
    first = op.ArgMax(counts, axis=dim, keepdims=1)
    last = op.Sub(op.Add(first, op.GatherElements(counts, first, axis=dim)), whole(1))
    last = op.Max(last, first)  # of NaN, which equals nothing
    found = (op.GatherElements(part, last, axis=dim) for part in (values, places))
    return tuple(x if keepdim else op.Squeeze(x, whole(dim)) for x in found)


def _covariances(
    x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Any:
    """The covariance of each two rows, whose elements may be counted and weighed."""
    x = x.reshape(1, -1) if x.ndim < 2 else x
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    given = [w.to(x.dtype) for w in (fweights, aweights) if w is not None]
    weights = torch.stack(given).prod(0) if given else torch.ones_like(x[0])
    total = weights.sum()
    apart = x - ((x * weights).sum(1) / total)[:, None]
    share = 1 if aweights is None else (weights * aweights).sum() / total
    return ((apart * weights) @ apart.mT / (total - correction * share).clamp(min=0)).squeeze()


def _correlations(x: Any) -> Any:
    """The correlation of each two rows, from -1 to 1."""
    made = _covariances(x)
    if made.ndim == 0:
        return made / made
    scale = made.diagonal().sqrt()
    return (made / scale[:, None] / scale).clamp(-1, 1)
