"""Whole numbers of a tree that depend on sizes known only at the call: `⌈n / 6⌉`, `n - 6`.

A `Formula` stands where a column does: extents, limits, coefficients, shapes. It is evaluated for
one size or for an array of sizes, so that a tree with formulas is a batch of trees, a config each,
for as many sizes as are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.size import Dim, named

EXTREMES = ("min", "max")
_MOST_TRIED = 1 << 16  # sizes at which a number is worked out
_Whole = int | np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Formula:
    """An expression of dims, with bounds of its values and a number that divides them all.

    `op` is "dim", "add", "mul", "floordiv", "min" or "max"; `args` are formulas and integers, or
    the name of a dim. Divisors are at least 1.
    """

    op: str
    args: tuple[Any, ...]
    low: int
    high: int
    step: int = 1

    __array_ufunc__ = None  # `np.int64(2) * n` is ours, not an array of objects

    @staticmethod
    def of(known: Dim) -> Formula | int:
        """The value of a dim."""
        if known.low == known.high:
            return known.low
        return Formula("dim", (known.name,), known.low, known.high, known.multiple)

    def at(self, sizes: Mapping[str, _Whole]) -> _Whole:
        """The number for a value of every dim, or an array of numbers."""
        if self.op == "dim":
            return sizes[self.args[0]]
        number: _Whole = _EVALUATED[self.op](*(evaluated(x, sizes) for x in self.args))
        return number

    def dims(self) -> frozenset[str]:
        """The names of the dims that it follows."""
        if self.op == "dim":
            return frozenset(self.args)
        return frozenset().union(*(x.dims() for x in self.args if isinstance(x, Formula)))

    def rebuilt(self, change: Callable[[Any], Any]) -> Formula | int:
        """The same of other arguments, each as a function changes it."""
        if self.op == "dim":
            return self
        x, y = map(change, self.args)
        made: Formula | int = (
            extreme(self.op, x, y) if self.op in EXTREMES else _EVALUATED[self.op](x, y)
        )
        return made

    def has(self, *ops: str) -> bool:
        """Return whether one of these operations is in it."""
        inside = (x for x in self.args if isinstance(x, Formula))
        return self.op in ops or any(x.has(*ops) for x in inside)

    def parts(self) -> tuple[Formula, ...]:
        """The quotients that it is made of, the products of these, and what is the lesser or
        greater of two formulas, each once."""
        formulas = [x for x in self.args if isinstance(x, Formula)]
        inside = [part for x in formulas for part in x.parts()]
        product = self.op == "mul" and len(formulas) > 1 and bool(inside)
        of_two = self.op in EXTREMES and len(formulas) > 1
        own = (self,) if self.op == "floordiv" or product or of_two else ()
        return tuple({str(part): part for part in (*own, *inside)}.values())

    def __add__(self, other: Formula | int) -> Formula | int:
        if isinstance(other, int) and self.op == "add" and isinstance(self.args[1], int):
            total: Formula | int = self.args[0] + (self.args[1] + other)
            return total
        if isinstance(other, int) and not other:
            return self
        (a, b), (c, d) = bounds(self), bounds(other)
        return _made("add", (self, other), a + c, b + d, math.gcd(divisor(self), divisor(other)))

    def __mul__(self, other: Formula | int) -> Formula | int:
        if isinstance(other, int) and other in (0, 1):
            return self if other else 0
        ends = [x * y for x in bounds(self) for y in bounds(other)]
        step = divisor(self) * divisor(other)
        return _made("mul", (self, other), min(ends), max(ends), step)

    def __floordiv__(self, other: Formula | int) -> Formula | int:
        if isinstance(other, int) and other == 1:
            return self
        (low, high), (least, most) = bounds(self), bounds(other)
        step = self.step // other if isinstance(other, int) and not self.step % other else 1
        return _made("floordiv", (self, other), low // most, high // least, step)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Formula | int:
        return self * -1

    def __sub__(self, other: Formula | int) -> Formula | int:
        return self + -other

    def __rsub__(self, other: int) -> Formula | int:
        return -self + other

    def __int__(self) -> int:
        raise ConfigError(f"a program of open sizes has {self} where it needs a number")

    def to_json(self) -> Any:
        """A value that `json` can write, and `formula_from_json` reads."""
        return self.args[0] if self.op == "dim" else {self.op: [*map(in_json, self.args)]}

    def __str__(self) -> str:
        if self.op == "dim":
            return str(self.args[0])
        if self.op in EXTREMES:
            return f"{self.op}({self.args[0]}, {self.args[1]})"
        sign = {"add": "+", "mul": "*", "floordiv": "//"}[self.op]
        return f"({self.args[0]} {sign} {self.args[1]})"


def extreme(op: str, x: Formula | int, y: Formula | int) -> Formula | int:
    """The lesser or greater of two numbers, by "min" or "max"."""
    choose: Callable[[int, int], int] = {"min": min, "max": max}[op]
    if isinstance(x, int) and isinstance(y, int):
        return choose(x, y)
    (a, b), (c, d) = bounds(x), bounds(y)
    return _made(op, (x, y), choose(a, c), choose(b, d), math.gcd(divisor(x), divisor(y)))


def in_json(x: Formula | int) -> Any:
    """`Formula.to_json` of a formula, and a number as it is."""
    return x.to_json() if isinstance(x, Formula) else x


def formula_from_json(data: Any, dims: Mapping[str, Dim]) -> Formula | int:
    """The inverse of `Formula.to_json`, over dims by their names."""
    if isinstance(data, str):
        return Formula.of(dims[data])
    if isinstance(data, int):
        return data
    ((op, args),) = data.items()
    whole = Formula(op, tuple(args), 0, 0)
    return whole.rebuilt(lambda part: formula_from_json(part, dims))


def bounds(x: Any) -> tuple[int, int]:
    """Bounds of the values of a formula; of a number, that itself twice."""
    return (x.low, x.high) if isinstance(x, Formula) else (int(x), int(x))


def divisor(x: Any) -> int:
    """A number that divides all values of a formula; of a number, its magnitude."""
    return x.step if isinstance(x, Formula) else abs(int(x))


def never_negative(x: Formula | int, dims: Sequence[Dim]) -> bool:
    """Return whether a number is at least 0 at every size. It may say no where it follows several
    dims, of too many sizes to try."""
    if bounds(x)[0] >= 0 or not isinstance(x, Formula):
        return bounds(x)[0] >= 0
    own = [d for d in dims if d.name in x.dims()]
    if math.prod(len(d.values) for d in own) > _MOST_TRIED:
        return False
    values = np.ix_(*(np.array(d.values) for d in own))
    return bool(np.all(x.at(named(own, values)) >= 0))


def greatest(x: Any, dims: Sequence[Dim]) -> int:
    """The greatest value of a number, or a bound of it where it follows dims of too many sizes to
    try: a quotient by a number that grows has bounds far apart."""
    if not isinstance(x, Formula) or not (own := [d for d in dims if d.name in x.dims()]):
        return bounds(x)[1]
    if math.prod(len(d.values) for d in own) > 16 * _MOST_TRIED:
        return x.high
    return int(np.max(x.at(named(own, np.ix_(*(np.array(d.values) for d in own))))))


def evaluated(x: Any, sizes: Mapping[str, _Whole]) -> Any:
    """A formula for sizes; any other value as it is."""
    return x.at(sizes) if isinstance(x, Formula) else x


def _made(op: str, args: tuple[Any, ...], low: int, high: int, step: int) -> Formula | int:
    return low if low == high else Formula(op, args, low, high, step)


_EVALUATED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y,
    "min": np.minimum,
    "max": np.maximum,
}
