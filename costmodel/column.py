"""Arithmetic on the columns of a batch: float32 arrays, or Python floats where all configs agree.

Python floats keep what is the same for all configs cheap, and never widen a float32 array;
NumPy's own float64 scalars would.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from loopwright.schedule.tree import Column

Array = np.ndarray[Any, np.dtype[np.floating[Any]]]
Real = float | Array
Mask = bool | np.ndarray[Any, np.dtype[np.bool_]]


def real(value: Column) -> Real:
    """A tree's integer column as one to compute with."""
    return value.astype(np.float32) if isinstance(value, np.ndarray) else float(value)


def least(a: Real, b: Real) -> Real:
    """The lesser of two columns."""
    if isinstance(a, float) and isinstance(b, float):
        return min(a, b)
    return np.minimum(a, b)


def times(a: Real, b: Real) -> Real:
    """The product, without work where a factor is 0 or 1 for all configs."""
    if isinstance(a, float) and (a == 1.0 or a == 0.0):
        return b if a == 1.0 else 0.0
    return a if isinstance(b, float) and b == 1.0 else a * b


def most(a: Real, b: Real) -> Real:
    """The greater of two columns."""
    if isinstance(a, float) and isinstance(b, float):
        return max(a, b)
    return np.maximum(a, b)


def where(mask: Mask, a: Real, b: Real) -> Real:
    """`a` where the mask holds, else `b`; both finite.

    Several times faster than `numpy.where`, whose branches are mispredicted.
    """
    if isinstance(mask, bool):
        return a if mask else b
    share = mask.astype(np.float32)
    return share * a + (1 - share) * b


def only(mask: Mask, a: Real) -> Real:
    """`a` where the mask holds, else 0."""
    if isinstance(mask, bool):
        return a if mask else 0.0
    return np.multiply(mask, a, dtype=np.float32)


def magnitude(a: Real) -> Real:
    """|a|."""
    return abs(a) if isinstance(a, float) else np.abs(a)


def total(parts: Iterable[Real]) -> Real:
    """The sum of columns."""
    result: Real = 0.0
    for part in parts:
        result = result + part
    return result


def rows(columns: Iterable[Real], n: int) -> Array:
    """Columns as the rows of one array of shape (columns, n)."""
    parts = list(columns)
    result = np.empty((len(parts), n), np.float32)
    for row, part in zip(result, parts):
        row[:] = part
    return result


def log(values: Array) -> Array:
    """log₂(1 + x) in place, elementwise: 0 stays 0, factors become distances."""
    values += 1
    return np.log2(values, out=values)
