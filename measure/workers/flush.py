"""Cold caches: everything is pushed out of them between two calls."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from loopwright.measure.machine import last_level_caches, private_bytes


class Flush:
    """Call it, and nothing that was there before is in any cache.

    The processors of every last-level cache write an array twice as large as that: each a piece
    of its own, since its private caches are not emptied by what others write, and one twice as
    large as these. At most as much as `most` bytes in all.
    """

    def __init__(self, most: int = 1 << 30) -> None:
        least = 2 * private_bytes()
        sizes = {
            n: max(2 * size // len(cpus), least)
            for cpus, size in last_level_caches()
            for n in cpus
        }
        self._processors = sorted(sizes)
        each = max(most // len(sizes), 1)
        self._pieces = [np.zeros(min(sizes[n], each), np.uint8) for n in self._processors]
        self._threads = ThreadPoolExecutor(len(self._processors), "flush")

    def __call__(self) -> None:
        list(self._threads.map(_write, self._processors, self._pieces))


def _write(processor: int, piece: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {processor})  # of this thread alone
    np.add(piece, 1, out=piece)
