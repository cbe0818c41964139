"""Formulas of numbers that are known at some sizes.

A number of a tree is, of some product x of dims, by the way that trees are lowered,

    k·x + t        or        k·x + t + s·⌊(a·x + b) / c⌋        or the lesser of that and a limit,

or the negative of one of these. x may also be a sum of such products, as the elements of a padded
array of two open axes, or the product of two other numbers. A divisor c is a product of numbers
that the program is made of: register tiles, blocks, strides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl.size import Dim
from loopwright.schedule.tree.formula import Formula, evaluated, lesser

Array = np.ndarray[Any, np.dtype[np.int64]]
_DEGREE = 2


def products(dims: Sequence[Dim]) -> list[Formula]:
    """The products of at most two dims, and of all."""
    leaves = [f for f in map(Formula.of, dims) if isinstance(f, Formula)]
    chosen = [
        c
        for degree in range(1, _DEGREE + 1)
        for c in itertools.combinations_with_replacement(leaves, degree)
    ]
    if len(leaves) > _DEGREE:
        chosen.append(tuple(leaves))
    return [f for f in map(_product, chosen) if isinstance(f, Formula)]


def _product(factors: Sequence[Formula]) -> Formula | int:
    total: Formula | int = factors[0]
    for factor in factors[1:]:
        total = total * factor
    return total


def divisors(numbers: Sequence[int], most: int) -> list[int]:
    """The numbers, and the products of two of them, from 2 to `most`, in order."""
    small = sorted({abs(n) for n in numbers if 2 <= abs(n) <= most})
    pairs = {x * y for x, y in itertools.combinations_with_replacement(small, 2)}
    return sorted({*small, *(p for p in pairs if p <= most)})


class Fit:
    """Finds formulas for numbers known at the same sizes.

    `sizes` has an array of values for every dim, `table` a column for every number. `known` are
    formulas that others may follow, as the extents of a strided convolution's result.
    """

    def __init__(
        self,
        dims: Sequence[Dim],
        sizes: Mapping[str, Array],
        candidates: Sequence[int],
        table: Array,
        known: Sequence[Formula] = (),
    ) -> None:
        self.candidates, self.sizes = candidates, sizes
        every = (*known, *products(dims))
        self.bases = [(x, np.asarray(x.at(sizes), np.int64)) for x in every]
        columns = np.unique(table, axis=1).T
        self.slopes = {
            basis: sorted({abs(line[0]) for c in columns if (line := _line(x, c))} - {0})
            for basis, x in self.bases
        }
        if len(dims) > 1:
            self.bases += [sums for c in columns if (sums := self._sum(c)) is not None]

    def formulas(self, columns: Sequence[Array]) -> list[Formula | int | None]:
        """A formula for each column of values, the simplest one of those tried; None where none
        has these values."""
        found = [self._formula(values) for values in columns]
        if len(self.sizes) > 1 and None in found:
            self._add_products([f for f in found if isinstance(f, Formula)], columns)
            found = [f or self._formula(v) for f, v in zip(found, columns, strict=True)]
        return found

    def _formula(self, values: Array) -> Formula | int | None:
        if (values == values[0]).all():
            return int(values[0])
        for find in (self._plain, self._limited, self._remainder):
            for basis, x in self.bases:
                for sign in (1, -1):
                    if (made := find(basis, x, sign * values)) is not None:
                        return made * sign
        return None

    def _sum(self, values: Array) -> tuple[Formula, Array] | None:
        """A sum of several products with whole coefficients, if these values are one."""
        rows = np.stack([*(x for _, x in self.bases), np.ones_like(values)], axis=1)
        scale = np.abs(rows).max(axis=0)
        weights = np.linalg.lstsq(rows / scale, values, rcond=None)[0] / scale
        whole = np.rint(weights).astype(np.int64)
        if np.count_nonzero(whole[:-1]) < 2 or (rows @ whole != values).any():
            return None
        total: Formula | int = int(whole[-1])
        for (basis, _), weight in zip(self.bases, whole[:-1], strict=True):
            total = basis * int(weight) + total
        return (total, values) if isinstance(total, Formula) else None

    def _add_products(self, known: Sequence[Formula], columns: Sequence[Array]) -> None:
        """Add the products of two known numbers that some others follow as a line."""
        values = [np.asarray(f.at(self.sizes), np.int64) for f in known]
        for (f, x), (g, y) in itertools.combinations(zip(known, values, strict=True), 2):
            product = f * g
            if isinstance(product, Formula) and any(_line(x * y, c) for c in columns):
                self.bases.append((product, x * y))

    def _limited(self, basis: Formula, x: Array, v: Array) -> Formula | int | None:
        limit = int(v.max())
        below = v < limit
        if len(np.unique(x[below])) < 2:
            return None
        made = self._plain(basis, x[below], v[below])
        if made is None:
            return None
        made = lesser(made, limit)
        return made if (evaluated(made, self.sizes) == v).all() else None

    def _plain(self, basis: Formula, x: Array, v: Array) -> Formula | int | None:
        if (line := _line(x, v)) is not None:
            return basis * line[0] + line[1]
        return self._stepped(basis, x, v)

    def _remainder(self, basis: Formula, x: Array, v: Array) -> Formula | int | None:
        """The rest of one of the numbers that grow with x."""
        for slope in self.slopes.get(basis, (1,)):
            made = self._stepped(basis, x, slope * x - v)
            if made is not None:
                return basis * slope - made
        return None

    def _stepped(self, basis: Formula, x: Array, v: Array) -> Formula | int | None:
        """`s·⌊(a·x + b) / c⌋ + t` with the least c."""
        scale = math.gcd(*(int(d) for d in np.unique(v - v[0])))
        shift = int(v[0]) % scale if scale else 0
        if not scale:
            return None
        w = (v - shift) // scale
        first, last = int(np.argmin(x)), int(np.argmax(x))
        if x[first] == x[last]:
            return None
        slope = (w[last] - w[first]) / (x[last] - x[first])
        for c in self.candidates:
            for a in {math.floor(slope * c), math.ceil(slope * c), 1}:
                if a < 1:
                    continue
                low = int((c * w - a * x).max())
                high = int((c * w - a * x).min()) + c - 1
                if low <= high:
                    quotient: Formula | int = (basis * a + high) // c
                    return quotient * scale + shift
        return None


def _line(x: Array, v: Array) -> tuple[int, int] | None:
    first, last = int(np.argmin(x)), int(np.argmax(x))
    if x[first] == x[last]:
        return None
    slope, rest = divmod(int(v[last] - v[first]), int(x[last] - x[first]))
    if rest:
        return None
    shift = int(v[first] - slope * x[first])
    return (slope, shift) if (slope * x + shift == v).all() else None
