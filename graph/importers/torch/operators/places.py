"""Operators that choose elements by place: masks, bags, scatters."""

from __future__ import annotations

import math
from typing import Any

from loopwright.graph.importers.torch.operators.parts import like, op, own, whole

_BOOL = 9  # of ONNX's types


def copied(x: Any, src: Any, non_blocking: bool = False) -> Any:
    """The elements that are copied into a tensor, of its shape and type. The exporter leaves the
    shape as it is."""
    return op.Expand(op.CastLike(src, x), op.Shape(x))


def masked_select(x: Any, mask: Any) -> Any:
    """The elements where a mask is true; it must be known, since their number follows from it."""
    shape = op.Shape(op.Or(mask, op.CastLike(x, mask)))
    places = op.Transpose(op.NonZero(op.Expand(mask, shape)), perm=[1, 0])
    return op.GatherND(op.Expand(x, shape), places)


def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The elements of a diagonal. The exporter adds up rows in which the others count times 0, so
    these must be finite."""
    if x.dtype.is_floating_point():
        rank = len(x.shape)
        first, second = dim1 % rank, dim2 % rank
        sides = [op.Shape(x, start=dim, end=dim + 1) for dim in (first, second)]
        mask = op.EyeLike(op.ConstantOfShape(op.Concat(*sides, axis=0)), k=offset)
        if first > second:
            mask = op.Transpose(mask, perm=[1, 0])
        others = [dim for dim in range(rank) if dim not in (first, second)]
        kept = op.Cast(op.Unsqueeze(mask, whole(*others)) if others else mask, to=_BOOL)
        made = op.Where(kept, x, like(0, x))
        made.dtype, made.shape = x.dtype, x.shape
        x = made
    return own("aten_diagonal")(x, offset, dim1, dim2)


def diagonal_scattered(x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A tensor with others as the elements of a diagonal, which torch writes into a view."""
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    starts = max(-offset, 0), max(offset, 0)
    sides = [
        op.Sub(op.Shape(x, start=dim, end=dim + 1), whole(start))
        for dim, start in zip((first, second), starts)
    ]
    zero, one = op.Constant(value_int=0), op.Constant(value_int=1)
    count = op.Range(zero, op.Squeeze(op.Min(*sides)), one)
    at = op.Concat(
        *(op.Unsqueeze(op.Add(count, whole(start)), whole(1)) for start in starts), axis=1
    )
    order = [first, second, *(dim for dim in range(rank) if dim not in (first, second))]
    planes = op.Transpose(x, perm=order)
    made = op.ScatterND(planes, at, op.Transpose(src, perm=[rank - 2, *range(rank - 2)]))
    return op.Transpose(made, perm=[order.index(dim) for dim in range(rank)])


def embedding_bag(  # noqa: PLR0913 - as torch has it
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The sum, the mean or the greatest of the rows that each bag names.

    Bags of one length, which two axes of indices are, become an axis. Others are sums over all
    rows, each with a mask: a bag takes the rows from its offset to the next one's.
    """
    (count,), (bags,), width = indices.shape, offsets.shape, weight.shape[-1]
    bags -= int(include_last_offset)
    padding = -1 if padding_idx is None else padding_idx  # -1 is none
    rows, factor = op.Gather(weight, indices), None
    seen = op.CastLike(op.Not(op.Equal(indices, like(padding, indices))), rows)
    length = _spacing(offsets)
    if length is not None and length * bags == count:
        rows = op.Reshape(rows, whole(bags, length, width))
        mask = op.Reshape(seen, whole(bags, length, 1))
        if per_sample_weights is not None:
            factor = op.Reshape(per_sample_weights, whole(bags, length, 1))
    else:
        places = op.Range(like(0, offsets), like(count, offsets), like(1, offsets))
        starts = op.Slice(offsets, whole(0), whole(bags), whole(0))
        ends = op.Slice(offsets, whole(1), whole(bags + 1), whole(0))
        if not include_last_offset:
            ends = op.Concat(ends, op.Unsqueeze(like(count, offsets), whole(0)), axis=0)
        inside = op.And(
            op.GreaterOrEqual(places, op.Unsqueeze(starts, whole(1))),
            op.Less(places, op.Unsqueeze(ends, whole(1))),
        )
        mask = op.Unsqueeze(op.Mul(op.CastLike(inside, rows), seen), whole(2))
        rows = op.Unsqueeze(rows, whole(0))
        if per_sample_weights is not None:
            factor = op.Unsqueeze(per_sample_weights, whole(0, 2))
    zero, one = like(0, rows), like(1, rows)
    number = op.ReduceSum(mask, whole(1), keepdims=0)
    if mode == 2:
        found = op.Where(op.Greater(mask, zero), rows, like(-math.inf, rows))
        greatest = op.ReduceMax(found, whole(1), keepdims=0)
        result = op.Where(op.Greater(number, zero), greatest, zero)
    else:
        rows = rows if factor is None else op.Mul(rows, factor)
        result = op.ReduceSum(op.Mul(rows, mask), whole(1), keepdims=0)
        if mode == 1:
            result = op.Div(result, op.Max(number, one))
    return result, *(op.Identity(offsets) for _ in range(3))  # these are for gradients


def scattered(
    x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> Any:
    """Elements joined with those that are written to their places; a mean is a sum and a count."""
    if reduce != "mean":
        return own("aten_scatter_reduce")(x, dim, index, src, reduce, include_self)
    none, one = like(0, x), like(1, x)
    start = op.Expand(one if include_self else none, op.Shape(x))
    each = op.Expand(one, op.Shape(index))
    count = op.ScatterElements(start, index, each, axis=dim, reduction="add")
    first = x if include_self else op.Where(op.Equal(count, none), x, none)
    total = op.ScatterElements(first, index, src, axis=dim, reduction="add")
    count = op.Max(count, one)
    whole_part = op.Sub(total, op.Mod(total, count)) if x.dtype.is_integer() else total
    return op.Div(whole_part, count)


def scattered_by(x: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    """The same by the older names of a sum and a product, also of a number for all places."""
    if isinstance(src, (bool, int, float)):
        src = op.Expand(like(src, x), op.Shape(index))
    return scattered(x, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def _spacing(offsets: Any) -> int | None:
    """Distance of known offsets from 0 on, where they are a range."""
    made = offsets.producer()
    if made is None or made.op_type != "Range":
        return None
    start, _, step = map(_number, made.inputs)
    return step if start == 0 else None


def _number(x: Any) -> int | None:
    """The number that a value is known to be, through casts."""
    while (made := x.producer()) is not None and made.op_type == "Cast":
        x = made.inputs[0]
    return None if x.const_value is None else int(x.const_value.numpy())
