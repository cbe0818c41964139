"""Points of a space in batches: what the strategies of this folder move, count and choose among.

A batch of n points is an int64 array of shape (n, 1 + K): column 0 is the number of the sketch,
the others are the choice of each of its knobs, and 0 where it has fewer than the longest one. All
that is done to points is array arithmetic, so that thousands of Markov chains cost as one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.explore.strategies.knobs import NEAR, KnobTables
from loopwright.schedule.sketch.naming import Derivation, SketchName
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space

Points = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

_HUGE = 1 << 62
_KEPT = 0.7  # the share of knobs that a guess leaves alone
_LISTED = 1 << 18
"""Spaces up to this size are listed to find what is left; larger ones do not run dry."""
_DRAWS, _MANY = 8, 1 << 12
"""So often points are drawn, and then so many at a time, where legal ones are rare."""
_GOLDEN = 0x9E3779B97F4A7C15  # 2⁶⁴ over the golden ratio: multiplying by it mixes bits well


@dataclass(frozen=True, eq=False)
class EncodedSpace:
    """The points that a search may visit.

    Attributes
    ----------
    space: where they come from.
    legal: which of a batch may be visited; None for all. Spaces of processors have legal points
        only; those of GPUs have some that do not fit, and tables of recorded costs have gaps.

    Where a method takes `among`, it keeps to the sketches of these numbers, if they are given.
    """

    space: Space
    legal: Callable[[Points], Mask] | None = None

    @functools.cached_property
    def tables(self) -> KnobTables:
        return KnobTables.of(self.space.sketches)

    @property
    def width(self) -> int:
        """Numbers of a point, 1 + K."""
        return 1 + int(self.tables.kind.shape[1])

    @property
    def default(self) -> Points:
        """The default config, as a batch of one."""
        return np.concatenate([np.zeros((1, 1), np.int64), self.tables.default[:1]], axis=1)

    @property
    def advised(self) -> bool:
        """Return whether defaults are chosen by rules of thumb; a table's default is just a
        point."""
        return self.space.sketches[0].has_loops

    @functools.cached_property
    def every(self) -> Points:
        """The numbers of all sketches."""
        return np.arange(len(self.space.sketches))

    @functools.cached_property
    def leaders(self) -> Points:
        """The first sketch of each algorithm, in the space's order, and then that of each variant
        of one."""
        algorithms: dict[Derivation, int] = {}
        variants: dict[Derivation, int] = {}
        for number, sketch in enumerate(self.space.sketches):
            algorithms.setdefault(sketch.algorithm, number)
            variants.setdefault(sketch.derivation, number)
        first = dict.fromkeys([*algorithms.values(), *variants.values()])
        return np.array(list(first), np.int64)

    def some(self, n: int, among: Points | None = None) -> Points:
        """Up to `n` sketches: half are the first of each algorithm and then the first of all,
        which rules of thumb like best; the others are spread evenly over the space's order."""
        every = self.every if among is None else np.sort(among)
        liked = np.concatenate([self.leaders[np.isin(self.leaders, every)], every])
        liked = liked[np.sort(np.unique(liked, return_index=True)[1])][: n - n // 2]
        return np.union1d(liked, evenly(np.setdiff1d(every, liked), n // 2))

    def defaults(self, n: int, among: Points | None = None) -> Points:
        """The default configs of up to `n` sketches: one of each algorithm, then some spread
        evenly over the space's order."""
        every = self.every if among is None else np.sort(among)
        first = self.leaders[np.isin(self.leaders, every)][:n]
        rest = evenly(np.setdiff1d(every, first), n - len(first))
        sketch = np.concatenate([first, rest])
        return np.concatenate([sketch[:, None], self.tables.default[sketch]], axis=1)

    def untried(self, known: Points) -> Points:
        """The default configs of the algorithms, of any size, that are not known."""
        first: dict[tuple[str, ...], int] = {}
        for number, found in enumerate(self.space.sketches):
            first.setdefault(found.derivation.names, number)
        sketch = np.array(list(first.values()), np.int64)
        points = np.concatenate([sketch[:, None], self.tables.default[sketch]], axis=1)
        return points[~np.isin(hashes(points), hashes(known))]

    def guesses(self, n: int, rng: np.random.Generator, among: Points | None = None) -> Points:
        """`n` points drawn like `sample`, but that most knobs keep their default, which rules of
        thumb chose; some may be equal, some not legal."""
        points = self.sample(n, rng, among)
        kept = rng.random((n, self.width - 1)) < _KEPT
        points[:, 1:] = np.where(kept, self.tables.default[points[:, 0]], points[:, 1:])
        return points

    def points(self, configs: Iterable[Config]) -> Points:
        """The points of configs. Raises `ConfigError` for one that is not of the space."""
        rows = []
        for config in configs:
            sketch = self.space.sketch(config.sketch)
            numbers = sketch.numbers(config)
            padding = [0] * (self.width - 1 - len(numbers))
            rows.append((self._numbers[sketch.name], *numbers, *padding))
        return np.array(rows, np.int64).reshape(-1, self.width)

    def configs(self, points: Points) -> list[Config]:
        """The configs of points."""
        sketches = [self.space.sketches[point[0]] for point in points]
        return [
            sketch.at(point[1 : 1 + len(sketch.knobs)].tolist())
            for sketch, point in zip(sketches, points, strict=True)
        ]

    def is_legal(self, points: Points) -> Mask:
        """Mask of the points that may be visited."""
        return np.ones(len(points), np.bool_) if self.legal is None else self.legal(points)

    def sample(self, n: int, rng: np.random.Generator, among: Points | None = None) -> Points:
        """`n` points, drawn evenly over sketches, and then over the choices of each knob; some
        may be equal, some not legal."""
        among = self.every if among is None else among
        sketch = among[rng.integers(len(among), size=n)]
        numbers = rng.integers(self.tables.counts[sketch])
        return np.concatenate([sketch[:, None], numbers], axis=1)

    def fresh(
        self, n: int, seen: Seen, rng: np.random.Generator, among: Points | None = None
    ) -> Points:
        """Up to `n` different legal points, none of them seen, drawn like `sample`; fewer only
        where next to no more are left. Where few are left `among` some sketches, others follow."""
        found = np.empty((0, self.width), np.int64)
        for size in (*[4 * n] * _DRAWS, *[max(4 * n, _MANY)] * _DRAWS):
            drawn = seen.unseen(self.sample(size, rng, among))
            found = distinct(np.concatenate([found, drawn[self.is_legal(drawn)]]))[:n]
            if len(found) == n:
                return found
        if among is not None:
            rest = self.fresh(n - len(found), seen.and_also(found), rng)
            return np.concatenate([found, rest])
        if self.space.size > _LISTED:
            return found
        left = seen.unseen(self.listed)
        return rng.permutation(left)[:n]

    @functools.cached_property
    def listed(self) -> Points:
        """Every legal point; for small spaces only."""
        points = self.range(0, self.space.size)
        return points[self.is_legal(points)]

    def range(self, start: int, stop: int) -> Points:
        """Points number `start` to `stop` in the order of sketches, their last knob fastest."""
        parts, first = [np.empty((0, self.width), np.int64)], 0
        for number, sketch in enumerate(self.space.sketches):
            low, high = max(start - first, 0), min(stop - first, sketch.size)
            if low < high:
                index = np.arange(low, min(high, _HUGE), dtype=np.int64)
                parts.append(self._unranked(number, index))
            first += sketch.size
        return np.concatenate(parts)

    def _unranked(self, sketch: int, index: Points) -> Points:
        rows = np.zeros((len(index), self.width), np.int64)
        rows[:, 0] = sketch
        counts, step = self.tables.counts[sketch].tolist(), 1
        for k in range(len(counts) - 1, -1, -1):
            rows[:, 1 + k] = index // min(step, _HUGE) % counts[k]
            step *= counts[k]
        return rows

    def neighbours(
        self,
        points: Points,
        rng: np.random.Generator,
        hop: float = 0.1,
        among: Points | None = None,
    ) -> Points:
        """One neighbour of each point: another choice of one knob, near in value or any; or,
        with the probability `hop`, another sketch with choices as alike as it has."""
        t, n, rows = self.tables, len(points), np.arange(len(points))
        counts = t.counts[points[:, 0]]
        knob = np.argmax(np.where(counts > 1, rng.random(counts.shape), -1.0), axis=1)
        old, count = points[rows, 1 + knob], counts[rows, knob]
        far = (old + 1 + rng.integers(np.maximum(count - 1, 1))) % count
        near = t.near[t.kind[points[:, 0], knob], old, rng.integers(NEAR, size=n)]
        new = points.copy()
        new[rows, 1 + knob] = np.where(rng.random(n) < 0.5, near, far)
        among = self.every if among is None else np.sort(among)
        if len(among) > 1:
            own = np.searchsorted(among, points[:, 0])
            target = among[(own + rng.integers(1, len(among), size=n)) % len(among)]
            leave = (rng.random(n) < hop) | (counts.max(axis=1, initial=1) == 1)
            new[leave] = self.moved(points[leave], target[leave])
        return new

    def around(self, point: Points) -> tuple[Points, Points]:
        """The points that differ from one, of shape (1 + K,), in one knob, legal or not; and
        which knob."""
        counts = self.tables.counts[point[0]]
        knobs = np.repeat(np.arange(len(counts)), counts)
        choices = np.concatenate([np.arange(count) for count in counts])
        other = choices != point[1 + knobs]
        knobs, choices = knobs[other], choices[other]
        points = np.repeat(point[None], len(knobs), axis=0)
        points[np.arange(len(knobs)), 1 + knobs] = choices
        return points, knobs

    def moved(self, points: Points, sketch: Points) -> Points:
        """The points carried over to other sketches: knobs of the same name get the choice that
        is nearest in value, new ones their default."""
        t = self.tables
        value = np.take_along_axis(self.values(points), 1 + t.name[sketch], axis=1)
        nearest = t.nearest[t.kind[sketch], np.maximum(value, 0)]
        numbers = np.where(value >= 0, nearest, t.default[sketch])
        return np.concatenate([sketch[:, None], numbers], axis=1)

    def crossed(self, one: Points, other: Points, rng: np.random.Generator) -> Points:
        """A child of each pair: every knob from either parent, the sketch from the first."""
        other = self.moved(other, one[:, 0])
        return np.where(rng.random(one.shape) < 0.5, one, other)

    def values(self, points: Points) -> Points:
        """The components s_j of Eq. 3, shape (n, 2 + names): the sketch, then for every name of
        a knob the number of its value, -1 where the sketch has none; the last column is -1."""
        t, sketch = self.tables, points[:, 0]
        result = np.full((len(points), 2 + t.names), -1, np.int64)
        result[:, 0] = sketch
        value = t.value[t.kind[sketch], points[:, 1:]]
        np.put_along_axis(result, 1 + t.name[sketch], value, axis=1)
        result[:, -1] = -1
        return result

    @functools.cached_property
    def _numbers(self) -> dict[SketchName, int]:
        return {sketch.name: number for number, sketch in enumerate(self.space.sketches)}


class Seen:
    """A set of points, kept as 64-bit hashes."""

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.uint64)

    def and_also(self, points: Points) -> Seen:
        """A new set with these points too."""
        more = Seen()
        more._hashes = np.union1d(self._hashes, hashes(points))
        return more

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, points: Points) -> None:
        self._hashes = np.union1d(self._hashes, hashes(points))

    def has(self, points: Points) -> Mask:
        """Mask of the points that are in the set."""
        return np.isin(hashes(points), self._hashes)

    def unseen(self, points: Points) -> Points:
        """Points that are not in the set, each once, in order."""
        return points[self.places(points)]

    def places(self, points: Points) -> Points:
        """The places of those that are not in the set, each once, in order."""
        _, first = np.unique(hashes(points), return_index=True)
        first = np.sort(first)
        return first[~self.has(points[first])]


def evenly(numbers: Points, n: int) -> Points:
    """Up to `n` of the numbers, evenly over their order."""
    places = np.linspace(0, len(numbers) - 1, min(n, len(numbers))).round().astype(np.int64)
    return numbers[np.unique(places)]


def hashes(rows: np.ndarray[Any, Any]) -> Hashes:
    """A 64-bit hash of each row of integers."""
    mixed = rows.astype(np.uint64) * np.uint64(_GOLDEN)
    mixed ^= mixed >> np.uint64(32)
    odd = np.random.default_rng(_GOLDEN).integers(1 << 63, size=rows.shape[1], dtype=np.uint64)
    result: Hashes = mixed @ (2 * odd + 1)
    return result


def distinct(points: Points) -> Points:
    """The points without repetitions, in order of their first appearance."""
    return Seen().unseen(points)
