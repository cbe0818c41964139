"""Sizes known only at the call: dims, and what follows from them.

A size is an affine expression of dims with floor quotients: `n`, `2*n + 1`, `(n - 3) // 2 + 1`.
It stands where an extent does. An order of sizes is told if it is the same for all values of the
dims; otherwise the comparison raises, so that no definition is right for some sizes only. Sizes
are equal if they are for all values: an axis of size n is not broadcast, though n may be 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from loopwright.dsl.errors import NotationError, RangeError, ShapeError, UndecidedError
from loopwright.dsl.index import Affine, Index, IndexExpr, Quotient, as_affine, position
from loopwright.dsl.valueless import Valueless, beside_elements

_Value = TypeVar("_Value")

_TRIED = 1 << 20  # values of dims that are tried one by one


@dataclass(frozen=True)
class Dim:
    """A number of the call: a multiple of `multiple` from `low` to `high`, both included."""

    name: str
    low: int
    high: int
    multiple: int = 1

    @property
    def values(self) -> range:
        """All values that it takes, in order."""
        return range(self.low, self.high + 1, self.multiple)

    def check(self, value: int, source: str) -> None:
        """Raise `RangeError` unless `value`, which `source` gave, is allowed."""
        if not self.low <= value <= self.high or value % self.multiple:
            raise RangeError(f"{self.name} is {value} by {source}; it takes {self.allowed()}")

    def allowed(self) -> str:
        """The values that it takes, in words."""
        kind = f"multiples of {self.multiple} from " if self.multiple > 1 else ""
        return f"{kind}{self.low} to {self.high}"

    def __str__(self) -> str:
        return f"{self.name}: {self.allowed()}"


@dataclass(frozen=True, eq=False)
class Size:
    """An extent as an expression of dims. `form` is affine in indices named as the dims are."""

    form: Affine
    dims: tuple[Dim, ...]

    __array_ufunc__ = None  # `np.int64(2) * n` is ours, not an array of objects

    def at(self, values: Mapping[str, int]) -> int:
        """The extent for values of the dims, by their names."""
        return int(self.over({name: np.asarray(value) for name, value in values.items()}))

    def over(self, values: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """The extents for arrays of values that broadcast together."""
        return position(self.form, {Index(d.name): values[d.name] for d in self.dims})

    def line(self) -> tuple[Dim, int, int] | None:
        """The dim, `a` and `b` of a size that is `a*n + b`; None for any other."""
        if len(self.form.terms) != 1 or not isinstance(self.form.terms[0][0], Index):
            return None
        (known,) = self.dims
        return known, self.form.terms[0][1], self.form.const

    @beside_elements
    def __add__(self, other: Size | int) -> Size | int:
        return _reduced(self._with(other, lambda a, b: a + b))

    @beside_elements
    def __sub__(self, other: Size | int) -> Size | int:
        return _reduced(self._minus(other))

    def __rsub__(self, other: int) -> Size | int:
        return -self + other

    @beside_elements
    def __mul__(self, factor: int) -> Size | int:
        if isinstance(factor, Size):
            raise NotationError(
                f"({self}) * ({factor}) is no size: multiply a size by an integer, or give the "
                "tensor an axis for each"
            )
        if not isinstance(factor, (int, np.integer)):
            raise NotationError(f"({self}) * {factor!r} is no size: multiply it by an integer")
        return _reduced(Size(self.form * factor, self.dims))

    @beside_elements
    def __floordiv__(self, divisor: int) -> Size | int:
        if isinstance(divisor, Size):
            raise NotationError(f"({self}) // ({divisor}) is no size: divide by an integer")
        return _reduced(Size(self.form // divisor, self.dims))

    @beside_elements
    def __mod__(self, divisor: int) -> Size | int:
        if isinstance(divisor, Size):
            raise NotationError(f"({self}) % ({divisor}) is no size: divide by an integer")
        rest = Size(self.form % divisor, self.dims)
        low, high = rest.span()
        return low if low == high else _reduced(rest)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Size | int:
        return self * -1

    def __lt__(self, other: Size | int) -> Any:
        return self._always(other, "<", lambda low, high: (high < 0, low >= 0))

    def __le__(self, other: Size | int) -> Any:
        return self._always(other, "<=", lambda low, high: (high <= 0, low > 0))

    def __gt__(self, other: Size | int) -> Any:
        return self._always(other, ">", lambda low, high: (low > 0, high <= 0))

    def __ge__(self, other: Size | int) -> Any:
        return self._always(other, ">=", lambda low, high: (low >= 0, high < 0))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Size, int)):
            return NotImplemented
        return self._minus(other).span() == (0, 0)

    def __hash__(self) -> int:
        low, high = self.span()  # equal sizes may be written differently, and equal an integer
        return hash(low if low == high else (low, high))

    def __bool__(self) -> bool:
        return self != 0

    def span(self) -> tuple[int, int]:
        """The least and the greatest value, inclusive; bounds of them where dims have too many
        values to try and stand in a quotient."""
        used = [d for d in self.dims if Index(d.name) in set(self.form.indices())]
        steps = [d.values for d in used]
        if any(not isinstance(atom, Index) for atom, _ in self.form.terms):
            if math.prod(len(s) for s in steps) > _TRIED:
                return _interval(self.form, {Index(d.name): d for d in used})
        else:  # an affine expression has its extremes at the ends
            steps = [range(s[0], s[-1] + 1, max(1, s[-1] - s[0])) for s in steps]
        grid = dict(zip((Index(d.name) for d in used), np.meshgrid(*steps, indexing="ij")))
        values = position(self.form, grid)
        return int(values.min()), int(values.max())

    def __str__(self) -> str:
        return str(self.form)

    __repr__ = __str__

    def _minus(self, other: Size | int) -> Size:
        return self._with(other, lambda a, b: a - b)

    def _with(self, other: Size | int, join: Callable[[Affine, Affine], Affine]) -> Size:
        if isinstance(other, IndexExpr):
            raise NotationError(
                f"{self} and {other}: a size is an extent, and no part of an index expression: "
                'compare an index with it, make both an element, as lw.cast(i, "int32") - n, or '
                "give the workload fixed sizes"
            )
        if not isinstance(other, Size):
            return Size(join(self.form, as_affine(other)), self.dims)
        dims = merged((*self.dims, *other.dims))
        return Size(join(self.form, other.form), dims)

    def _always(
        self, other: Size | int, sign: str, test: Callable[[int, int], tuple[bool, bool]]
    ) -> Any:
        if isinstance(other, (IndexExpr, Valueless)):
            return NotImplemented  # it compares itself with a size
        difference = self._minus(other)
        always, never = test(*difference.span())
        if not (always or never):
            allowed = "; ".join(map(str, difference.dims))
            raise UndecidedError(
                f"{self} {sign} {other} holds for some sizes and not for others ({allowed}): "
                "give the dims narrower bounds or a multiple"
            )
        return always


def dim(name: str, low: int, high: int, multiple: int = 1) -> Size:
    """A size known only at the call, for shapes: `lw.tensor("X", (lw.dim("n", 1, 4096), 512))`.

    Parameters
    ----------
    low, high: the least and the greatest value; both are multiples of `multiple`. A network may
        have dims from 0, as that of a cache before its first token is.
    multiple: what divides every value.

    Sums, differences, integer multiples and floor quotients of sizes are sizes.
    """
    if not (isinstance(name, str) and name.isidentifier()):
        raise NotationError(f"{name!r} cannot name a dim: use letters, digits and _")
    for what, value in (("low", low), ("high", high), ("multiple", multiple)):
        least = 0 if what == "low" else 1
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise NotationError(f"dim {name}: {what} is {value!r}; give an integer ≥ {least}")
    if low > high or low % multiple or high % multiple or high >= 1 << 31:
        raise NotationError(
            f"dim {name}: {low} to {high} in steps of {multiple}; give bounds below 2^31 that are "
            "multiples of the step, the lower one first"
        )
    known = Dim(name, int(low), int(high), int(multiple))
    return Size(Index(name).affine(), (known,))


def merged(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Dims in order, each once; `RangeError` if one name has two meanings."""
    found: dict[str, Dim] = {}
    for new in dims:
        if found.setdefault(new.name, new) != new:
            raise RangeError(
                f"dim {new.name} takes {found[new.name].allowed()} in one place and "
                f"{new.allowed()} in another; make it once, or give the two different names"
            )
    return tuple(found.values())


