"""Index expressions: names that range over an axis, and affine combinations of them.

An index expression is  c + Σ aₖ·atomₖ  where an atom is an index, or the floor quotient or the
remainder of an index expression by a positive constant (so that reshapes and groups can be said).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import EllipsisType, NoneType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from loopwright.dsl.errors import NotationError

if TYPE_CHECKING:
    from loopwright.dsl.expr import Expr


_INTEGERS = (int, np.integer)


class IndexExpr:
    """Base of `Index` and `Affine`: arithmetic that stays affine, and comparison."""

    __array_ufunc__ = None  # `np.int64(2) * i` is ours, not an array of objects

    def __array__(self, *args: object, **options: object) -> Any:
        """Refuse to index an array, which asks for this."""
        raise NotationError(
            f"{self} indexes an array, and a definition has no data: write a tensor, "
            f'lw.tensor("T", array.shape)[{self}, …], and give the array to the library\'s call'
        )

    compare: ClassVar[Callable[[str, IndexExpr, object], Expr]]
    """Makes the element expression of a comparison. `expr.py` sets it: expressions hold indices,
    and this module knows no expression."""

    element: ClassVar[Callable[[IndexExpr], Expr]]
    """Makes the element whose value an index is, as `compare` does."""

    def affine(self) -> Affine:
        """This expression in its normal form."""
        raise TypeError(f"{type(self).__name__} has no affine form")

    def __add__(self, other: IndexExpr | int) -> Affine:
        if not isinstance(other, (IndexExpr, *_INTEGERS)):
            return self._other(other, "+")
        left, right = self.affine(), as_affine(other)
        const = left.const + right.const
        if not left.terms or not right.terms:  # nothing to merge
            return Affine(left.terms or right.terms, const)
        return Affine.of((*left.terms, *right.terms), const)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return self * -1

    def __abs__(self) -> Expr:
        return abs(IndexExpr.element(self))

    def __sub__(self, other: IndexExpr | int) -> Affine:
        if not isinstance(other, (IndexExpr, *_INTEGERS)):
            return self._other(other, "-")
        return self + as_affine(other) * -1

    def __rsub__(self, other: IndexExpr | int) -> Affine:
        return as_affine(other) - self

    def __mul__(self, other: int) -> Affine:
        if isinstance(other, IndexExpr):
            raise NotationError(
                f"{self} * {other} is not affine: multiply an index by an integer constant only; "
                f'as an element it is lw.cast({self}, "int32") * {_wrapped(other.affine())}'
            )
        if not isinstance(other, _INTEGERS):
            return self._other(other, "*")
        form, factor = self.affine(), int(other)
        terms = tuple([(a, c * factor) for a, c in form.terms]) if factor else ()
        return Affine(terms, form.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Affine:
        form = self.affine()
        return _quotient(form, _divisor(form, divisor))

    def __mod__(self, divisor: int) -> Affine:
        form = self.affine()
        return _remainder(form, _divisor(form, divisor))

    def __pow__(self, other: object) -> Any:
        return self._other(other, "**")

    def _other(self, other: object, sign: str) -> Any:
        """Leave arithmetic with elements to these. Raises `NotationError` for other values."""
        if isinstance(other, (int, float, complex, str, np.generic, NoneType)):
            raise NotationError(
                f"{self} {sign} {other!r} is no index: indices take whole numbers, and + - * // "
                f'%; as an element it is lw.cast({self}, "float32") {sign} {other!r}'
            )
        return NotImplemented

    def __truediv__(self, other: object) -> Affine:
        raise NotationError(f"{self} / {other}: an index divides by // (floor) and % only")

    def __lt__(self, other: IndexExpr | int) -> Expr:
        return IndexExpr.compare("lt", self, other)

    def __le__(self, other: IndexExpr | int) -> Expr:
        return IndexExpr.compare("le", self, other)

    def __gt__(self, other: IndexExpr | int) -> Expr:
        return IndexExpr.compare("gt", self, other)

    def __ge__(self, other: IndexExpr | int) -> Expr:
        return IndexExpr.compare("ge", self, other)


@dataclass(frozen=True)
class Index(IndexExpr):
    """A name that ranges over 0 ≤ name < extent; the extent is inferred where it is None."""

    name: str
    extent: int | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def affine(self) -> Affine:
        return Affine(((self, 1),), 0)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(frozen=True)
class Quotient:
    """The atom ⌊value / divisor⌋."""

    value: Affine
    divisor: int

    def __str__(self) -> str:
        return f"{_wrapped(self.value)} // {self.divisor}"

    __repr__ = __str__


@dataclass(frozen=True)
class Remainder:
    """The atom value mod divisor, in 0 … divisor-1."""

    value: Affine
    divisor: int

    def __str__(self) -> str:
        return f"{_wrapped(self.value)} % {self.divisor}"

    __repr__ = __str__


Atom = Index | Quotient | Remainder


@dataclass(frozen=True)
class Affine(IndexExpr):
    """const + Σ coefficient · atom, terms merged and without zeros, in order of appearance."""

    terms: tuple[tuple[Atom, int], ...]
    const: int

    @staticmethod
    def of(terms: tuple[tuple[Atom, int], ...], const: int) -> Affine:
        """Merge equal atoms and drop those whose coefficient is zero."""
        if len(terms) == 1 and terms[0][1]:
            return Affine(terms, const)
        merged: dict[Atom, int] = {}
        for atom, coefficient in terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        return Affine(tuple((a, c) for a, c in merged.items() if c != 0), const)

    def affine(self) -> Affine:
        return self

    def plain(self) -> Index | None:
        """The index that this expression is, if it is nothing but one index."""
        if len(self.terms) == 1 and self.const == 0:
            atom, coefficient = self.terms[0]
            if coefficient == 1 and isinstance(atom, Index):
                return atom
        return None

    def indices(self) -> Iterator[Index]:
        """Every index in it, inside quotients and remainders too, repeats included."""
        for atom, _ in self.terms:
            if isinstance(atom, Index):
                yield atom
            else:
                yield from atom.value.indices()

    def bounds(self, extents: Mapping[Index, int]) -> tuple[int, int]:
        """The least and greatest values, inclusive, for indices over their extents."""
        low = high = self.const
        for atom, coefficient in self.terms:
            first, last = _atom_bounds(atom, extents)
            low += coefficient * (first if coefficient > 0 else last)
            high += coefficient * (last if coefficient > 0 else first)
        return low, high

    def replace(self, values: Callable[[Index], IndexExpr]) -> Affine:
        """The same expression with every index replaced.

        `i // 2 + j  ↦  (4*a + b) // 2 + j`  for i ↦ 4*a + b.
        """
        terms: list[tuple[Atom, int]] = []
        const = self.const
        for atom, coefficient in self.terms:
            if isinstance(atom, Index):
                new = values(atom).affine()
            elif isinstance(atom, Quotient):
                new = atom.value.replace(values) // atom.divisor
            else:
                new = atom.value.replace(values) % atom.divisor
            terms += [(a, c * coefficient) for a, c in new.terms]
            const += new.const * coefficient
        return Affine.of(tuple(terms), const)

    def __str__(self) -> str:
        if len(self.terms) == 1 and self.const == 0 and self.terms[0][1] == 1:
            return str(self.terms[0][0])
        # `2 - r` reads better than `-r + 2`.
        leads = self.const > 0 and bool(self.terms) and self.terms[0][1] < 0
        text = str(self.const) if leads else ""
        for atom, coefficient in self.terms:
            name = str(atom) if isinstance(atom, Index) else f"({atom})"
            size = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
            sign = " - " if coefficient < 0 else " + "
            text += (sign if text else sign.strip().strip("+")) + size + name
        if (self.const and not leads) or not text:
            sign = " - " if self.const < 0 else " + "
            text += f"{sign}{abs(self.const)}" if text else str(self.const)
        return text

    __repr__ = __str__


def as_affine(value: IndexExpr | int) -> Affine:
    """An index expression or an integer in normal form; anything else is an error."""
    if isinstance(value, IndexExpr):
        return value.affine()
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        if isinstance(value, (slice, EllipsisType)):
            raise NotationError("`:` and `...` stand for no axis: name each of them, A[i, j]")
        raise NotationError(
            f"{value!r} is not an index expression: use indices, integers, and +, -, *, //, %, or "
            "an element of integers, X[I[i]]"
        )
    return Affine((), int(value.__index__()))


def position(value: Affine, grid: Mapping[Index, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The values of an index expression, given those of its loops, which broadcast together."""
    total: np.ndarray[Any, Any] = np.asarray(value.const)
    for atom, coefficient in value.terms:
        if isinstance(atom, Index):
            part = grid[atom]
        elif isinstance(atom, Quotient):
            part = position(atom.value, grid) // atom.divisor
        else:
            part = position(atom.value, grid) % atom.divisor
        total = total + coefficient * part
    return total


