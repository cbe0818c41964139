"""Subscripts as numbers and parts that vary: loops' counters, `Let`s, quotients and remainders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.codegen.builtin.code import Block, Uncovered
from loopwright.codegen.builtin.function import Function
from loopwright.schedule.tree.grammar import Linear, Quotient, Term, Var

MOST = 1 << 30
"""Bound of a displacement or a step, which has to fit an instruction."""


@dataclass(eq=False)
class Variable:
    """A loop's counter, a `Let`, or a quotient or remainder of those. Those of a later `order` may
    use an earlier one. `head` is the block behind its binding; a loop has blocks `before` it and
    `behind` its body, and its `start`. `value` is its number, once one is wanted."""

    order: tuple[int, int]
    low: int
    high: int
    head: Block
    before: Block | None = None
    behind: Block | None = None
    value: int | None = None
    start: int | None = None


Parts = tuple[tuple[Variable, int], ...]


class Subscripts:
    """Facts of the variables of one function: `fixed` ones, of loops that are written out,
    and all other `known` ones; the vector loop's `lane`; and, of a plain loop that goes by vectors
    (`split`), the loop over these and their lanes."""

    def __init__(self) -> None:
        self.function = Function()
        self.fixed: dict[Var, int] = {}
        self.known: dict[Var, Variable] = {}
        self.lane: tuple[Var, int] | None = None
        self.split: dict[Var, tuple[Variable, int]] = {}
        self._divided: dict[object, Variable] = {}
        self._orders = 0
        self._scope = 0  # counts what is bound

    def _bind(self, var: Var, low: int, high: int) -> Variable:
        self._orders += 1
        self._scope += 1
        self.fixed.pop(var, None)
        made = Variable((self._orders, 0), low, high, self.function.block())
        self.known[var] = made
        return made

    def position(self, x: Linear) -> tuple[int, int | None, int]:
        """A subscript as a constant, a number that is added, and the step from lane to lane."""
        const, parts = self._linear(x)
        step = 0
        if self.lane is not None:
            step = sum(int(c) for t, c in x.terms if t is self.lane[0])
        if not parts:
            return const, None, step
        number = self.function.number()
        self._evaluate(number, 0, parts, self.function.current)
        return const, number, step

    def _linear(self, x: Linear) -> tuple[int, Parts]:
        """A subscript as a number and variable parts."""
        const, parts, _ = self._sum(int(x.const), [(term, int(c)) for term, c in x.terms])
        return const, parts

    def _sum(
        self, const: int, terms: Sequence[tuple[Term, int]]
    ) -> tuple[int, Parts, list[tuple[Var, int]]]:
        """A sum as a number and variable parts, and the fixed variables that the number counts."""
        parts: list[tuple[Variable, int]] = []
        counted: list[tuple[Var, int]] = []
        for term, factor in terms:
            if not isinstance(term, Var):
                more, inner = self._quotient(term)
                const += more * factor
                parts += [(v, c * factor) for v, c in inner]
            elif term in self.fixed:
                const += self.fixed[term] * factor
                counted.append((term, factor))
                if term in self.split:
                    outer, width = self.split[term]
                    parts.append((outer, factor * width))
            else:
                parts.append((self.known[term], factor))
        return const, merged(parts), counted

    def _quotient(self, term: Term) -> tuple[int, Parts]:
        """A quotient or remainder as a number and variable parts."""
        assert not isinstance(term, Var)
        const, parts = self._linear(term.value)
        divisor, quotient = int(term.divisor), isinstance(term, Quotient)
        low, high = value_range(const, parts)
        divides = tuple((v, c) for v, c in parts if c % divisor == 0)
        rest = tuple((v, c) for v, c in parts if c % divisor)
        if divides and low // divisor != high // divisor:  # ⌊(d·x + y) / d⌋ = x + ⌊y / d⌋
            inside = self._quotient_of(const, rest, divisor, quotient)
            if not quotient:
                return inside
            outside = tuple((v, c // divisor) for v, c in divides)
            return inside[0], merged([*outside, *inside[1]])
        return self._quotient_of(const, parts, divisor, quotient)

    def _quotient_of(
        self, const: int, parts: Parts, divisor: int, quotient: bool
    ) -> tuple[int, Parts]:
        low, high = value_range(const, parts)
        if low // divisor == high // divisor:
            whole = low // divisor
            return (whole, ()) if quotient else (const - whole * divisor, parts)
        key = (const, parts, divisor, quotient)
        found = self._divided.get(key)
        if found is None:
            deepest = max((v for v, _ in parts), key=lambda v: v.order)
            self._orders += 1
            order = (deepest.order[0], self._orders)
            ends = (low // divisor, high // divisor) if quotient else (0, divisor - 1)
            found = Variable(order, *ends, deepest.head)
            items = deepest.head.items
            number = found.value = self.function.number()
            self._evaluate(number, const, parts, items)
            if divisor & divisor - 1 == 0:
                if quotient:
                    items.append(("shift", number, divisor.bit_length() - 1))
                else:
                    items.append(("mask", number, divisor - 1))
            elif low < 0:
                raise Uncovered("a division of a negative subscript")
            else:
                items.append(("divide" if quotient else "remainder", number, number, divisor))
            self._divided[key] = found
        return 0, ((found, 1),)

    def number_of(self, variable: Variable) -> int:
        """The number of a variable; of a loop it counts up from here on."""
        if variable.value is None:
            assert variable.before is not None
            assert variable.behind is not None
            number = variable.value = self.function.number()
            if variable.start is None:
                variable.before.items.append(("set", number, 0))
            else:
                variable.before.items.append(("copy", number, variable.start))
            variable.behind.items.append(("add_number", number, 1))
        return variable.value

    def _evaluate(self, number: int, const: int, parts: Parts, items: list) -> None:  # type: ignore[type-arg]
        """`number = const + Σ c · variable`."""
        if not parts:
            items.append(("set", number, const))
            return
        (first, factor), *rest = parts
        self._scaled(number, self.number_of(first), factor, items)
        for variable, factor in rest:
            source = self.number_of(variable)
            if factor != 1:
                scaled = self.function.number()
                self._scaled(scaled, source, factor, items)
                source = scaled
            items.append(("add", number, source))
        if const:
            items.append(("add_number", number, const))

    def _scaled(self, number: int, source: int, factor: int, items: list) -> None:  # type: ignore[type-arg]
        if factor == 1:
            items.append(("copy", number, source))
        elif -MOST < factor < MOST:
            items.append(("scale", number, source, factor))
        else:
            raise Uncovered("a factor too large for an instruction")


def merged(parts: Sequence[tuple[Variable, int]]) -> Parts:
    """Parts in the order in which their variables are bound."""
    if len(parts) > 1:
        total: dict[Variable, int] = {}
        for variable, factor in parts:
            total[variable] = total.get(variable, 0) + factor
        parts = sorted(((v, c) for v, c in total.items() if c), key=lambda p: p[0].order)
    return tuple(parts)


def value_range(const: int, parts: Parts) -> tuple[int, int]:
    """The least and the greatest value."""
    low = high = const
    for variable, factor in parts:
        ends = variable.low * factor, variable.high * factor
        low, high = low + min(ends), high + max(ends)
    return low, high