def check_dims(*extents: Size | int) -> None:
    """`RangeError` if extents have dims of one name with two meanings."""
    merged(tuple(d for extent in extents if isinstance(extent, Size) for d in extent.dims))


def boxes(dims: tuple[Dim, ...]) -> list[tuple[Dim, ...]]:
    """Boxes that have all sizes of dims, in which a dim from 0 is always 0 or never. The first one
    has no zero."""
    parts = []
    for d in dims:
        some = [replace(d, low=d.low or d.multiple)]
        parts.append([*some, replace(d, high=0)] if d.low == 0 else some)
    return [*itertools.product(*parts)]


def named(dims: Sequence[Dim], values: Sequence[_Value]) -> dict[str, _Value]:
    """Values of dims, in their order, by name."""
    return {d.name: value for d, value in zip(dims, values, strict=True)}


def chosen(dims: tuple[Dim, ...], sizes: Mapping[str, Any], source: str) -> dict[str, int]:
    """A value for every dim, in their order, as `source` gives them. Raises `RangeError` for a
    value that a dim does not take, a dim without one, and a name that is no dim."""
    takes = "; ".join(map(str, dims)) or "no dims"
    if set(sizes) != {d.name for d in dims}:
        given = ", ".join(f"{name}={value!r}" for name, value in sizes.items()) or "nothing"
        raise RangeError(f"{source}: got {given}; give one value for each of: {takes}")
    for d in dims:
        value = sizes[d.name]
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise RangeError(f"{source}: {d.name} is {value!r}; give an integer: {takes}")
        d.check(int(value), source)
    return {d.name: int(sizes[d.name]) for d in dims}


