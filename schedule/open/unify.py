"""Anti-unification over a box of sizes: where a structure is one, and what its numbers follow."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim
from loopwright.schedule.open.fit import Fit, divisors
from loopwright.schedule.tree.formula import Formula

_DRAWN = 24  # sizes at which a structure is made first
_AGAIN = 8  # sizes at which one is made first whose form is known
_ALL = 64  # sizes of a box, all of which are tried: a formula of a few may miss one of them
_STEPS = 1  # of a formula's last and other steps, around which it is made again
_ROUNDS = 8
_MOST_DIVISOR = 1 << 20

Sizes = tuple[int, ...]
"""A value of every dim, in order."""

Structure = tuple[Any, tuple[int, ...]]
"""A structure without its numbers, and these in a fixed order."""


@dataclass(frozen=True)
class Unified:
    """A structure for all sizes of a box: the formulas of the numbers that differ, by place.
    `kind` is the structure without its numbers."""

    dims: tuple[Dim, ...]
    formulas: Mapping[int, Formula]
    kind: Any


class Unification(ABC):
    """Finds the box around some sizes in which `structure` gives one structure, whose numbers
    follow formulas.

    Parameters
    ----------
    dims: with all values that they may have.
    made_for: the sizes of which the structure is wanted.
    chosen: numbers that may be divisors, beside those that are the same at all sizes.
    draws: how many sizes are drawn.
    known: formulas that numbers may follow, beside the dims.
    """

    def __init__(
        self,
        dims: Sequence[Dim],
        made_for: Mapping[str, int],
        chosen: Sequence[int] = (),
        draws: int = _DRAWN,
        known: Sequence[Formula] = (),
    ) -> None:
        self.all_dims, self.made_for = tuple(dims), dict(made_for)
        self.names = [d.name for d in dims]
        self.chosen, self.draws, self.known = chosen, draws, known
        self._own = np.array([made_for[name] for name in self.names])
        self._found: dict[tuple[int, ...], Structure | None] = {}

    @abstractmethod
    def structure(self, sizes: Mapping[str, int]) -> Structure | None:
        """The structure and the numbers at some sizes; None where there is none."""

    def unified(self, like: Iterable[Unified] = ()) -> Unified:
        """The box and the formulas. Those of a structure that is `like` this one are tried first,
        at fewer sizes. Raises `ConfigError` where there is no box but of its own sizes, since some
        number follows no formula that is tried."""
        own = self._at(tuple(map(int, self._own)))
        if own is None:
            raise ConfigError(f"there is no program for {self.made_for}")
        self.kind, self.numbers = own
        for other in like:
            if other.kind == self.kind and (same := self._as(other)) is not None:
                return same
        dims = self.all_dims
        for at in range(len(dims)):
            dims = (*dims[:at], self._range(dims, at), *dims[at + 1 :])
        for _ in range(_ROUNDS):
            found = self._fitted(dims)
            if isinstance(found, tuple):
                dims = found
                continue
            tried = [*drawn(dims, self.draws), *self._tried(dims, found.values())]
            cut = self._cut(dims, found, tried)
            if cut is None:
                return Unified(dims, found, self.kind)
            dims = cut
        raise ConfigError(f"there is no form for sizes other than {self.made_for}")

    def _as(self, other: Unified) -> Unified | None:
        """The formulas of another one, most of which differ by constants if at all, in its box or
        a wider one; None where the structure has no such form at the sizes that are tried."""
        dims = other.dims
        for at, (own, known, whole) in enumerate(zip(self._own.tolist(), dims, self.all_dims)):
            ends = known.low - known.multiple, known.high + known.multiple
            beyond = [n for n in ends if whole.low <= n <= whole.high]
            if not known.low <= own <= known.high or any(self._fits_at(at, n) for n in beyond):
                wide = self._range(self.all_dims, at)
                dims = (*dims[:at], wide, *dims[at + 1 :])
        if not all(map(self._fits, drawn(dims, _AGAIN))):
            return None
        found = self._formulas(dims, other.formulas)
        if isinstance(found, tuple):
            return None
        # Where the other's formulas step was tried for that.
        fresh = {f for place, f in found.items() if other.formulas.get(place) != f}
        tried = [*drawn(dims, _AGAIN), *self._tried(dims, fresh)]
        if self._cut(dims, found, tried) is not None:
            return None
        return Unified(dims, found, self.kind)

    def _at(self, sizes: tuple[int, ...]) -> Structure | None:
        if sizes not in self._found:
            self._found[sizes] = self.structure(dict(zip(self.names, sizes, strict=True)))
        return self._found[sizes]

    def _fits(self, sizes: tuple[int, ...]) -> bool:
        found = self._at(sizes)
        return found is not None and found[0] == self.kind

    def _fits_at(self, at: int, value: int) -> bool:
        """Return whether the structure is this one with a value of one dim, others as made for."""
        own = self._own.tolist()
        return self._fits((*own[:at], value, *own[at + 1 :]))

    def _range(self, dims: Sequence[Dim], at: int) -> Dim:
        """The bounds of a dim between which there is one structure, others as made for."""
        known, own = dims[at], self.made_for[dims[at].name]

        def fits(value: int) -> bool:
            return self._fits_at(at, value)

        def last(values: Sequence[int]) -> int:
            """The last of these that fits, where the first one does: one of the last two of all if
            others between fit too, else by a few that lie evenly in the logarithm, then by
            halves."""
            good, bad = 0, len(values)
            for end in range(bad - 1, max(0, bad - 3), -1):
                between = np.geomspace(1, end + 1, 4).astype(int)[:0:-1] - 1
                if all(fits(values[p]) for p in between.tolist()):
                    return values[end]
            probes = sorted({int(p) for p in np.geomspace(1, len(values), 8)} | {len(values) - 1})
            while bad - good > 1:
                some = (probe for probe in probes if good < probe < bad)
                probe = next(some, (good + bad) // 2)
                good, bad = (probe, bad) if fits(values[probe]) else (good, probe)
            return values[good]

        step = known.multiple
        low = last(range(own, known.low - 1, -step))
        high = last(range(own, known.high + 1, step))
        return replace(known, low=low, high=high)

    def _fitted(self, dims: tuple[Dim, ...]) -> dict[int, Formula] | tuple[Dim, ...]:
        """Formulas that hold at all sizes of the box that were tried; where a number has none,
        the smaller box in which it may be constant."""
        for sizes in drawn(dims, self.draws):
            self._at(sizes)
        return self._formulas(dims, {})

    def _formulas(
        self, dims: tuple[Dim, ...], guesses: Mapping[int, Formula]
    ) -> dict[int, Formula] | tuple[Dim, ...]:
        """Formulas as `_fitted` has them, the guesses where these hold."""
        samples = [
            (sizes, found[1])
            for sizes, found in self._found.items()
            if found is not None and found[0] == self.kind and _inside(sizes, dims)
        ]
        where = np.array([sizes for sizes, _ in samples], np.int64)
        grid = {d.name: where[:, k] for k, d in enumerate(dims)}
        table = np.array([numbers for _, numbers in samples], np.int64)
        differ = np.flatnonzero((table != table[0]).any(axis=0)).tolist()
        keys = {place: table[:, place].tobytes() for place in differ}
        known: dict[bytes, Any] = {}
        for place in differ:
            guess = guesses.get(place)
            if guess is not None and keys[place] not in known:
                if np.array_equal(guess.at(grid), table[:, place]):
                    known[keys[place]] = guess
        left = {key: table[:, place] for place, key in keys.items() if key not in known}
        if left:
            constant = table[0, (table == table[0]).all(axis=0)].tolist()
            numbers = divisors([*constant, *self.chosen], _MOST_DIVISOR)
            fit = Fit(dims, grid, numbers, table, self.known)
            known |= zip(left, fit.formulas(list(left.values())), strict=True)
        formulas: dict[int, Formula] = {}
        for place, key in keys.items():
            if (made := known[key]) is None:
                other = where[table[:, place] != self.numbers[place]]
                nearest = np.abs(np.log(other / self._own)).max(axis=1).argmin()
                return without(dims, other[nearest].tolist(), self.made_for)
            formulas[place] = made
        return formulas

    def _cut(
        self, dims: tuple[Dim, ...], formulas: Mapping[int, Formula], tried: Sequence[Sizes]
    ) -> tuple[Dim, ...] | None:
        """None if the formulas hold wherever they are tried; else the box to try next, which is a
        smaller one if the structure is another at some size."""
        numbers = []
        for sizes in tried:
            found = self._at(sizes)
            if found is None or found[0] != self.kind:
                return without(dims, sizes, self.made_for)
            numbers.append(found[1])
        table = np.array(numbers, np.int64)
        where = np.array(tried, np.int64)
        grid = {name: where[:, k] for k, name in enumerate(self.names)}
        values = {f: f.at(grid) for f in set(formulas.values())}
        wrong = any(
            not np.array_equal(values[f], table[:, place]) for place, f in formulas.items()
        )
        return dims if wrong else None

    def _tried(self, dims: tuple[Dim, ...], formulas: Iterable[Formula]) -> list[Sizes]:
        """Sizes at which formulas step, the first ones, the last ones and some between; for each
        dim, with the others at their ends."""
        tried: list[Sizes] = []
        if math.prod((d.high - d.low) // d.multiple + 1 for d in dims) <= _ALL:
            lines = [range(d.low, d.high + 1, d.multiple) for d in dims]
            return list(itertools.product(*lines))
        stepping = {f for f in formulas if _steps(f)}
        rng = np.random.default_rng(0)
        for at, known in enumerate(dims):
            values = np.arange(known.low, known.high + 1, known.multiple)
            for ends in {tuple(d.low for d in dims), tuple(d.high for d in dims)}:
                grid = {d.name: np.full(len(values), e) for d, e in zip(dims, ends)}
                grid[known.name] = values
                steps = {}
                for formula in stepping:
                    numbers = np.broadcast_to(formula.at(grid), values.shape)
                    second = np.flatnonzero(np.diff(numbers, n=2)) + 1
                    steps[second.tobytes()] = second
                for second in steps.values():
                    some = rng.choice(second, min(_STEPS, len(second)), replace=False)
                    for s in {*second[-_STEPS:], *some}:
                        for value in values[max(s - 1, 0) : s + 2]:
                            tried.append((*ends[:at], int(value), *ends[at + 1 :]))
        return list(dict.fromkeys(tried))


def drawn(dims: Sequence[Dim], count: int = _DRAWN) -> Iterator[tuple[int, ...]]:
    """Sizes in a box: its corners, and others drawn evenly in the logarithm and in number."""
    yield tuple(d.low for d in dims)
    yield tuple(d.high for d in dims)
    rng = np.random.default_rng(0)
    for number in range(count):
        sizes = []
        for d in dims:
            u = rng.random()
            value = d.low * (d.high / d.low) ** u if number % 2 else d.low + u * (d.high - d.low)
            sizes.append(_allowed(value, d))
        yield tuple(sizes)


def _allowed(value: float, known: Dim) -> int:
    steps = round((value - known.low) / known.multiple)
    return known.low + known.multiple * min(steps, (known.high - known.low) // known.multiple)


def _inside(sizes: Sequence[int], dims: Sequence[Dim]) -> bool:
    return all(d.low <= s <= d.high for s, d in zip(sizes, dims, strict=True))


def without(
    dims: tuple[Dim, ...], sizes: Sequence[int], made_for: Mapping[str, int]
) -> tuple[Dim, ...]:
    """The box that is left on the side of `made_for`, without `sizes`: cut where least is lost."""
    best: tuple[float, tuple[Dim, ...]] | None = None
    for at, (known, size) in enumerate(zip(dims, sizes, strict=True)):
        own = made_for[known.name]
        if size == own:
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


def _steps(formula: Formula) -> bool:
    """Return whether a formula is more than a sum of products."""
    return formula.op in ("floordiv", "min") or any(
        _steps(x) for x in formula.args if isinstance(x, Formula)
    )
