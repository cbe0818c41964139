"""Coverage: whether the stores of a program write all of a buffer that it gives back."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.schedule.tree.grammar import Column
from loopwright.schedule.tree.index_analysis import greatest, least

_NONE = 1 << 62


@dataclass(frozen=True)
class Subscripts:
    """The values of a subscript, neighbours of which are at most `gap` apart."""

    low: Column
    high: Column
    gap: Column
    extent: Column


Write = tuple[tuple[Subscripts, ...], Any]
"""The subscripts of a store, and in which configs it is reached."""


def left_out(writes: Sequence[Write]) -> Any:
    """Return the configs in which elements of a buffer that has these stores are not written.

    What is found is wrong, but not all that is wrong is found. Along every axis the first and the
    last element are to be written, and fewer elements left out between two neighbours of a store
    than there are other stores. Stores that see a buffer with several ranks are not judged.
    """
    if len({len(axes) for axes, _ in writes}) > 1:
        return False
    missing: Any = np.logical_not(functools.reduce(operator.or_, (r for _, r in writes), False))
    for same in zip(*(axes for axes, _ in writes), strict=True):
        low: Column = _NONE
        high: Column = -1
        gap: Column = _NONE
        for axis, (_, reached) in zip(same, writes, strict=True):
            where = reached is not True
            low = least(low, np.where(reached, axis.low, _NONE) if where else axis.low)
            high = greatest(high, np.where(reached, axis.high, -1) if where else axis.high)
            gap = least(gap, np.where(reached, axis.gap, _NONE) if where else axis.gap)
        ends = (low > 0) | (high < same[0].extent - 1)
        missing = missing | ends | (gap > len(writes))
    return missing
