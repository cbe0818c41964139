"""Halves in float32 until the result of an operator: sums of them may be beyond their type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from loopwright.dsl.dtypes import HALVES, is_float, numpy_dtype
from loopwright.dsl.expr import Expr
from loopwright.dsl.functions import cast
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, Rule
from loopwright.graph.importers.onnx.values import Value, define, shape_of


def in_float32(rule: Rule) -> Rule:
    """The rule in float32 where its first floats are halves: what it sums may be beyond them."""

    @functools.wraps(rule)
    def wide(call: Call) -> Value | Sequence[Value]:
        types = (str(x.dtype) for x in call.inputs if x is not None)
        narrow = next(filter(is_float, types), "")
        if narrow not in HALVES:
            return rule(call)
        given = [
            _as(x, "float32") if x is not None and str(x.dtype) == narrow else x
            for x in call.inputs
        ]
        made = rule(replace(call, inputs=tuple(given)))
        values = [made] if isinstance(made, (Tensor, np.ndarray)) else made
        results = [_as(y, narrow) if str(y.dtype) == "float32" else y for y in values]
        return results if len(results) > 1 else results[0]

    return wide


def _as(x: Value, dtype: str) -> Value:
    if not isinstance(x, Tensor):
        return x.astype(numpy_dtype(dtype))
    return define("cast", shape_of(x), lambda *i: cast(x[i], dtype))


def rounded_once(of: Callable[..., Expr]) -> Callable[..., Expr]:
    """The function of elements in float32 where they are halves, of several steps the last one
    rounded."""

    def wide(*elements: Expr) -> Expr:
        dtype = elements[0].dtype
        if dtype not in HALVES:
            return of(*elements)
        return cast(of(*(cast(x, "float32") for x in elements)), dtype)

    return wide
