"""Anti-unification over a box of sizes: where a structure is one, and what its numbers follow."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim
from loopwright.schedule.open.fit import Fit
from loopwright.schedule.open.products import divisors
from loopwright.schedule.open.samples import DRAWN, Sizes, drawn, everywhere, inside, without
from loopwright.schedule.tree.formula import EXTREMES, Formula

_AGAIN = 8  # sizes at which one is made first whose form is known
_ALL = 64  # sizes of a box, all of which are tried: a formula of a few may miss one of them
_STEPS = 1  # of a formula's last and other steps, around which it is made again
_TURNS = 4  # the same of one that rises and falls, of which more would fit by chance
_HIDDEN = 4  # of the sizes at which a formula is at its limit: a number may differ there
_ROUNDS = 8
_HALVINGS = 4
_MOST_ROUNDS = 64
_MOST_DIVISOR = 1 << 20

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
        draws: int = DRAWN,
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
        """The box and the formulas. The boxes of structures that are `like` this one are tried
        first, at fewer sizes. Raises `ConfigError` where there is no box but of its own sizes,
        since some number follows no formula that is tried."""
        own = self._at(tuple(map(int, self._own)))
        if own is None:
            raise ConfigError(f"there is no program for {self.made_for}")
        self.kind, self.numbers = own
        for other in like:
            if other.kind == self.kind:
                found = self._formulas(self._around(other.dims), _AGAIN)
                if isinstance(found, Unified):
                    return found
        dims = self.all_dims
        for at in range(len(dims)):
            dims = (*dims[:at], self._range(dims, at), *dims[at + 1 :])
        for number in range(_ROUNDS + _HALVINGS):
            found = self._formulas(dims, self.draws)
            if isinstance(found, Unified):
                return found
            if number == _ROUNDS and self.widened():
                self._found.clear()
                return self.unified()
            dims = found if number < _ROUNDS else self._halved(found)
            if number >= _ROUNDS and all(d.low == d.high for d in dims):
                break
        raise ConfigError(f"there is no form for sizes other than {self.made_for}")

    def _halved(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The half of a box that is nearer to its own sizes. Where structures meet along a curve,
        as of equal areas, sizes that are cut off one by one come to no end."""

        def half(own: int, end: int, step: int) -> int:
            return own + int((end - own) / step / 2) * step

        return tuple(
            replace(d, low=half(n, d.low, d.multiple), high=half(n, d.high, d.multiple))
            for d, n in zip(dims, self._own.tolist(), strict=True)
        )

    def _around(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The box of another program, or a wider one where that ends before its own sizes or the
        structure goes on behind it."""
        for at, (own, known, whole) in enumerate(zip(self._own.tolist(), dims, self.all_dims)):
            ends = known.low - known.multiple, known.high + known.multiple
            beyond = [n for n in ends if whole.low <= n <= whole.high]
            if not known.low <= own <= known.high or any(self._fits_at(at, n) for n in beyond):
                dims = (*dims[:at], self._range(self.all_dims, at), *dims[at + 1 :])
        return dims

    def _at(self, sizes: tuple[int, ...]) -> Structure | None:
        if sizes not in self._found:
            self._found[sizes] = self.structure(dict(zip(self.names, sizes, strict=True)))
        return self._found[sizes]

    def _fits(self, sizes: tuple[int, ...]) -> bool:
        found = self._at(sizes)
        return found is not None and self.same(found[0])

    def same(self, kind: Any) -> bool:
        """Return whether a structure serves where another of this kind is."""
        return bool(kind == self.kind)

    def widened(self) -> bool:
        """Return whether from now on one structure serves where there were several."""
        return False

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

    def _formulas(self, dims: tuple[Dim, ...], draws: int) -> Unified | tuple[Dim, ...]:
        """The formulas of a box: of each number one that all others with its values at the sizes
        tried equal at every size of the box. Or the smaller box to try next, where the structure
        is another at some size, or a number has no formula."""
        grid, settled = everywhere(dims), dict[int, Formula]()
        tried = [*drawn(dims, draws, self.all_dims)]
        for _ in range(_MOST_ROUNDS):
            for sizes in tried:
                if not self._fits(sizes):
                    return without(dims, sizes, self.made_for, self._apart(dims, sizes))
            found = self._rivals(dims, settled)
            if isinstance(found, tuple):
                return found
            doubts = set()
            for places, made in found:
                doubt = _doubt(made, grid)
                if doubt is None:
                    settled.update(dict.fromkeys(places, made[0]))
                else:
                    doubts.add(doubt)
            tried = [*doubts] or self._untried(dims, settled.values())
            if not tried:
                return Unified(dims, settled, self.kind)
        return without(dims, tried[0], self.made_for)

    def _apart(self, dims: tuple[Dim, ...], sizes: Sizes) -> set[str]:
        """The dims of which the next value has the structure that some sizes have not. Where that
        is another at a least batch of the least length alone, it is so whatever a third dim is."""
        steps = (np.sign(self._own - sizes) * [d.multiple for d in dims]).tolist()
        moved = [at for at, step in enumerate(steps) if step]
        beside = ((*sizes[:at], sizes[at] + steps[at], *sizes[at + 1 :]) for at in moved)
        if len(moved) < 2:
            return set()  # there is no choice
        return {dims[at].name for at, other in zip(moved, beside) if self._fits(other)}

    def _rivals(
        self, dims: tuple[Dim, ...], settled: Mapping[int, Formula]
    ) -> list[tuple[list[int], list[Any]]] | tuple[Dim, ...]:
        """The places of numbers that differ but have equal values at the sizes tried, and all
        formulas with these; of those that are settled the one that they have. Where a number has
        none, the smaller box in which it may be constant."""
        samples = [
            (sizes, found[1])
            for sizes, found in self._found.items()
            if found is not None and self.same(found[0]) and inside(sizes, dims)
        ]
        where = np.array([sizes for sizes, _ in samples], np.int64)
        table = np.array([numbers for _, numbers in samples], np.int64)
        grid = {d.name: where[:, k] for k, d in enumerate(dims)}
        places: dict[bytes, list[int]] = {}
        for place in np.flatnonzero((table != table[0]).any(axis=0)).tolist():
            places.setdefault(table[:, place].tobytes(), []).append(place)
        found: list[tuple[list[int], list[Any]]] = []
        left = []
        for same in places.values():
            known = next((settled[p] for p in same if p in settled), None)
            if known is not None and np.array_equal(known.at(grid), table[:, same[0]]):
                found.append((same, [known]))
            else:
                left.append(same)
        if left:
            constant = table[0, (table == table[0]).all(axis=0)].tolist()
            numbers = divisors([*constant, *self.chosen], _MOST_DIVISOR)
            fit = Fit(dims, grid, numbers, table, self.known)
            columns = [table[:, p[0]] for p in left]
            for same, made in zip(left, fit.formulas(columns, settled.values())):
                if not made:
                    other = where[table[:, same[0]] != self.numbers[same[0]]]
                    nearest = np.abs(np.log((other + 1) / (self._own + 1))).max(axis=1).argmin()
                    return without(dims, other[nearest].tolist(), self.made_for)
                found.append((same, made))
        return found

    def _untried(self, dims: tuple[Dim, ...], formulas: Iterable[Formula]) -> list[Sizes]:
        """Sizes not tried at which formulas step, the last ones and some between; for each dim,
        with the others at their ends. All sizes of a small box."""
        lines = [d.values for d in dims]
        if math.prod(map(len, lines)) <= _ALL:
            return [s for s in itertools.product(*lines) if s not in self._found]
        # A set would have another order in each process, and so draw other sizes for each.
        stepping = dict.fromkeys(part for f in formulas for part in _stepping(f))
        several = [f for f in stepping if len(f.dims()) > 1]
        rng = np.random.default_rng(0)
        ends = [tuple(d.low for d in dims), tuple(d.high for d in dims)]
        tried, lines = list[Sizes](), []
        for at, known in enumerate(dims):
            alone = [f for f in stepping if f.dims() == {known.name}]
            lines.append(rng.permutation(_at_steps(dims, at, ends[0], alone, rng)).tolist())
            for end in dict.fromkeys(ends):
                values = _at_steps(dims, at, end, several, rng)
                tried += [(*end[:at], value, *end[at + 1 :]) for value in values]
        # A formula of one dim steps at the same sizes whatever the others are: all step at once.
        for row, other in zip(itertools.zip_longest(*lines), itertools.cycle(ends)):
            tried.append(tuple(o if n is None else n for n, o in zip(row, other, strict=True)))
        return [s for s in dict.fromkeys(tried) if s not in self._found]


def _stepping(formula: Formula) -> Iterator[Formula]:
    """The terms and factors of a formula that have steps, each of one dim where it can be."""
    if not formula.has("floordiv", *EXTREMES):
        return
    if len(formula.dims()) == 1 or formula.op in ("floordiv", *EXTREMES):
        yield formula
        return
    for part in formula.args:
        if isinstance(part, Formula):
            yield from _stepping(part)


def _at_steps(
    dims: Sequence[Dim],
    at: int,
    others: Sizes,
    formulas: Collection[Formula],
    rng: np.random.Generator,
) -> list[int]:
    """The sizes of one dim, with `others`, around the last step of each formula, and some more
    steps; of one with limits, some at which it is there."""
    known = dims[at]
    values = np.array(known.values)
    grid = {d.name: np.full(len(values), n) for d, n in zip(dims, others)}
    grid[known.name] = values
    steps, hidden = {}, np.zeros(len(values), bool)
    for formula in formulas:
        numbers = np.broadcast_to(formula.at(grid), values.shape)
        rise = np.diff(numbers)
        if formula.has(*EXTREMES):
            each, counts = np.unique(numbers, return_counts=True)
            hidden |= numbers == each[counts.argmax()]
        second = np.flatnonzero(np.diff(rise)) + 1
        turns = (rise > 0).any() and (rise < 0).any()
        steps[second.tobytes()] = second, _TURNS if turns else _STEPS
    found = rng.choice(values[hidden], min(_HIDDEN, int(hidden.sum())), replace=False).tolist()
    chosen: set[int] = set()
    for second, most in sorted(steps.values(), key=lambda one: len(one[0])):
        # Steps of few numbers are steps of others, too.
        some = [s for s in second[:-_STEPS].tolist() if s in chosen][:most]
        left = np.setdiff1d(second, some)
        some += rng.choice(left, min(most - len(some), len(left)), replace=False).tolist()
        chosen.update(second[-_STEPS:].tolist(), some)
    for step in sorted(chosen):
        found += values[max(step - 1, 0) : step + 2].tolist()
    return [*dict.fromkeys(found)]


def _doubt(formulas: Sequence[Formula], sizes: Mapping[str, np.ndarray[Any, Any]]) -> Sizes | None:
    """The sizes at which most formulas differ from the first one; None where none does."""
    differ = np.zeros(len(next(iter(sizes.values()))), np.int64)
    for formula in formulas[1:]:
        differ += formula.at(sizes) != formulas[0].at(sizes)
    if not differ.any():
        return None
    most = np.flatnonzero(differ == np.max(differ))
    middle = most[len(most) // 2]
    return tuple(int(x[middle]) for x in sizes.values())
