"""Cold caches: everything is pushed out of them between two calls."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from loopwright.measure.machine import last_level_bytes, processors


class Flush:
    """Call it, and nothing that was there before is in any cache.

    Every processor writes a piece of an array twice as large as the last-level cache: a piece
    of its own, since its private caches are not emptied by what others write. At most as much
    as `most` bytes in all.
    """

    def __init__(self, most: int = 1 << 30) -> None:
        self._processors = sorted(processors())
        total = min(2 * last_level_bytes(), most)
        each = max(total // len(self._processors), 1)
        self._pieces = [np.zeros(each, np.uint8) for _ in self._processors]
        self._threads = ThreadPoolExecutor(len(self._processors), "flush")

    def __call__(self) -> None:
        list(self._threads.map(_write, self._processors, self._pieces))


def _write(processor: int, piece: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {processor})  # of this thread alone
    np.add(piece, 1, out=piece)
