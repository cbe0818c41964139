"""Scaled dot-product attention."""

from __future__ import annotations

import math

from loopwright.dsl.dtypes import sum_type
from loopwright.dsl.errors import NotationError, ShapeError
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.functions import cast, where
from loopwright.dsl.index import Index
from loopwright.dsl.ops.check import any_shape, flags, floating, same_dtype, same_extent
from loopwright.dsl.ops.elementwise import axes_of, broadcast_shapes, read
from loopwright.dsl.ops.linear import batch_matmul
from loopwright.dsl.ops.normalization import softmax_of
from loopwright.dsl.tensor import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """`out[…, i, e] += softmax_j(scale * sum_d q[…, i, d] * k[…, j, d] + mask) * v[…, j, e]`.

    Parameters
    ----------
    q: (…, L, D), of a floating type.
    k: (…, S, D); the leading axes of q, k and v broadcast.
    v: (…, S, E).
    mask: broadcasts to (…, L, S); truth values say which j count (a row without any gives NaN, as
        in torch), numbers of q's dtype are added to the scores.
    causal: only j ≤ i count.
    scale: by default 1 / √D.

    Returns
    -------
    (…, L, E)
    """
    flags("attention", causal=causal)
    for name, given in (("q", q), ("k", k), ("v", v)):
        floating("attention", name, given)
        any_shape("attention", name, given, least=2)
    same_dtype("attention", None, q=q, k=k, v=v)
    depth, length = any_shape("attention", "k", k)[-1], any_shape("attention", "k", k)[-2]
    same_extent("attention", ("D of q", any_shape("attention", "q", q)[-1]), ("D of k", depth))
    same_extent("attention", ("S of k", length), ("S of v", any_shape("attention", "v", v)[-2]))
    scores = batch_matmul(q, k, transpose_b=True, accumulate=sum_type(q.dtype))
    factor = 1 / math.sqrt(depth) if scale is None else float(scale)
    weights = softmax_of(_weighted(scores, factor, mask, causal, q.dtype), -1, q.dtype)
    out = batch_matmul(weights, v)
    out.operands = (q, k, v) if mask is None else (q, k, v, mask)
    return out


def _weighted(
    scores: Tensor, factor: float, mask: Tensor | None, causal: bool, dtype: str
) -> Tensor:
    """The scores scaled, and those that do not count at minus infinity."""
    shape = any_shape("attention", "scores", scores)
    axes = axes_of(shape)
    value = scores[axes] * factor
    if mask is not None:
        value = _masked(value, mask, shape, axes, dtype)
    if causal:
        value = where(axes[-1] <= axes[-2], value, -math.inf)
    out = Tensor("attention_scores", shape)
    out[axes] = value
    return out


def _masked(
    value: Expr, mask: Tensor, shape: tuple[int, ...], axes: tuple[Index, ...], dtype: str
) -> Expr:
    mask_shape = any_shape("attention", "mask", mask)
    if broadcast_shapes([mask_shape, shape]) != shape:
        raise ShapeError(f"attention: mask {mask_shape} does not broadcast to the scores' {shape}")
    if mask.dtype not in ("bool", dtype):
        raise NotationError(
            f"attention: mask is {mask.dtype}; use bool, or {dtype}, which is added"
        )
    if mask.dtype == "bool":
        return value + where(read(mask, axes), as_expr(0, like=value), -math.inf)
    return value + cast(read(mask, axes), value.dtype)
