"""`pad`: more elements around a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import Expr
from loopwright.dsl.functions import where
from loopwright.dsl.index import Index
from loopwright.dsl.size import Size
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief


def pad(x: Tensor, widths: Sequence[tuple[int, int]], value: float = 0) -> Tensor:
    """A tensor with `(before, after)` more elements on each axis, all equal to `value`; of truth
    values 0 is False."""
    shape = x.shape if isinstance(x, Tensor) else None
    if shape is None or not isinstance(widths, Sequence) or len(widths) != len(shape):
        raise NotationError(
            f"pad: {brief(x)} with {brief(widths)}: give a tensor that has a shape, and one "
            "(before, after) for each axis"
        )
    for pair in widths:
        numbers = (int, np.integer, Size)
        whole = isinstance(pair, Sequence) and all(isinstance(n, numbers) for n in pair)
        if not whole or len(pair) != 2 or min(pair) < 0:
            raise NotationError(
                f"pad: {pair!r} in {widths}; give (before, after), integers ≥ 0, for each axis"
            )
        if isinstance(pair[0], Size):
            raise NotationError(
                f"pad: {pair[0]} elements before an axis: only those after it may be a size of "
                "the call; give an integer, or the workload fixed sizes"
            )
    if not any(map(any, widths)):
        return x
    axes = tuple(Index(f"i{d}") for d in range(len(shape)))
    out = Tensor(
        f"{x.name}_pad",
        tuple(a + n + b for n, (a, b) in zip(shape, widths, strict=True)),
        x.dtype,
        x.constant,
    )
    inside: Expr | None = None
    for axis, extent, (before, after) in zip(axes, shape, widths, strict=True):
        tests = [axis >= before] if before else []
        tests += [axis < before + extent] if after else []
        for test in tests:
            inside = test if inside is None else inside & test
    assert inside is not None
    shifted = tuple(axis - before for axis, (before, _) in zip(axes, widths, strict=True))
    out[axes] = where(inside, x[shifted], False if x.dtype == "bool" and value == 0 else value)
    return out
