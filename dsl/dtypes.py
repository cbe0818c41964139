"""The element types of tensors and what each one means to NumPy."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from loopwright.dsl.errors import NotationError
from loopwright.dsl.words import brief

FLOATS = ("float64", "float32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")


def check_dtype(dtype: DTypeLike | str) -> str:
    """The canonical name of an element type, given its name or NumPy's object for it."""
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except (TypeError, ValueError):  # ValueError where it has a type but is none, as a tensor
        name = brief(dtype)
    if name not in DTYPES:
        raise NotationError(f"dtype {name!r} is not supported; use one of {', '.join(DTYPES)}")
    return name


@functools.cache
def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """NumPy's type for a name of ours (bfloat16 comes from ml_dtypes)."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def is_float(dtype: str) -> bool:
    """Return whether a type has fractions."""
    return dtype in FLOATS


def sum_type(dtype: str) -> str:
    """The type in which elements of a type are summed: float32 for halves."""
    return "float32" if dtype in HALVES else dtype


def is_unsigned(dtype: str) -> bool:
    """Return whether a type has integers without a sign."""
    return dtype.startswith("uint")


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return numpy_dtype(dtype).itemsize


def epsilon(dtype: str) -> float:
    """The distance from 1 to the next number of a floating type; 0 for exact types."""
    return float(ml_dtypes.finfo(numpy_dtype(dtype)).eps) if is_float(dtype) else 0.0


def largest(dtype: str) -> float:
    """The largest finite number of a floating type."""
    return float(ml_dtypes.finfo(numpy_dtype(dtype)).max)


def limits(dtype: str) -> tuple[float | int, float | int]:
    """The lowest and highest values of a type; infinities for floating ones."""
    if is_float(dtype):
        return float("-inf"), float("inf")
    if dtype == "bool":
        return False, True
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def identity(reducer: str, dtype: str) -> float | int:
    """The number that changes no reduction of a type."""
    low, high = limits(dtype)
    value: float | int = {"sum": 0, "prod": 1, "max": low, "min": high}[reducer]
    return float(value) if is_float(dtype) else value
