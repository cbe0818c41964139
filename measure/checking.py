"""Outputs: as bytes on their way between processes, and whether they are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.workload import Workload, tensor_shape

Array = np.ndarray[Any, np.dtype[Any]]


def to_bytes(outputs: Sequence[Array]) -> tuple[memoryview, ...]:
    """The elements of every array."""
    return tuple(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data for a in outputs)


def from_bytes(workload: Workload, blobs: Sequence[Any]) -> tuple[Array, ...]:
    """The outputs of a workload that `to_bytes` took apart."""
    return tuple(
        np.frombuffer(blob, numpy_dtype(t.dtype)).reshape(tensor_shape(t))
        for t, blob in zip(workload.outputs, blobs)
    )


def poison(array: Array) -> None:
    """Fill an array with what no program computes: NaN, or an odd pattern of bits."""
    array.reshape(-1).view(np.uint8)[...] = poison_byte(array.dtype)


def poison_byte(dtype: np.dtype[Any]) -> int:
    """The byte that `poison` fills an array of a type with."""
    return 0xFF if _is_float(dtype) else 0xA5


def difference(
    workload: Workload,
    found: Sequence[Array],
    expected: Sequence[Array],
    tolerance: tuple[float, float],
    most: int | None = None,
    slack: Sequence[Array] = (),
) -> str | None:
    """Sentence about how outputs differ from those expected; None if they agree: floats within
    `tolerance` = (rtol, atol) and `slack` (see `dsl.oracle`), NaN with NaN, all else if equal but
    for the slack. Of more than `most` elements that many are looked at, always the same ones."""
    more: Sequence[Array | float] = [s.reshape(-1) for s in slack] or [0.0] * len(expected)
    for tensor, whole, reference, left in zip(workload.outputs, found, expected, more):
        one, other, where = _chosen(whole, reference, most)
        some = left[where] if isinstance(left, np.ndarray) else left
        wrong = ~_close(one, other, tolerance, some)
        if wrong.any():
            return _sentence(tensor.name, one, other, wrong, where, whole.shape)
    return None


def _chosen(one: Array, other: Array, most: int | None) -> tuple[Array, Array, Array]:
    one, other = one.reshape(-1), other.reshape(-1)
    if most is None or one.size <= most:
        return one, other, np.arange(one.size)
    where = np.random.default_rng(0).integers(0, one.size, most)
    return one[where], other[where], where


def _close(
    one: Array, other: Array, tolerance: tuple[float, float], slack: Array | float
) -> Array:
    if not _is_float(one.dtype):
        bits = one.view(np.uint8) if one.dtype == bool else one
        off = np.abs(bits.astype(np.float64) - other.astype(np.float64))
        return np.asarray((bits == other) | (off <= slack) & (off > 0))
    rtol, atol = tolerance
    one, other = one.astype(np.float64), other.astype(np.float64)
    return np.isclose(one, other, rtol=rtol, atol=atol + slack, equal_nan=True)


def _sentence(
    name: str, one: Array, other: Array, wrong: Array, where: Array, shape: tuple[int, ...]
) -> str:
    first = int(np.flatnonzero(wrong)[0])
    at = ", ".join(str(int(i)) for i in np.unravel_index(where[first], shape))
    return (
        f"{name}: {int(wrong.sum())} of {wrong.size} elements are wrong; "
        f"{name}[{at}] is {one[first]}, not {other[first]}"
    )


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"
