"""Scans of torch: ONNX has sums alone, and the exporter no operators of other domains.

Others stand as CumSum while the exporter works, and get their names behind it.
"""

from __future__ import annotations

import math
from typing import Any

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.onnx.call import SCANS
from loopwright.graph.importers.torch.operators.parts import FLOAT, like, op, whole

_MARK = "loopwright.scan"
_INT64 = 7
"""The number of ONNX's type."""


def cumulative_product(x: Any, dim: int, dtype: Any = None) -> Any:
    """The products up to each element."""
    has_axes = bool(x.shape)  # what is made of x does not know its shape
    if dtype is not None or not _is_float(x):
        x = op.Cast(x, to=_INT64 if dtype is None else dtype)
    return _running("CumProd", x, dim) if has_axes else op.Identity(x)


def cumulative_logsumexp(x: Any, dim: int) -> Any:
    """The logarithms of sums of exponentials: in every step each takes in twice as many."""
    if not x.shape:
        return op.Identity(x)
    size = x.shape[dim]
    if not isinstance(size, int):
        raise ModelError("logcumsumexp goes along an axis of open size: fix that size")
    is_half = x.dtype.name in ("FLOAT16", "BFLOAT16")
    total = op.Cast(x, to=FLOAT) if is_half else x
    least, shift = like(-math.inf, total), 1
    while shift < size:
        before = [shift if d == dim % len(x.shape) else 0 for d in range(len(x.shape))]
        moved = op.Pad(total, whole(*before, *(-n for n in before)), least)
        total = _log_of_sum(total, moved)
        shift *= 2
    return op.CastLike(total, x)


def named(name: str, result: Any) -> Any:
    """A result whose operator gets a name of ours behind the exporter."""
    result.producer().metadata_props[_MARK] = name
    return result


def name_scans(model: Any) -> None:
    """Give operators of a model that the exporter has made the names of ours."""
    for node in model.graph:
        name = node.metadata_props.pop(_MARK, None)
        if name is not None:
            node.domain, node.op_type = SCANS, name
            model.graph.opset_imports[SCANS] = 1


def _running(name: str, x: Any, dim: int) -> Any:
    """A scan of some name."""
    result = op.CumSum(x, op.Constant(value_int=dim))
    return named(name, result)


def extreme(name: str, x: Any, dim: int) -> tuple[Any, Any]:
    """The extreme up to each element, and its place: of equal ones the last."""
    rank = len(x.shape)
    if not rank:
        return op.Identity(x), op.Constant(value_int=0)
    is_truth = x.dtype.name == "BOOL"
    values = _running(name, op.Cast(x, to=_INT64) if is_truth else x, dim)
    values = op.CastLike(values, x) if is_truth else values
    # From the first NaN on, all are NaN, of which the last one counts.
    counts = op.Equal(x, values)
    if _is_float(x):
        counts = op.Or(counts, op.IsNaN(x))
    size = op.Squeeze(op.Gather(op.Shape(x), whole(dim)), whole(0))
    places = op.Range(op.Constant(value_int=0), size, op.Constant(value_int=1))
    if behind := list(range(1, rank - dim % rank)):
        places = op.Unsqueeze(places, whole(*behind))
    return values, _running("CumMax", op.Where(counts, places, op.Constant(value_int=0)), dim)


def _log_of_sum(x: Any, y: Any) -> Any:
    """`log(exp(x) + exp(y))`, also of infinities that are equal."""
    apart = op.Exp(op.Neg(op.Abs(op.Sub(x, y))))
    apart = op.Where(op.Equal(x, y), like(1, x), apart)
    return op.Add(op.Max(x, y), op.Log(op.Add(apart, like(1, x))))


def _is_float(x: Any) -> bool:
    return "FLOAT" in x.dtype.name or x.dtype.name == "DOUBLE"
