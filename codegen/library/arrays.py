"""NumPy arrays as a compiled kernel sees them: addresses, alignment, foreign arrays, and layouts
of constants that are known again by their content."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from loopwright.codegen.library.signature import Parameter
from loopwright.codegen.library.torch_tensors import any_tensor, on_memory
from loopwright.dsl.dtypes import is_float, numpy_dtype
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.words import brief

Array = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


class Named(Protocol):
    """A parameter of known or open shape, which its text has."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...


def empty(parameter: Parameter) -> Array:
    """A new array for `parameter`, aligned to `ALIGNMENT` bytes, not initialised."""
    return aligned(parameter.shape, numpy_dtype(parameter.dtype), parameter.nbytes)[0]


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> tuple[Array, int]:
    """A new array of `nbytes` that begins at a multiple of `ALIGNMENT`, and where."""
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    at = address(buffer)
    start = -at % ALIGNMENT
    return np.ndarray(shape, dtype, buffer, start), at + start


def as_bytes(array: Array) -> Array:
    """The bytes of a dense array, on its memory."""
    return array.reshape(-1).view(np.uint8)


def aligned_copy(array: Array) -> Array:
    """A copy that begins at a multiple of `ALIGNMENT`."""
    copy = aligned(array.shape, array.dtype, array.nbytes)[0]
    copy[...] = array
    return copy


def as_array(value: Any, parameter: Named) -> Array:
    """`value` as a NumPy array that shares its memory where it can, of any shape and dtype.

    Takes NumPy arrays, what speaks DLPack (on the CPU), and for convenience whatever
    `np.asarray` makes an array of. Raises `ShapeError` where that fails.
    """
    if isinstance(value, np.ndarray):
        if np.ma.is_masked(value):
            raise ShapeError(
                f"{parameter.name} has masked elements, and a mask is not taken: give all of "
                "them values, by .filled(0) say"
            )
        return value
    try:
        if any_tensor((value,)):
            array: Array = on_memory(value)
            return array
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        found = np.asarray(value)
        takes = "biuf" if is_float(parameter.dtype) else "biu"
        if found.dtype.kind in "fc" and found.dtype.kind not in takes and found.size:
            raise TypeError(f"its elements are {found.dtype}, and must be {parameter.dtype}")
        if found.dtype.kind in "OSU":  # of which NumPy makes numbers: of None, one that is none
            raise TypeError("its elements are no numbers, or too large")
        return np.asarray(value, numpy_dtype(parameter.dtype))
    except Exception as error:  # whatever the value's own code raises
        by_name = "; inputs by name are given as f(**inputs)" if isinstance(value, Mapping) else ""
        raise ShapeError(
            f"{parameter.name}: cannot read {brief(value)} as an array ({error}); give "
            f"{str(parameter).removeprefix(parameter.name + ': ')}{by_name}"
        ) from error


def check(array: Array, parameter: Parameter) -> None:
    """Raises `ShapeError` unless dtype and shape are those of `parameter`."""
    if array.dtype != numpy_dtype(parameter.dtype):
        raise ShapeError(
            f"{parameter.name} has dtype {array.dtype}; it must be {parameter.dtype} "
            f"(convert it with .astype)"
        )
    if array.shape != parameter.shape:
        raise ShapeError(
            f"{parameter.name} has shape {array.shape}; the library was built for "
            f"{parameter.shape}"
        )


def dense(array: Array) -> Array:
    """`array` itself if it is dense, in C order and aligned to its element; else a copy."""
    if array.flags.c_contiguous and not address(array) % array.itemsize:
        return array
    copy = np.empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _portable_address(array: Array) -> int:
    return array.ctypes.data


def _field_address(array: Array) -> int:
    value: int | None = _pointer_at(id(array) + _HEAD).value
    return value or 0


_pointer_at = ctypes.c_void_p.from_address
_HEAD = object.__basicsize__


def _fastest_address() -> Callable[[Array], int]:
    """Six times as fast as `array.ctypes.data`: the pointer is the first field of CPython's
    array object, as NumPy's C interface has promised since 1.0. Checked before it is trusted.
    """
    if sys.implementation.name != "cpython":
        return _portable_address
    probe = np.arange(8, dtype=np.int8)
    same = all(_field_address(a) == _portable_address(a) for a in (probe, probe[3:], probe[::-2]))
    return _field_address if same else _portable_address


address: Callable[[Array], int] = _fastest_address()
"""Address of an array's first element, in bytes."""


class KeptLayout:
    """Arrays prepared for the constants of the latest call, with copies of these constants.

    A constant may be written to between two calls, so its identity proves nothing: all of its
    bytes are compared. That reads the constants twice, and stops at the first difference.
    """

    def __init__(self) -> None:
        self._latest: tuple[list[Array], list[Array]] | None = None

    def find(self, constants: Sequence[Array]) -> list[Array] | None:
        """Arrays prepared for the same constants; None where others were the latest."""
        latest = self._latest  # one read: another thread may replace it
        if latest is None or not all(map(_same_bytes, constants, latest[0])):
            return None
        return latest[1]

    def keep(self, constants: Sequence[Array], prepared: list[Array]) -> None:
        """Keep what was prepared for dense `constants`, in place of what was kept before."""
        self._latest = [array.copy() for array in constants], prepared


def _same_bytes(one: Array, other: Array) -> bool:
    return not _memcmp(address(one), address(other), one.nbytes)


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
