"""Coverage: whether the stores of a program write all of a buffer that it gives back."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.schedule.tree.grammar import Column
from loopwright.schedule.tree.index_analysis import greatest, least

MOST_AT_ONCE = 1 << 22
"""Combinations of columns that are looked at."""

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


def left_out(writes: Sequence[Write]) -> Iterator[Any]:
    """Columns of the configs in which elements of a buffer that has these stores are not written.

    What is found is wrong, but not all that is wrong is found. Along every axis the first and the
    last element are to be written, and fewer elements left out between two neighbours of a store
    than there are other stores. Stores that see a buffer with several ranks are not judged. Where
    telling whether a store is reached takes too many combinations, it counts as reached.
    """
    if len({len(axes) for axes, _ in writes}) > 1:
        return
    yield np.logical_not(functools.reduce(operator.or_, (r for _, r in writes), False))
    for same in zip(*(axes for axes, _ in writes), strict=True):
        low: Column = _NONE
        high: Column = -1
        gap: Column = _NONE
        for axis, (_, reached) in zip(same, writes, strict=True):
            low = least(low, _where(reached, axis.low, _NONE))
            high = greatest(high, _where(reached, axis.high, -1))
            gap = least(gap, _where(reached, axis.gap, _NONE))
        yield low > 0
        yield high < same[0].extent - 1
        yield gap > len(writes)


def _where(reached: Any, x: Column, otherwise: int) -> Column:
    """The values of a store that is reached."""
    if reached is True or np.broadcast(reached, x).size > MOST_AT_ONCE:
        return x
    return np.where(reached, x, otherwise)
