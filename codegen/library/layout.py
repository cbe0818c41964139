"""Constants that a library has laid out already, known again by their content."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from loopwright.codegen.library.arrays import Array, address


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
