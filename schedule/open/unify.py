"""Anti-unification over a box of sizes: where a structure is one, and what its numbers follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim
from loopwright.schedule.open.fit import Fit, divisors
from loopwright.schedule.tree.formula import Formula

_DRAWN = 24  # sizes at which a structure is made first
_STEPS = 1  # of a formula's last and other steps, around which it is made again
_ROUNDS = 8
_MOST_DIVISOR = 1 << 20

Structure = tuple[Any, tuple[int, ...]]
"""A structure without its numbers, and these in a fixed order."""


@dataclass(frozen=True)
class Unified:
    """A structure for all sizes of a box: the formulas of the numbers that differ, by place."""

    dims: tuple[Dim, ...]
    formulas: Mapping[int, Formula]


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

    def unified(self) -> Unified:
        """The box and the formulas. Raises `ConfigError` where there is none but of its own
        sizes, since some number follows no formula that is tried."""
        own = self._at(tuple(map(int, self._own)))
        if own is None:
            raise ConfigError(f"there is no program for {self.made_for}")
        self.kind, self.numbers = own
        dims = self.all_dims
        for at in range(len(dims)):
            dims = (*dims[:at], self._range(dims, at), *dims[at + 1 :])
        for _ in range(_ROUNDS):
            found = self._fitted(dims)
            cut = found if isinstance(found, tuple) else self._cut(dims, found)
            if cut is None:
                assert not isinstance(found, tuple)
                return Unified(dims, found)
            dims = cut
        raise ConfigError(f"there is no form for sizes other than {self.made_for}")

    def _at(self, sizes: tuple[int, ...]) -> Structure | None:
        if sizes not in self._found:
            self._found[sizes] = self.structure(dict(zip(self.names, sizes, strict=True)))
        return self._found[sizes]

    def _fits(self, sizes: tuple[int, ...]) -> bool:
        found = self._at(sizes)
        return found is not None and found[0] == self.kind

    def _range(self, dims: Sequence[Dim], at: int) -> Dim:
        """The bounds of a dim between which there is one structure, others as made for."""
        known, own = dims[at], self.made_for[dims[at].name]

        def fits(value: int) -> bool:
            sizes = {**self.made_for, known.name: value}
            return self._fits(tuple(sizes[name] for name in self.names))

        def last(values: Sequence[int]) -> int:
            """The last of these that fits, where the first one does: by a few that lie evenly in
            the logarithm, then by halves."""
            good, bad = 0, len(values)
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
        samples = [
            (sizes, found[1])
            for sizes, found in self._found.items()
            if found is not None and found[0] == self.kind and _inside(sizes, dims)
        ]
        where = np.array([sizes for sizes, _ in samples], np.int64)
        table = np.array([numbers for _, numbers in samples], np.int64)
        constant = [int(c[0]) for c in table.T if (c == c[0]).all()]
        fit = Fit(
            dims,
            {d.name: where[:, k] for k, d in enumerate(dims)},
            divisors([*constant, *self.chosen], _MOST_DIVISOR),
            table,
            self.known,
        )
        distinct = {c.tobytes(): c for c in table.T if (c != c[0]).any()}
        found = fit.formulas(list(distinct.values()))
        known = dict(zip(distinct, found, strict=True))
        formulas: dict[int, Any] = {}
        for place, values in enumerate(table.T):
            if (key := values.tobytes()) not in known:
                continue
            if (made := known[key]) is None:
                other = where[values != self.numbers[place]]
                nearest = np.abs(np.log(other / self._own)).max(axis=1).argmin()
                return without(dims, other[nearest].tolist(), self.made_for)
            formulas[place] = made
        return formulas

    def _cut(
        self, dims: tuple[Dim, ...], formulas: Mapping[int, Formula]
    ) -> tuple[Dim, ...] | None:
        """None if the formulas hold wherever they are tried; else the box to try next, which is a
        smaller one if the structure is another at some size."""
        wrong = False
        for sizes in self._tried(dims, formulas):
            found = self._at(sizes)
            if found is None or found[0] != self.kind:
                return without(dims, sizes, self.made_for)
            values = dict(zip(self.names, sizes, strict=True))
            wrong |= any(f.at(values) != found[1][place] for place, f in formulas.items())
        return dims if wrong else None

    def _tried(
        self, dims: tuple[Dim, ...], formulas: Mapping[int, Formula]
    ) -> list[tuple[int, ...]]:
        """Sizes at which formulas step, the first ones, the last ones and some between; for each
        dim, with the others at their ends."""
        tried: list[tuple[int, ...]] = list(drawn(dims, self.draws))
        rng = np.random.default_rng(0)
        for at, known in enumerate(dims):
            values = np.arange(known.low, known.high + 1, known.multiple)
            for ends in {tuple(d.low for d in dims), tuple(d.high for d in dims)}:
                grid = {d.name: np.full(len(values), e) for d, e in zip(dims, ends)}
                grid[known.name] = values
                steps = {}
                for formula in {f for f in formulas.values() if _steps(f)}:
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
