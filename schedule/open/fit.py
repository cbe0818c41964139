"""Formulas of numbers that are known at some sizes.

A number of a tree is, of some product x of dims, by the way that trees are lowered,

    k·x + t        or        k·x + t + s·⌊(a·x + b) / c⌋        or one of these between limits,

or the negative of one of these. x may also be a sum of such products, as the elements of a padded
array of two open axes, the product of two other numbers, a quotient that another number is made
of, a sum of multiples of such a quotient and a dim, or the lesser or greater of two dims. It may
be the sum of another one and a step, too. A divisor c is a product of numbers that the program is
made of: register tiles, blocks, strides.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loopwright.dsl.size import Dim
from loopwright.schedule.open.products import Array, line_of, products, threefold
from loopwright.schedule.tree.formula import EXTREMES, Formula, evaluated, extreme

_NEAR = 64  # the greatest divisor of a multiple that no other number tells


@dataclass(frozen=True, eq=False)
class _Basis:
    """A formula that others may follow, its values, and the slopes of those that do in lines."""

    formula: Formula
    x: Array
    slopes: Array

    @functools.cached_property
    def order(self) -> Array:
        """An order in which the values rise."""
        return np.argsort(self.x, kind="stable")

    def rises(self, v: Array) -> bool:
        """Return whether values are a function of these, and nowhere fall as these rise."""
        x, v = self.x[self.order], v[self.order]
        steps = np.diff(v)
        return bool((steps >= 0).all() and not steps[np.diff(x) == 0].any())


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums `s·x + t·y` of multiples of two formulas, a row of values for each."""

    terms: list[tuple[Formula, int, Formula, int]]
    rows: Array

    @staticmethod
    def of(first: Sequence[_Basis], second: Sequence[_Basis], *signs: int) -> _Sums:
        """Sums of each of the first and each of the second that the first one follows, by their
        slopes, the second of these signs."""
        pairs = [
            (q, d)
            for q, d in itertools.product(first, second)
            if d.formula.dims() <= q.formula.dims()
        ]
        terms = [
            (q, s, d, t * sign)
            for q, d in pairs
            for s in q.slopes.tolist()
            for t in d.slopes.tolist()
            for sign in signs
        ]
        rows = [s * q.x + t * d.x for q, s, d, t in terms]
        made = [(q.formula, s, d.formula, t) for q, s, d, t in terms]
        return _Sums(made, np.array(rows, np.int64))

    def rising(self, v: Array) -> Iterator[_Basis]:
        """The sums of which values are a function that nowhere falls."""
        if not self.terms:
            return
        order = np.argsort(self.rows, axis=1, kind="stable")
        steps, of_sums = np.diff(v[order]), np.diff(np.take_along_axis(self.rows, order, axis=1))
        good = (steps >= 0).all(axis=1) & ~((steps > 0) & (of_sums == 0)).any(axis=1)
        for k in np.flatnonzero(good).tolist():
            q, s, d, t = self.terms[k]
            made = q * s + d * t
            if isinstance(made, Formula):
                yield _Basis(made, self.rows[k], np.array([1], np.int64))


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
        self.candidates, self.sizes = np.array(candidates, np.int64), sizes
        self.columns = np.unique(table, axis=1).T
        self.bases = [*map(self._basis, (*known, *products(dims)))]
        varying = (c for c in self.columns if (c != c[0]).any())
        sums = (self._sum(c, self.bases) for c in varying)
        self.bases += [self._basis(x) for x in sums if x is not None]

    def _basis(self, formula: Formula) -> _Basis:
        x = np.asarray(formula.at(self.sizes), np.int64)
        lines = [line for c in self.columns if (line := line_of(x, c)) is not None]
        slopes = sorted({abs(slope) for slope, _ in lines} - {0} | {1})
        return _Basis(formula, x, np.array(slopes, np.int64))

    def formulas(
        self, columns: Sequence[Array], others: Iterable[Formula] = ()
    ) -> list[list[Formula | int]]:
        """For each column, all formulas tried that have its values, the simplest one first.
        `others` are those of other columns."""
        lines = [self._line(values, self.bases) for values in columns]
        found = [
            self._stepped(values, self.bases) if line is None else [line]
            for line, values in zip(lines, columns, strict=True)
        ]
        simplest = [*others, *(made[0] for made in found if made)]
        bases = self._others(simplest, columns, not all(found))
        for line, made, values in zip(lines, found, columns, strict=True):
            if made:
                made += () if line is not None else self._nested(values, bases)
            elif (other := self._line(values, bases)) is not None:
                made.append(other)
            else:
                made += (
                    self._stepped(values, bases)
                    or self._of_parts(values, bases)
                    or self._mixed(values, bases, simplest)
                )
                simplest += made[:1]
        return found

    def _line(self, values: Array, bases: Iterable[_Basis]) -> Formula | int | None:
        """A constant or `k·x + t`."""
        if (values == values[0]).all():
            return int(values[0])
        for basis in bases:
            if (line := line_of(basis.x, values)) is not None:
                return basis.formula * line[0] + line[1]
        return None

    def _sum(self, values: Array, bases: Sequence[_Basis]) -> Formula | None:
        """A sum of several formulas with whole coefficients, if these values are one."""
        rows = np.stack([*(basis.x for basis in bases), np.ones_like(values)], axis=1)
        scale = np.maximum(np.abs(rows).max(axis=0), 1)  # a remainder may be 0 at all of them
        weights = np.linalg.lstsq(rows / scale, values, rcond=None)[0] / scale
        whole = np.rint(weights).astype(np.int64)
        if np.count_nonzero(whole[:-1]) < 2 or (rows @ whole != values).any():
            return None
        total: Formula | int = int(whole[-1])
        for basis, weight in zip(bases, whole[:-1], strict=True):
            total = basis.formula * int(weight) + total
        return total if isinstance(total, Formula) else None

    def _others(
        self, known: Sequence[Formula | int], columns: Sequence[Array], wanting: bool
    ) -> list[_Basis]:
        """The parts of known numbers; if some number is `wanting` and there are several dims,
        the products of two, and of three of different dims, that a number follows as a line,
        too."""
        formulas = [f for f in known if isinstance(f, Formula)]
        parts = {str(part): part for f in formulas for part in f.parts()}
        for basis in self.bases:
            parts.pop(str(basis.formula), None)
        if wanting and len(self.sizes) > 1:
            values = [(f, np.asarray(f.at(self.sizes), np.int64)) for f in formulas]
            for (f, x), (g, y) in itertools.combinations(values, 2):
                product = f * g
                if isinstance(product, Formula) and any(line_of(x * y, c) for c in columns):
                    parts[str(product)] = product
            dims = [(d.formula, d.x) for d in self._dims]
            parts |= {str(made): made for made in threefold([*dims, *values], columns)}
        return [*map(self._basis, parts.values())]

    def _stepped(self, values: Array, bases: Iterable[_Basis]) -> list[Formula | int]:
        """Formulas that are no lines. The numerator of a quotient is some number of the tree, most
        often, so others are tried only where none is."""
        signed = [(basis, sign) for basis in bases for sign in (1, -1)]
        for own in (True, False):
            found = [
                made * sign
                for find in (self._quotients, self._limited, self._remainders)
                for basis, sign in signed
                for made in find(basis, sign * values, own)
            ]
            if found:
                return found
        return []

    def _nested(self, values: Array, bases: Iterable[_Basis]) -> Iterator[Formula | int]:
        """Quotients of those of other numbers, not of its own."""
        for basis in bases:
            if line_of(basis.x, values) is None:
                yield from self._quotients(basis, values, True)

    def _of_parts(self, values: Array, parts: Sequence[_Basis]) -> list[Formula | int]:
        """The sum of several quotients, or of several products of these, as the elements of images
        of several sizes side by side."""
        for op in ("mul", "floordiv"):
            some = [part for part in parts if part.formula.op == op]
            if 1 < len(some) < len(values) - 2 and (total := self._sum(values, some)) is not None:
                return [total]
        return []

    def _mixed(
        self, values: Array, others: Sequence[_Basis], known: Sequence[Formula | int]
    ) -> list[Formula | int]:
        """Formulas that are no line or step of one other: sums of a quotient, or one of two dims
        by their order, and a dim, and quotients of these, as half of the padding to a multiple,
        `(8·⌊(n + 7) / 8⌋ - n) // 2`. Else a dim and one of these, a line of a `known` number, or
        that and a step."""
        kinds = ("floordiv", *EXTREMES)
        stepping = [b for b in (*self.bases, *others) if b.formula.op in kinds]
        for op, (d, e) in itertools.product(EXTREMES, itertools.combinations(self._dims, 2)):
            chosen = extreme(op, d.formula, e.formula)
            if isinstance(chosen, Formula):
                stepping.append(self._basis(chosen))
        found = [
            made
            for d in self._dims
            for made in self._remainders(replace(d, slopes=2 * d.slopes), values, True)
        ]
        if (line := self._line(values, stepping)) is not None:
            found.append(line)
        for q, d in itertools.product(stepping, self._dims):
            if (total := self._sum(values, [q, d])) is not None:
                found.append(total)
        found += self._of_sums(values, _Sums.of(stepping, self._dims, 1, -1))
        found = found or self._of_sums(values, self._rounded)
        found = found or [
            made + d.formula
            for d in self._dims
            for made in self._of_sums(values - d.x, self._rounded)
        ]
        return found or self._beside(values, known)

    @functools.cached_property
    def _dims(self) -> list[_Basis]:
        return [basis for basis in self.bases if basis.formula.op == "dim"]

    @functools.cached_property
    def _rounded(self) -> _Sums:
        """Differences of each dim and a multiple near it, whether or not a number tells that."""
        quotients = []
        for d, c in itertools.product(self._dims, self.candidates.tolist()):
            for up in (c - 1, 0) if c <= _NEAR else ():
                made = (d.formula + up) // c
                if isinstance(made, Formula):
                    x = (d.x + up) // c
                    quotients.append(_Basis(made, x, np.array([c], np.int64)))
        return _Sums.of(quotients, self._dims, -1)

    def _of_sums(self, values: Array, sums: _Sums) -> list[Formula | int]:
        """Quotients of sums, and sums between limits."""
        return [
            made * sign
            for sign in (1, -1)
            for basis in sums.rising(sign * values)
            for find in (self._quotients, self._limited)
            for made in find(basis, sign * values, True)
        ]

    def _beside(self, values: Array, known: Sequence[Formula | int]) -> list[Formula | int]:
        """A line of a known number, or the sum of one and a step of a dim."""
        found: dict[bytes, tuple[Formula | int, Array]] = {}
        for formula in known:
            x = evaluated(formula, self.sizes) + np.zeros_like(values)
            found.setdefault((x - x[0]).tobytes(), (formula, x))
        for formula, x in found.values():
            if (same := line_of(x, values)) is not None:
                return [formula * same[0] + same[1]]
        return [
            formula * sign + made * up
            for formula, x in found.values()
            for sign, d in itertools.product((1, -1), self._dims)
            for find, up in itertools.product(_FINDERS, (1, -1))
            for made in find(self, d, up * (values - sign * x), True)
        ]

    def _limited(self, basis: _Basis, v: Array, own: bool) -> Iterator[Formula | int]:
        for ops in (EXTREMES, EXTREMES[1:]):
            for made in self._within(basis, v, own, ops):
                if (evaluated(made, self.sizes) == v).all():
                    yield made

    def _within(
        self, basis: _Basis, v: Array, own: bool, ops: tuple[str, ...]
    ) -> Iterator[Formula | int]:
        """Lines and quotients, limited by the first of `ops`; where there are none, by all."""
        limit = int(v.max() if ops[0] == "min" else v.min())
        inside = v != limit
        part, rest = replace(basis, x=basis.x[inside]), v[inside]
        if len(np.unique(part.x)) < 2 or len(np.unique(basis.x[~inside])) < 2:
            return
        line = line_of(part.x, rest)
        found = [basis.formula * line[0] + line[1]] if line is not None else []
        found = found or [*self._quotients(part, rest, own)]
        for made in found or (self._within(part, rest, own, ops[1:]) if ops[1:] else ()):
            yield extreme(ops[0], made, limit)

    def _remainders(self, basis: _Basis, v: Array, own: bool) -> Iterator[Formula | int]:
        """What steps of more than 1 leave of a number that grows with x."""
        for slope in basis.slopes.tolist():
            for made in self._quotients(basis, slope * basis.x - v, own, least=2):
                yield basis.formula * slope - made

    def _quotients(
        self, basis: _Basis, v: Array, own: bool, least: int = 1
    ) -> Iterator[Formula | int]:
        """`s·⌊(a·x + b) / c⌋ + t` with s at least `least`, the least c first: for each a the
        greatest and the least b. `own` says that each a is the slope of some number."""
        if not basis.rises(v):
            return
        x, scale = basis.x, math.gcd(*(int(d) for d in np.unique(v - v[0])))
        first, last = int(np.argmin(x)), int(np.argmax(x))
        if scale < least or x[first] == x[last]:
            return
        shift = int(v[0]) % scale
        w = (v - shift) // scale
        span = x[last] - x[first]
        slope = (w[last] - w[first]) / span
        near = np.floor(slope * self.candidates).astype(np.int64)
        a = np.tile(basis.slopes, (len(near), 1)) if own else near[:, None] + [0, 1]
        c = np.broadcast_to(self.candidates[:, None], a.shape)
        # The ends tell the slope to one step over the span.
        close = (a >= 1) & (np.abs(a - slope * c) * span <= c)
        c, a = np.unique(np.stack([c[close], a[close]], axis=1), axis=0).T
        rests = c[:, None] * w - a[:, None] * x
        low, high = rests.max(axis=1), rests.min(axis=1) + c - 1
        for k in np.flatnonzero(low <= high):
            for b in sorted({int(high[k]), int(low[k])}, reverse=True):
                yield (basis.formula * int(a[k]) + b) // int(c[k]) * scale + shift


_FINDERS = (Fit._quotients, Fit._limited, Fit._remainders)
