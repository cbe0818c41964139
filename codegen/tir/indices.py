"""Index expressions as TIR: places in flat storage, with what is known of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from loopwright.codegen.tir.bindings import dtype_of
from loopwright.dsl.errors import BuildError
from loopwright.dsl.size import Dim
from loopwright.schedule.tree import grammar as g
from loopwright.schedule.tree.formula import Formula, bounds, divisor, never_negative


@dataclass(frozen=True)
class KnownValue:
    """Value of a variable: an expression, the range of its values, and a number that divides them
    all (0 where they are 0). Of open sizes `last` is the greatest at each, a formula."""

    value: Any
    low: int
    high: int
    step: int = 1
    last: g.Column | None = None

    @property
    def greatest(self) -> g.Column:
        """The greatest value, at each size where that is known."""
        return self.high if self.last is None else self.last


ZERO = KnownValue(0, 0, 0, 0)
_OPERATIONS = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "floordiv": tirx.floordiv,
    "min": tirx.Min,
    "max": tirx.Max,
}
MOST_ELEMENTS = (1 << 31) - 1


class Indices:
    """Index expressions over variables of which `known` tells the meaning.

    With `truncating`, what is not negative is divided as C does, which the compilers of GPUs
    understand better than what TVM makes of floor division, and which takes fewer instructions
    where a divisor is known at the call alone.

    `sizes` has the variable of every dim. Formulas of these are computed once, by `bindings`.
    """

    def __init__(self, truncating: bool, sizes: Mapping[Dim, Any] | None = None) -> None:
        self.dims = tuple(sizes or ())
        self.sizes = {d.name: var for d, var in (sizes or {}).items()}
        self.bindings: list[Any] = []
        self._formulas: dict[Formula, Any] = {}
        self.known: dict[g.Var, KnownValue] = {}
        self._begins: dict[str, g.Var] = {}
        self.truncating = truncating

    def linear(self, x: g.Linear) -> Any:
        """An index expression: a Python integer where it is constant."""
        total: Any = self.size(x.const)
        for term, coefficient in x.terms:
            value = self.known[term].value if isinstance(term, g.Var) else self._divided(term)
            total = value * self.size(coefficient) + total
        return total

    def size(self, x: g.Column) -> Any:
        """A number of a tree: a Python integer, or the variable of a formula."""
        if not isinstance(x, Formula):
            return int(x)
        if x.op == "dim":
            return self.sizes[x.args[0]]
        if x not in self._formulas:
            value = _OPERATIONS[x.op](*(expression(self.size(arg)) for arg in x.args))
            self._formulas[x] = var = tirx.Var(f"s{len(self._formulas)}", "int32")
            self.bindings.append(tirx.Bind(var, value))
        return self._formulas[x]

    def _divided(self, term: Any) -> Any:
        value, divisor = self.linear(term.value), self.size(term.divisor)
        remainder = isinstance(term, g.Remainder)
        if isinstance(value, int) and isinstance(divisor, int):
            return value % divisor if remainder else value // divisor
        if self._greatest(term.value) > MOST_ELEMENTS:
            divide = tirx.floormod if remainder else tirx.floordiv
            wide = divide(self._wide(term.value), in_64_bits(divisor))
            return tirx.Cast("int32", wide)
        return self.divided(value, divisor, remainder, self.range(term.value)[0])

    def divided(self, value: Any, divisor: Any, remainder: bool, low: int = 0) -> Any:
        """⌊value / divisor⌋, or what remains; `low` is the least that the value may be."""
        # TVM makes shifts and masks of these.
        power_of_two = isinstance(divisor, int) and not divisor & (divisor - 1)
        if self.truncating and low >= 0 and not power_of_two:
            divide = tirx.truncmod if remainder else tirx.truncdiv
        else:
            divide = tirx.floormod if remainder else tirx.floordiv
        return divide(expression(value), expression(divisor))

    def _greatest(self, x: g.Linear) -> int:
        """Upper bound of every part of the sum."""
        sizes = (max(map(abs, self._term_range(term))) * _magnitude(c) for term, c in x.terms)
        return sum(sizes, _magnitude(x.const))

    def _wide(self, x: g.Linear) -> Any:
        """An index expression that 32 bits may not hold; its variables and quotients they do."""
        const, parts = self.size(x.const), list[Any]()
        for term, coefficient in x.terms:
            value = self.known[term].value if isinstance(term, g.Var) else self._divided(term)
            factor = self.size(coefficient)
            if isinstance(const, int) and isinstance(value, int) and isinstance(factor, int):
                const += value * factor
            else:
                parts.append(in_64_bits(value) * in_64_bits(factor))
        return sum(parts, in_64_bits(const))

    def range(self, x: g.Linear) -> tuple[int, int]:
        """The least and the greatest value that it may have."""
        low, high = bounds(x.const)
        for term, coefficient in x.terms:
            ends = [
                end * factor for end in self._term_range(term) for factor in bounds(coefficient)
            ]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _term_range(self, term: g.Term) -> tuple[int, int]:
        if isinstance(term, g.Var):
            return self.known[term].low, self.known[term].high
        first, last = self.range(term.value)
        least, most = bounds(term.divisor)
        if isinstance(term, g.Remainder):
            return 0, most - 1
        return min(first // least, first // most), max(last // least, last // most)

    def step(self, x: g.Linear) -> int:
        """A number that divides every value that it may have; 0 where that is 0 alone."""
        total = divisor(x.const)
        for term, coefficient in x.terms:
            if isinstance(term, g.Var):
                step = self.known[term].step
            elif isinstance(term, g.Remainder):
                step = math.gcd(self.step(term.value), divisor(term.divisor))
            else:
                step = 1
            total = math.gcd(total, step * divisor(coefficient))
        return total

    def let(self, let: g.Let) -> list[Any]:
        """Make a `Let` known. Returns the statement that binds its variable, if it needs one."""
        value, limit = self.linear(let.value), self.size(let.limit)
        (low, high), (least, most) = self.range(let.value), bounds(let.limit)
        greatest = self._greatest_of(let.value)
        clips = high > least and not self._fits(greatest, let.limit)
        step = math.gcd(self.step(let.value), divisor(let.limit) if clips else 0)
        last = let.limit if clips else greatest
        known = min(low, least), min(high, most), step, last if self.dims else None
        if isinstance(value, int) and (isinstance(limit, int) or not clips):
            self.known[let.var] = KnownValue(min(value, limit) if clips else value, *known)
            return []
        if not clips and len(let.value.terms) == 1:
            self.known[let.var] = KnownValue(value, *known)
            return []
        var = tirx.Var(let.var.name, "int32")
        self.known[let.var] = KnownValue(var, *known)
        clipped = tirx.Min(expression(value), expression(limit)) if clips else value
        return [tirx.Bind(var, clipped)]

    def _greatest_of(self, x: g.Linear) -> g.Column | None:
        """The greatest value at each size; None where that is not known."""
        total = x.const
        for term, coefficient in x.terms:
            if not isinstance(term, g.Var) or bounds(coefficient)[0] < 0:
                return None
            total = self.known[term].greatest * coefficient + total
        return total

    def _fits(self, greatest: Any, limit: Any) -> bool:
        """Return whether the greatest value, if it is known, is within a limit at each size."""
        known = greatest is not None and bool(self.dims)
        return known and never_negative(limit - greatest, self.dims)

    def begin(self, buffer: g.Buffer, at: Any, most: int) -> None:
        """Offset of a buffer in its storage: a variable of at most some value."""
        self._begins[buffer.name] = var = g.Var(f"{buffer.name}.begin")
        self.known[var] = KnownValue(at, 0, most)

    def flat(self, buffer: g.Buffer, index: tuple[g.Linear, ...]) -> g.Linear:
        """The place in flat storage, as an index expression."""
        begin = self._begins.get(buffer.name)
        place = g.flat(buffer, index)
        return place if begin is None else place + g.Linear(((begin, 1),))

    def offset(self, buffer: g.Buffer, index: tuple[g.Linear, ...], clamped: bool = False) -> Any:
        """The place in flat storage."""
        if clamped:
            return self._clamped_offset(buffer, index)
        place = self.flat(buffer, index)
        # LLVM counts in 64 bits where the code does, and extends 32 bits at every load where not.
        return self._wide(place) if self.sizes else self.linear(place)

    def _clamped_offset(self, buffer: g.Buffer, index: tuple[g.Linear, ...]) -> Any:
        begin = self._begins.get(buffer.name)
        total: Any = 0
        typed = in_64_bits if self.sizes else expression
        # Of 32 bits that are widened as a whole, LLVM does not see that lanes are neighbours.
        read = self._wide if self.sizes else self.linear
        for position, size in zip(index, buffer.shape, strict=True):
            at, (low, high) = read(position), self.range(position)
            if low < 0:
                at = tirx.Max(typed(at), typed(0))
            inside = high < bounds(size)[0] or self._fits(self._greatest_of(position), size - 1)
            if not inside:
                at = tirx.Min(typed(at), typed(self.size(size) - 1))
            total = total * typed(self.size(size)) + at
        return total if begin is None else total + self.known[begin].value


def flat_buffer(
    buffer: g.Buffer, name: str, dtype: str, elements: Any = None, **options: Any
) -> Any:
    """The TIR buffer of a buffer of the tree, in one dimension, for its largest size unless it is
    told how many elements it has."""
    size = bounds(buffer.size)[1]
    if size > MOST_ELEMENTS:
        raise BuildError(
            f"{buffer.name} has {size} elements, but indices are 32 bits wide: split it into "
            f"parts of at most {MOST_ELEMENTS}"
        )
    shape = (size if elements is None else expression(elements),)
    return tirx.decl_buffer(shape, dtype, name, **options)


def _magnitude(x: g.Column) -> int:
    return max(map(abs, bounds(x)))


def in_64_bits(value: Any) -> Any:
    """A value in 64 bits."""
    if isinstance(value, int):
        return tirx.IntImm("int64", value)
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == "int64":  # it was narrowed
        return value.value
    return value if dtype_of(value) == "int64" else tirx.Cast("int64", value)


def number(value: int) -> Any:
    """An integer constant."""
    return tirx.IntImm("int32", value)


def expression(value: Any) -> Any:
    """A value that may be a Python integer, as an expression."""
    return number(value) if isinstance(value, int) else value