def extent_at(extent: Size | int, values: Mapping[str, int]) -> int:
    """An extent for values of the dims."""
    return extent.at(values) if isinstance(extent, Size) else extent


def solved(
    dims: tuple[Dim, ...], given: Sequence[tuple[str, tuple[int | Size, ...], tuple[int, ...]]]
) -> dict[str, int]:
    """The values of dims for tensors, each a name, its shape and the shape that it was given.

    Raises `ShapeError` for shapes that no values give, `RangeError` for values not allowed.
    """
    found: dict[str, tuple[int, str]] = {}
    places: list[tuple[str, Size, int]] = []
    for name, shape, got in given:
        if len(shape) != len(got):
            raise ShapeError(f"{name} has shape [{', '.join(map(str, shape))}], got {list(got)}")
        places += [
            (f"axis {axis} of {name}, whose extent is {extent}", size, extent)
            for axis, (size, extent) in enumerate(zip(shape, got, strict=True))
            if isinstance(size, Size)
        ]
    told: dict[str, int] = {}
    while True:
        for place, size, extent in places:
            if told and size.line() is not None:  # it has been looked at
                continue
            if (line := _line_beside(size, told)) is None:
                continue
            known, times, more = line
            value, rest = divmod(extent - more, times)
            if rest:
                raise ShapeError(f"{place}, is no {size} for an integer {known.name}")
            try:
                known.check(value, place)
            except RangeError as error:
                raise RangeError(f"{error}{_axes_of(known, given, 1)}") from None
            first, where = found.setdefault(known.name, (value, place))
            if first != value:
                all_of = _axes_of(known, given, 2)
                raise ShapeError(
                    f"{known.name} is {first} by {where}, but {value} by {place}{all_of}"
                )
        if len(found) in (len(told), len(dims)):
            break
        told = {name: value for name, (value, _) in found.items()}
    check_told(dims, [shape for _, shape, _ in given])
    values = {name: value for name, (value, _) in found.items()}
    for name, shape, got in given:
        for axis, (wanted, extent) in enumerate(zip(shape, got, strict=True)):
            if extent_at(wanted, values) != extent:
                also = "".join(f", and {n} is {v} by {where}" for n, (v, where) in found.items())
                expected = (
                    f"{wanted} = {extent_at(wanted, values)}"
                    if isinstance(wanted, Size)
                    else wanted
                )
                raise ShapeError(
                    f"axis {axis} of {name} has extent {expected}, got {extent}{also}"
                )
    return {d.name: values[d.name] for d in dims}


