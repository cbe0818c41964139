"""Norms of torch, and distances by them: powers of halves are summed in float32, as torch does.

Norms of float64 are taken apart: ONNX's have what they add to a variance as a float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.torch.operators.parts import (
    DOUBLE,
    FLOAT,
    HALVES,
    array,
    in_double,
    like,
    op,
    own,
    whole,
)
from loopwright.packages import aten


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    in_parts: dict[Any, tuple[str, Callable[..., Any]]] = {
        aten._native_batch_norm_legit.no_stats: (
            "aten__native_batch_norm_no_stats",
            lambda x, w, b, _, __, eps: _thrice(_by_statistics(x, w, b, None, None, eps)),
        ),
        aten._native_batch_norm_legit_no_training.default: (
            "aten__native_batch_norm_no_training",
            lambda x, w, b, mean, variance, _, eps: _thrice(
                _by_statistics(x, w, b, mean, variance, eps)
            ),
        ),
        aten.group_norm.default: ("aten_group_norm", _group_norm),
        aten.instance_norm.default: ("aten_instance_norm", _instance_norm),
    }
    return {
        **{target: in_double(*both) for target, both in in_parts.items()},
        aten._cdist_forward.default: _distances,
        aten._pdist_forward.default: _distances_of_pairs,
        aten.layer_norm.default: _layer_norm,
        aten.linalg_vector_norm.default: _norm,
    }


def _norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = -1) -> Any:
    """The norm of order `ord` along some axes, or, where none is said, of all elements."""
    rank = len(x.shape)
    kind = x.dtype if dtype in (None, -1) else dtype
    axes = [dim] if isinstance(dim, int) else list(dim or range(rank))
    made = _of_order(float(ord), wide(x) if kind in HALVES else op.Cast(x, to=kind), axes, keepdim)
    return op.Cast(made, to=kind)


def _layer_norm(
    x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    """Layer normalization, under autocast of halves by weights in float32."""
    if x.dtype == DOUBLE:
        return _moved(_normalized(x, range(-len(shape), 0), eps), weight, bias)
    if weight is None or weight.dtype == x.dtype:
        return own("aten_layer_norm")(x, shape, weight, bias, eps)
    return op.Cast(own("aten_layer_norm")(wide(x), shape, weight, bias, eps), to=x.dtype)


def _distances(x: Any, y: Any, p: float, compute_mode: Any = None) -> Any:
    """The distances of every row of x to every row of y, by the norm of order p."""
    kind = x.dtype
    if kind in HALVES:
        x, y = wide(x), wide(y)
    apart = op.Sub(op.Unsqueeze(x, [-2]), op.Unsqueeze(y, [-3]))
    return op.Cast(_of_order(p, apart, [-1], False), to=kind)


def _distances_of_pairs(x: Any, p: float = 2) -> Any:
    """The distances of each two rows, row by row."""
    count = x.shape[0]
    if not isinstance(count, int):
        raise ModelError("pdist takes rows of an open number: fix that size, or use cdist")
    first, second = np.triu_indices(count, 1)
    rows = [op.Gather(x, array(each.astype(np.int64))) for each in (first, second)]
    kind = x.dtype
    apart = op.Sub(*map(wide, rows)) if kind in HALVES else op.Sub(*rows)
    return op.Cast(_of_order(p, apart, [-1], False), to=kind)


def wide(x: Any) -> Any:
    """The tensor in float32."""
    return op.Cast(x, to=FLOAT)


def _of_order(p: float, x: Any, axes: Sequence[int], keepdim: bool) -> Any:
    def reduced(name: str, x: Any) -> Any:
        return getattr(op, name)(x, *([whole(*axes)] if axes else []), keepdims=int(keepdim))

    if p in (1, 2):
        return reduced(f"ReduceL{p:.0f}", x)
    if math.isinf(p):
        return reduced("ReduceMax" if p > 0 else "ReduceMin", op.Abs(x))
    if p == 0:
        return reduced("ReduceSum", op.CastLike(op.Not(op.Equal(x, like(0, x))), x))
    return op.Pow(reduced("ReduceSum", op.Pow(op.Abs(x), like(p, x))), like(1 / p, x))


def _group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, _: Any = None
) -> Any:
    made = _normalized(op.Reshape(x, whole(0, groups, -1)), [-1], eps)
    return _of_channels(op.Reshape(made, op.Shape(x)), weight, bias, len(x.shape))


def _instance_norm(  # noqa: PLR0913 - as torch has it
    x: Any,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Any:
    if not use_input_stats:
        return _by_statistics(x, weight, bias, running_mean, running_var, eps)
    rank = len(x.shape)
    return _of_channels(_normalized(x, range(2, rank), eps), weight, bias, rank)


def _by_statistics(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Any:
    """A norm by known statistics of channels, or by those of the batch."""
    rank = len(x.shape)
    if mean is None:
        made = _normalized(x, [d for d in range(rank) if d != 1], eps)
    else:
        apart = op.Sub(x, _channels(mean, rank))
        made = op.Div(apart, op.Sqrt(op.Add(_channels(variance, rank), like(eps, x))))
    return _of_channels(made, weight, bias, rank)


def _thrice(x: Any) -> tuple[Any, Any, Any]:
    """A result with two more, which are for gradients."""
    return x, op.Identity(x), op.Identity(x)


def _normalized(x: Any, axes: Sequence[int], eps: float) -> Any:
    """A tensor of mean 0 and of variance 1 along some axes."""
    along = whole(*axes)
    apart = op.Sub(x, op.ReduceMean(x, along))
    variance = op.ReduceMean(op.Mul(apart, apart), along)
    return op.Div(apart, op.Sqrt(op.Add(variance, like(eps, x))))


def _of_channels(x: Any, weight: Any, bias: Any, rank: int) -> Any:
    channels = (None if each is None else _channels(each, rank) for each in (weight, bias))
    return _moved(x, *channels)


def _channels(x: Any, rank: int) -> Any:
    """A vector of one number a channel, as it goes with a tensor of that rank."""
    return op.Reshape(x, whole(-1, *[1] * (rank - 2)))


def _moved(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else op.Mul(x, weight)
    return x if bias is None else op.Add(x, bias)
