"""Index expressions as TIR: places in flat storage, with what is known of their values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from loopwright.dsl.errors import BuildError
from loopwright.schedule.tree.grammar import Buffer, Let, Linear, Remainder, Term, Var, flat


@dataclass(frozen=True)
class KnownValue:
    """Value of a variable: an expression, the range of its values, and a number that divides them
    all (0 where they are 0)."""

    value: Any
    low: int
    high: int
    step: int = 1


ZERO = KnownValue(0, 0, 0, 0)
MOST_ELEMENTS = (1 << 31) - 1


class Indices:
    """Index expressions over variables of which `known` tells the meaning.

    With `truncating`, what is not negative is divided as C does, which the compilers of GPUs
    understand better than what TVM makes of floor division.
    """

    def __init__(self, truncating: bool = False) -> None:
        self.known: dict[Var, KnownValue] = {}
        self._begins: dict[str, Var] = {}
        self.truncating = truncating

    def linear(self, x: Linear) -> Any:
        """An index expression: a Python integer where it is constant."""
        total: Any = int(x.const)
        for term, coefficient in x.terms:
            if isinstance(term, Var):
                value = self.known[term].value
            else:
                value = self._divided(term)
            total = value * int(coefficient) + total
        return total

    def _divided(self, term: Any) -> Any:
        value, divisor = self.linear(term.value), int(term.divisor)
        remainder = isinstance(term, Remainder)
        if isinstance(value, int):
            return value % divisor if remainder else value // divisor
        if self._greatest(term.value) > MOST_ELEMENTS:
            divide = tirx.floormod if remainder else tirx.floordiv
            wide = divide(self._wide(term.value), tirx.IntImm("int64", divisor))
            return tirx.Cast("int32", wide)
        return self.divided(value, divisor, remainder, self.range(term.value)[0])

    def divided(self, value: Any, divisor: int, remainder: bool, low: int = 0) -> Any:
        """⌊value / divisor⌋, or what remains; `low` is the least that the value may be."""
        power_of_two = not divisor & (divisor - 1)  # TVM makes shifts and masks of these
        if self.truncating and low >= 0 and not power_of_two:
            divide = tirx.truncmod if remainder else tirx.truncdiv
        else:
            divide = tirx.floormod if remainder else tirx.floordiv
        return divide(value, number(divisor))

    def _greatest(self, x: Linear) -> int:
        """Upper bound of every part of the sum."""
        sizes = (max(map(abs, self._term_range(term))) * abs(int(c)) for term, c in x.terms)
        return sum(sizes, abs(int(x.const)))

    def _wide(self, x: Linear) -> Any:
        """An index expression that 32 bits may not hold; its variables and quotients they do."""
        total: Any = tirx.IntImm("int64", int(x.const))
        for term, coefficient in x.terms:
            value = self.known[term].value if isinstance(term, Var) else self._divided(term)
            value = tirx.Cast("int64", expression(value))
            total = tirx.Add(tirx.Mul(value, tirx.IntImm("int64", int(coefficient))), total)
        return total

    def range(self, x: Linear) -> tuple[int, int]:
        """The least and the greatest value that it may have."""
        low = high = int(x.const)
        for term, coefficient in x.terms:
            first, last = self._term_range(term)
            ends = (first * int(coefficient), last * int(coefficient))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _term_range(self, term: Term) -> tuple[int, int]:
        if isinstance(term, Var):
            return self.known[term].low, self.known[term].high
        first, last = self.range(term.value)
        divisor = int(term.divisor)
        if isinstance(term, Remainder):
            return 0, divisor - 1
        return first // divisor, last // divisor

    def step(self, x: Linear) -> int:
        """A number that divides every value that it may have; 0 where that is 0 alone."""
        total = abs(int(x.const))
        for term, coefficient in x.terms:
            if isinstance(term, Var):
                step = self.known[term].step
            elif isinstance(term, Remainder):
                step = math.gcd(self.step(term.value), int(term.divisor))
            else:
                step = 1
            total = math.gcd(total, step * int(coefficient))
        return total

    def let(self, let: Let) -> list[Any]:
        """Makes a `Let` known; the statement that binds its variable in TIR, where it needs one
        since it clips or is long."""
        value, limit = self.linear(let.value), int(let.limit)
        low, high = self.range(let.value)
        clips = high > limit
        step = math.gcd(self.step(let.value), limit if clips else 0)
        bounds = min(low, limit), min(high, limit), step
        if isinstance(value, int):
            self.known[let.var] = KnownValue(min(value, limit), *bounds)
            return []
        if not clips and len(let.value.terms) == 1:
            self.known[let.var] = KnownValue(value, *bounds)
            return []
        var = tirx.Var(let.var.name, "int32")
        self.known[let.var] = KnownValue(var, *bounds)
        return [tirx.Bind(var, tirx.Min(value, number(limit)) if clips else value)]

    def begin(self, buffer: Buffer, at: Any, most: int) -> None:
        """Offset of a buffer in its storage: a variable of at most some value."""
        self._begins[buffer.name] = var = Var(f"{buffer.name}.begin")
        self.known[var] = KnownValue(at, 0, most)

    def flat(self, buffer: Buffer, index: tuple[Linear, ...]) -> Linear:
        """The place in flat storage, as an index expression."""
        begin = self._begins.get(buffer.name)
        place = flat(buffer, index)
        return place if begin is None else place + Linear(((begin, 1),))

    def offset(self, buffer: Buffer, index: tuple[Linear, ...], clamped: bool = False) -> Any:
        """The place in flat storage."""
        if clamped:
            return self._clamped_offset(buffer, index)
        return self.linear(self.flat(buffer, index))

    def _clamped_offset(self, buffer: Buffer, index: tuple[Linear, ...]) -> Any:
        begin = self._begins.get(buffer.name)
        total: Any = 0
        for position, size in zip(index, buffer.shape, strict=True):
            at, (low, high) = self.linear(position), self.range(position)
            if low < 0:
                at = tirx.Max(expression(at), number(0))
            if high >= int(size):
                at = tirx.Min(expression(at), number(int(size) - 1))
            total = total * int(size) + at
        return total if begin is None else total + self.known[begin].value


def flat_buffer(buffer: Buffer, name: str, dtype: str, **options: Any) -> Any:
    """The TIR buffer of a buffer of the tree, in one dimension."""
    size = int(buffer.size)
    if size > MOST_ELEMENTS:
        raise BuildError(
            f"{buffer.name} has {size} elements, but indices are 32 bits wide: split it into "
            f"parts of at most {MOST_ELEMENTS}"
        )
    return tirx.decl_buffer((size,), dtype, name, **options)


def number(value: int) -> Any:
    """An integer constant."""
    return tirx.IntImm("int32", value)


def expression(value: Any) -> Any:
    """A value that may be a Python integer, as an expression."""
    return number(value) if isinstance(value, int) else value