def _line_beside(size: Size, values: Mapping[str, int]) -> tuple[Dim, int, int] | None:
    """The line that a size is, as `Size.line` has it, with values for some dims."""

    def left(index: Index) -> IndexExpr:
        return as_affine(values[index.name]) if index.name in values else index

    rest = _reduced(Size(size.form.replace(left), size.dims))
    return rest.line() if isinstance(rest, Size) else None


def _axes_of(
    known: Dim, given: Iterable[tuple[str, tuple[int | Size, ...], Any]], named: int
) -> str:
    """The axes whose extents follow a dim, where these are more than were `named`."""
    axes = [
        f"axis {axis} of {name}"
        for name, shape, _ in given
        for axis, size in enumerate(shape)
        if isinstance(size, Size) and known.name in {d.name for d in size.dims}
    ]
    return f"; {known.name} is in {', '.join(axes)}" if len(axes) > named else ""


def least(extent: Size | int) -> int:
    """An extent where it is least, or a bound of that, as `Size.span` has it."""
    return extent.span()[0] if isinstance(extent, Size) else extent


def check_told(dims: tuple[Dim, ...], shapes: Iterable[tuple[int | Size, ...]]) -> None:
    """Raise `ShapeError` for dims that no extent of some shapes tells, by itself or beside dims
    that others tell."""
    sizes = [s for shape in shapes for s in shape if isinstance(s, Size)]
    told: dict[str, int] = {}
    while found := [line for s in sizes if (line := _line_beside(s, told)) is not None]:
        told |= {known.name: known.low for known, _, _ in found}
    if missing := [d.name for d in dims if d.name not in told]:
        raise ShapeError(
            f"the inputs do not tell {', '.join(missing)}: an axis of one must be a multiple of "
            "it plus a constant, or plus others that are told; give the sizes, as by "
            "workload.at(n=…)"
        )


def largest(extent: Size | int) -> int:
    """An extent for the greatest values of its dims."""
    return extent.at({d.name: d.high for d in extent.dims}) if isinstance(extent, Size) else extent


def _reduced(size: Size) -> Size | int:
    """A size without the dims that cancel out; an integer if all do."""
    used = {i.name for i in size.form.indices()}
    dims = tuple(d for d in size.dims if d.name in used)
    return Size(size.form, dims) if dims else size.form.const


def _interval(form: Affine, dims: Mapping[Index, Dim]) -> tuple[int, int]:
    low = high = form.const
    for atom, factor in form.terms:
        if isinstance(atom, Index):
            ends = (dims[atom].low, dims[atom].high)
        elif isinstance(atom, Quotient):
            first, last = _interval(atom.value, dims)
            ends = (first // atom.divisor, last // atom.divisor)
        else:
            ends = (0, atom.divisor - 1)
        low += min(factor * end for end in ends)
        high += max(factor * end for end in ends)
    return low, high
