"""Sizes of a box: those at which structures are made, and those at which formulas are compared."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loopwright.dsl.size import Dim

DRAWN = 24
"""Sizes at which a structure is made first."""
_COMPARED = 1 << 12  # sizes along an edge of a box at which formulas are compared

Sizes = tuple[int, ...]
"""A value of every dim, in order."""


@functools.lru_cache(maxsize=32)
def everywhere(dims: tuple[Dim, ...]) -> dict[str, np.ndarray[Any, Any]]:
    """All sizes of a box; of many those along its edges, the first and the last of each, and some
    that are drawn."""
    lines = [d.values for d in dims]
    if math.prod(map(len, lines)) <= _COMPARED:
        every: Iterable[Sizes] = itertools.product(*lines)
    else:
        rng = np.random.default_rng(0)
        ends = [(line[0], line[-1]) for line in lines]
        cut = [[*dict.fromkeys((*n[:_COMPARED], *n[-_COMPARED:]))] for n in lines]
        edges = (
            itertools.product(*(cut[k] if k == at else ends[k] for k in range(len(dims))))
            for at in range(len(dims))
        )
        some = zip(*(rng.choice(np.array(n), _COMPARED).tolist() for n in lines))
        every = itertools.chain(*edges, some)
    where = np.array([*every], np.int64)
    return {d.name: where[:, k] for k, d in enumerate(dims)}


def drawn(
    dims: Sequence[Dim], count: int = DRAWN, whole: Sequence[Dim] = ()
) -> Iterator[tuple[int, ...]]:
    """Sizes in a box: its corners, and others drawn evenly in the logarithm and in number, first
    those of the `whole` box that lie in it: what other boxes tried is known."""
    yield tuple(d.low for d in dims)
    yield tuple(d.high for d in dims)
    shared = [s for s in _drawn(whole, 2 * count) if inside(s, dims)] if whole else []
    yield from shared[:count]
    yield from _drawn(dims, count - len(shared))


def _drawn(dims: Sequence[Dim], count: int) -> Iterator[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    for number in range(count):
        sizes = []
        for d in dims:
            u = rng.random()
            even = number % 2 and d.low > 0  # no logarithm has a size of 0
            value = d.low * (d.high / d.low) ** u if even else d.low + u * (d.high - d.low)
            steps = round((value - d.low) / d.multiple)
            sizes.append(d.values[min(steps, len(d.values) - 1)])
        yield tuple(sizes)


def inside(sizes: Sequence[int], dims: Sequence[Dim]) -> bool:
    """Return whether sizes lie in a box."""
    return all(d.low <= s <= d.high for s, d in zip(sizes, dims, strict=True))


def without(
    dims: tuple[Dim, ...],
    sizes: Sequence[int],
    made_for: Mapping[str, int],
    among: Collection[str] = (),
) -> tuple[Dim, ...]:
    """The box that is left on the side of `made_for`, without `sizes`: cut where least is lost."""
    best: tuple[float, tuple[Dim, ...]] | None = None
    for at, (known, size) in enumerate(zip(dims, sizes, strict=True)):
        own = made_for[known.name]
        if size == own or (among and known.name not in among):
            continue
        if size < own:
            cut = replace(known, low=size + known.multiple)
        else:
            cut = replace(known, high=size - known.multiple)
        kept = (cut.high - cut.low + known.multiple) / (known.high - known.low + known.multiple)
        if best is None or kept > best[0]:
            best = kept, (*dims[:at], cut, *dims[at + 1 :])
    assert best is not None, "its own size fits"
    return best[1]
