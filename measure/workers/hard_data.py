"""Data on which numerics show: features of very different sizes.

A feature may come in millionths and its weights in millions. That changes no product, and so no
result; but a program that adds features before it multiplies, or stores the weights of several in
one scale, loses the small ones (`numerics` "strict" and "standard" promise that none does).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Binary, Const, Expr, Read, Select
from loopwright.dsl.index import Index
from loopwright.dsl.oracle import random_inputs
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.traversal import walk
from loopwright.dsl.workload import Workload, defined

Array = np.ndarray[Any, Any]

DECADES = {"float64": 12.0, "float32": 12.0, "bfloat16": 12.0, "float16": 2.4}
"""Powers of ten that features are apart at most: products stay far from the ends of the type."""


def drawn(workload: Workload, seed: int, scaled: bool) -> tuple[Array, ...]:
    """The inputs of a seed, uniform, or with features of very different sizes."""
    rng = np.random.default_rng(seed)
    inputs = random_inputs(workload, rng)
    return with_scaled_features(workload, inputs, rng) if scaled else inputs


def with_scaled_features(
    workload: Workload, inputs: Sequence[Array], rng: np.random.Generator
) -> tuple[Array, ...]:
    """Inputs with every reduction axis of a product scaled in one operand and back in the other,
    by powers of two, so that results stay the same; as they are where there is no such axis."""
    made = {t: np.array(value) for t, value in zip(workload.inputs, inputs, strict=True)}
    for (one, at), (other, place), extent in _features(workload):
        half = DECADES[one.dtype] / 2 / np.log10(2)
        exponents = rng.integers(-int(half), int(half) + 1, extent)
        for tensor, axis, sign in ((one, at, 1), (other, place, -1)):
            shape = [-1 if d == axis else 1 for d in range(made[tensor].ndim)]
            factor = np.exp2(sign * exponents.astype(np.float64)).reshape(shape)
            made[tensor] = (made[tensor] * factor).astype(made[tensor].dtype)
    return tuple(made[t] for t in workload.inputs)


def _features(workload: Workload) -> Iterator[tuple[tuple[Tensor, int], tuple[Tensor, int], int]]:
    """Two inputs, read once, the axis of each that a product sums over, and its extent."""
    parts = (part for s in workload.stages for part in walk(defined(s).body))
    reads = [part for part in parts if isinstance(part, Read)]
    for stage in workload.stages:
        d = defined(stage)
        if d.reducer != "sum" or not isinstance(d.body, Binary) or d.body.op != "mul":
            continue
        if not isinstance(d.body.x, Read) or not isinstance(d.body.y, Read):
            continue
        for axis in d.reduce:
            sides = [_input(x, axis) for x in (d.body.x, d.body.y)]
            if None in sides:
                continue
            (one, at), (other, place) = (side for side in sides if side is not None)
            once = all(sum(r.tensor is t for r in reads) == 1 for t in (one, other))
            extent = d.extents[axis]
            same = one.dtype == other.dtype and is_float(one.dtype) and one is not other
            whole = (one.shape or ())[at] == (other.shape or ())[place] == extent
            if once and same and whole:
                yield (one, at), (other, place), extent


def _input(x: Expr, axis: Index) -> tuple[Tensor, int] | None:
    """The input that an operand is, or is a padded copy of, and which of its axes a loop walks."""
    while isinstance(x, Read):
        plain = [p.plain() for p in x.index]
        if sum(axis in p.indices() for p in x.index) != 1 or axis not in plain:
            return None
        place = plain.index(axis)
        if x.tensor.definition is None:
            return x.tensor, place
        inner = x.tensor.definition
        if inner.reducer is not None or place >= len(inner.axes):
            return None
        axis, x = inner.axes[place], inner.body
        if isinstance(x, Select) and isinstance(x.y, Const) and x.y.value == 0:
            x = x.x
    return None