def indices(names: str = "", /, **extents: int) -> tuple[Index, ...]:
    """Make indices from names: `i, j, k = lw.indices("i j k")`.

    Ranges are inferred from the tensors that an index indexes. A range that no tensor shows,
    such as a pooling window's, is given by keyword: `y, x, r, s = lw.indices("y x", r=3, s=3)`
    or `lw.indices("y x r s", r=3, s=3)`.
    """
    if not isinstance(names, str):
        raise NotationError(
            f"{names!r} cannot name indices: give names in one string, as in 'i j k'"
        )
    split = names.replace(",", " ").split()
    for name, extent in extents.items():
        if isinstance(extent, bool) or not isinstance(extent, _INTEGERS) or extent < 0:
            raise NotationError(
                f"the extent of index {name} is {extent!r}; give an integer ≥ 0, and a size that "
                "is open in the shape of the tensor on the left"
            )
        if name not in split:
            split.append(name)
    for name in split:
        if not name.isidentifier():
            raise NotationError(f"{name!r} cannot name an index: use letters, digits and _")
    if len(set(split)) != len(split):
        raise NotationError(f"an index is named twice in {' '.join(split)!r}")
    return tuple(Index(n, int(extents[n]) if n in extents else None) for n in split)


def _quotient(value: Affine, divisor: int) -> Affine:
    terms = tuple((a, c // divisor) for a, c in value.terms if c % divisor == 0)
    rest = Affine(tuple((a, c) for a, c in value.terms if c % divisor != 0), value.const % divisor)
    whole = Affine(terms, value.const // divisor)
    if divisor == 1 or not rest.terms:
        return whole
    return whole + Affine(((Quotient(rest, divisor), 1),), 0)


def _remainder(value: Affine, divisor: int) -> Affine:
    rest = Affine.of(tuple((a, c % divisor) for a, c in value.terms), value.const % divisor)
    if not rest.terms:
        return rest
    return Affine(((Remainder(rest, divisor), 1),), 0)


def _divisor(value: Affine, divisor: int) -> int:
    if isinstance(divisor, bool) or not isinstance(divisor, _INTEGERS) or divisor < 1:
        raise NotationError(
            f"{value} divided by {divisor!r}: an index is divided by a positive integer; divide "
            'an element by others, as lw.cast(i, "int32") % n'
        )
    return int(divisor)


def _atom_bounds(atom: Atom, extents: Mapping[Index, int]) -> tuple[int, int]:
    if isinstance(atom, Index):
        return 0, extents[atom] - 1
    low, high = atom.value.bounds(extents)
    if isinstance(atom, Quotient):
        return low // atom.divisor, high // atom.divisor
    if low // atom.divisor == high // atom.divisor:
        return low % atom.divisor, high % atom.divisor
    return 0, atom.divisor - 1


def _wrapped(value: Affine) -> str:
    return str(value) if value.plain() else f"({value})"
