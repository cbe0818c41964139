"""Mixtures of experts: products of rows with matrices, of which each row has its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.torch.operators.parts import like, op, whole
from loopwright.graph.importers.torch.operators.scans import named
from loopwright.packages import torch

_INT64 = 7
"""The number of ONNX's type."""


def replaced() -> dict[Any, Callable[..., Any]]:
    """What takes the place of torch's product while a program is traced."""
    return {torch._grouped_mm: grouped_mm}


def translations() -> dict[Any, Callable[..., Any]]:
    """Functions that make operators of ONNX, and one of ours, by our operator, by those of torch,
    and by that which transformers registers for torch.export."""
    own, ops = _operator(), torch.ops
    products = [own._opoverload, ops.aten._grouped_mm.default]
    if hasattr(ops.transformers, "grouped_mm_fallback"):
        products.append(ops.transformers.grouped_mm_fallback.default)
    return {ops.aten.histc.default: _histogram, **dict.fromkeys(products, _grouped)}


def grouped_mm(
    mat_a: Any, mat_b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """A call of torch's as one of our operator: torch.export takes torch's of bfloat16 alone."""
    _check(mat_a.dim(), mat_b.dim(), offs, bias, out_dtype)
    return _operator()(mat_a, mat_b, offs)


@functools.cache
def _operator() -> Any:
    made = torch.library.custom_op(
        "loopwright::grouped_mm",
        lambda x, weights, offs: torch._grouped_mm(x, weights, offs),
        mutates_args=(),
        schema="(Tensor x, Tensor weights, Tensor offs) -> Tensor",
    )
    made.register_fake(lambda x, weights, offs: x.new_empty(x.shape[0], weights.shape[2]))
    return made


def _check(left: int, right: int, offs: Any, bias: Any, out_dtype: Any) -> None:
    if (left, right) != (2, 3) or offs is None or bias is not None or out_dtype is not None:
        raise ModelError(
            f"grouped_mm is of {left} and {right} axes; rows in groups, of two axes, and a matrix "
            "for each group, of three, are read, with offs, without bias and out_dtype: use "
            "matmul otherwise"
        )


def _histogram(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """The number of elements in each of some bins of equal width, the last one with its end."""
    x = op.Reshape(x, whole(-1))
    low, high = like(min, x), like(max, x)
    if min == max:  # the range is that of the elements
        low, high = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
        alone = op.Equal(low, high)
        low = op.Where(alone, op.Sub(low, like(1, x)), low)
        high = op.Where(alone, op.Add(high, like(1, x)), high)
    place = op.Floor(op.Div(op.Mul(op.Sub(x, low), like(bins, x)), op.Sub(high, low)))
    place = op.Where(op.Equal(x, high), like(bins - 1, x), place)
    each = op.Unsqueeze(op.CastLike(op.Constant(value_ints=list(range(bins))), x), whole(1))
    return op.ReduceSum(op.CastLike(op.Equal(each, place), x), whole(1), keepdims=0)


def _grouped(
    x: Any, weights: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Products of rows with the matrices of their groups, of which `offs` has the ends."""
    _check(len(x.shape), len(weights.shape), offs, bias, out_dtype)
    zero, one = (op.Constant(value_int=n) for n in (0, 1))
    rows = op.Range(zero, op.Squeeze(op.Shape(x, start=0, end=1)), one)
    ends = op.Cast(offs, to=_INT64)
    behind = op.GreaterOrEqual(op.Unsqueeze(rows, whole(1)), ends)
    group = op.ReduceSum(op.Cast(behind, to=_INT64), whole(1), keepdims=0)
    return named("GroupedMatMul", op.Gemm(x, weights, group))
