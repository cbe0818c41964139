"""Norms of torch, and distances by them: powers of halves are summed in float32, as torch does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.graph.importers.torch.doubles import layer_norm
from loopwright.graph.importers.torch.special import DOUBLE, FLOAT, HALVES, like, opset, whole


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    from torch.ops import aten

    return {
        aten._cdist_forward.default: _distances,
        aten.layer_norm.default: _layer_norm,
        aten.linalg_vector_norm.default: _norm,
    }


def _norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = -1) -> Any:
    """The norm of order `ord` along some axes, or, where none is said, of all elements."""
    op, rank = opset(), len(x.shape)
    kind = x.dtype if dtype in (None, -1) else dtype
    axes = [dim] if isinstance(dim, int) else list(dim or range(rank))
    made = _of_order(float(ord), wide(x) if kind in HALVES else op.Cast(x, to=kind), axes, keepdim)
    return op.Cast(made, to=kind)


def _layer_norm(
    x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    """Layer normalization, under autocast of halves by weights in float32."""
    from onnxscript.function_libs.torch_lib.ops import core

    if x.dtype == DOUBLE:
        return layer_norm(x, shape, weight, bias, eps)
    if weight is None or weight.dtype == x.dtype:
        return core.aten_layer_norm(x, shape, weight, bias, eps)
    return opset().Cast(core.aten_layer_norm(wide(x), shape, weight, bias, eps), to=x.dtype)


def _distances(x: Any, y: Any, p: float, compute_mode: Any = None) -> Any:
    """The distances of every row of x to every row of y, by the norm of order p."""
    op, kind = opset(), x.dtype
    if kind in HALVES:
        x, y = wide(x), wide(y)
    apart = op.Sub(op.Unsqueeze(x, [-2]), op.Unsqueeze(y, [-3]))
    return op.Cast(_of_order(p, apart, [-1], False), to=kind)


def wide(x: Any) -> Any:
    """The tensor in float32."""
    return opset().Cast(x, to=FLOAT)


def _of_order(p: float, x: Any, axes: Sequence[int], keepdim: bool) -> Any:
    op = opset()

    def reduced(name: str, x: Any) -> Any:
        return getattr(op, name)(x, *([whole(*axes)] if axes else []), keepdims=int(keepdim))

    if p in (1, 2):
        return reduced(f"ReduceL{p:.0f}", x)
    if math.isinf(p):
        return reduced("ReduceMax" if p > 0 else "ReduceMin", op.Abs(x))
    if p == 0:
        return reduced("ReduceSum", op.CastLike(op.Not(op.Equal(x, like(0, x))), x))
    return op.Pow(reduced("ReduceSum", op.Pow(op.Abs(x), like(p, x))), like(1 / p, x))
