"""Memory plan of the arrays between steps: one block of memory, shared by those that never
meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.codegen.library.plan import ALIGNMENT, aligned

_MORE = 1.1
"""Ratio by which the block may be larger for arrays to lie around their middles."""


@dataclass(frozen=True)
class Lifetime:
    """An array of `nbytes`, needed from step `first` to step `last`, both included."""

    key: int
    nbytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """The offset of every array, and the bytes of the block."""
    lowest, middle = _lowest(lifetimes), _around_middles(lifetimes)
    return middle if middle[1] <= _MORE * lowest[1] else lowest


def shelves(lifetimes: Sequence[Lifetime]) -> list[list[Lifetime]]:
    """Arrays that never meet on one shelf, the largest first."""
    found: list[list[Lifetime]] = []
    for life in _largest_first(lifetimes):
        free = (s for s in found if not any(_meet(life, other) for other in s))
        shelf = next(free, None)
        if shelf is None:
            found.append(shelf := [])
        shelf.append(life)
    return found


def _around_middles(lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """Arrays that share memory have their middles in one place, so that what is the first thread's
    part of one is nowhere that of the second thread in another: what another core has written, a
    core waits for before it may write there."""
    offsets: dict[int, int] = {}
    begin = 0
    for shelf in shelves(lifetimes):
        most = aligned(shelf[0].nbytes)
        for life in shelf:
            offsets[life.key] = begin + (most - aligned(life.nbytes)) // 2 // ALIGNMENT * ALIGNMENT
        begin += most
    return offsets, begin


def _lowest(lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], int]:
    """The largest first, each at the lowest place that is free for as long as it lives (greedy by
    size, as in Pisarchyk and Lee 2020, *Efficient memory management for deep neural net
    inference*)."""
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[int, int] = {}
    for life in _largest_first(lifetimes):
        at = 0
        others = [p for p in placed if _meet(p[2], life)]
        for start, end, _ in sorted(others, key=lambda p: p[0]):
            if at + life.nbytes <= start:
                break
            at = max(at, end)
        offsets[life.key] = at
        placed.append((at, at + aligned(life.nbytes), life))
    return offsets, max((end for _, end, _ in placed), default=0)


def _largest_first(lifetimes: Sequence[Lifetime]) -> list[Lifetime]:
    return sorted(lifetimes, key=lambda x: (-x.nbytes, x.first, x.key))


def _meet(one: Lifetime, other: Lifetime) -> bool:
    return one.first <= other.last and other.first <= one.last
