"""Where the arrays between steps lie: one block of memory, shared by those that never meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Lifetime:
    """An array of `nbytes`, needed from step `first` to step `last`, both included."""

    key: int
    nbytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """The offset of every array, and the bytes of the block.

    The largest first, each at the lowest place that is free for as long as it lives (greedy by
    size, as in Pisarchyk and Lee 2020, *Efficient memory management for deep neural net
    inference*).
    """
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[int, int] = {}
    for life in sorted(lifetimes, key=lambda x: (-x.nbytes, x.first, x.key)):
        at = 0
        others = [p for p in placed if p[2].first <= life.last and life.first <= p[2].last]
        for start, end, _ in sorted(others, key=lambda p: p[0]):
            if at + life.nbytes <= start:
                break
            at = max(at, end)
        offsets[life.key] = at
        placed.append((at, at + -(-life.nbytes // ALIGNMENT) * ALIGNMENT, life))
    return offsets, max((end for _, end, _ in placed), default=0)
