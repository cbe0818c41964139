"""Known values of a network at some sizes, beside those at the greatest sizes."""

from __future__ import annotations

import numpy as np

from loopwright.graph.importers.onnx.operators.shapes import few
from loopwright.graph.importers.onnx.values import Array
from loopwright.schedule.open.family import Share


def grows(array: Array, greatest: Array) -> bool:
    """Return whether a known value is one number, or a condition that is the same everywhere, and
    no such at the greatest sizes."""
    if array.dtype == bool:
        return _is_one(array) and not _is_one(greatest)
    return bool(array.size == 1 < greatest.size)


def _is_one(array: Array) -> bool:
    """Return whether all elements are the same."""
    flat = array.reshape(-1)
    return bool((flat == flat[:1]).all())


def fits(array: Array, greatest: Array, is_result: bool) -> bool:
    """Return whether a known value needs no computation at a call: it is what the greatest one
    begins with, or numbers of which the formulas are found. A result is no part of another one."""
    is_same = array.shape == greatest.shape
    if not is_same or not (few(array) if is_result else array.size == 1):
        return begins(array, greatest) and (is_same or not is_result)
    return all(
        x == y or None not in (Share.taken(float(x)), Share.taken(float(y)))
        for x, y in zip(array.reshape(-1).tolist(), greatest.reshape(-1).tolist())
    )


def begins(array: Array, whole: Array | None) -> bool:
    """Return whether an array is what another one begins with along every axis."""
    if array is whole:
        return True
    if whole is None or array.ndim != whole.ndim or array.dtype != whole.dtype:
        return False
    if any(n > m for n, m in zip(array.shape, whole.shape, strict=True)):
        return False
    part = whole[tuple(slice(n) for n in array.shape)]
    return bool(np.array_equal(array, part, equal_nan=array.dtype.kind == "f"))
