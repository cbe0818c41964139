"""Index expressions as C: variables by their names, places in flat storage."""

from __future__ import annotations

from loopwright.codegen.c.text import ATOM, PRODUCT, SUM, UNARY, Text, call, product
from loopwright.dsl.errors import BuildError
from loopwright.schedule.tree.grammar import Buffer, Let, Linear, Loop, Remainder, Term, Var
from loopwright.schedule.tree.index_analysis import IndexAnalysis

MOST_ELEMENTS = (1 << 31) - 1


class Places:
    """Names and values of variables. `used` gets the names that are written."""

    def __init__(self) -> None:
        self.analysis = IndexAnalysis()
        self.names: dict[Var, str] = {}
        self.fixed: dict[Var, int] = {}
        self.used: set[str] = set()

    def range(self, x: Linear) -> tuple[int, int]:
        """The least and the greatest value."""
        low, high = self.analysis.range(x)
        return int(low), int(high)

    def fix(self, var: Var, value: int) -> None:
        """Make a variable a constant."""
        self.fixed[var] = value
        self.analysis.let(var, Linear((), value), value)

    def bound(self, loop: Loop) -> Text | None:
        """Iterations of a loop that may have fewer than its extent; None of any other."""
        if loop.bound is None or self.range(loop.bound)[0] >= int(loop.extent):
            return None
        return self.linear(loop.bound)

    def let(self, let: Let) -> Text:
        """The value of a `Let`."""
        value, limit = self.linear(let.value), int(let.limit)
        if self.range(let.value)[1] <= limit:
            return value
        return call("lw_least", value, str(limit))

    def linear(self, x: Linear) -> Text:
        """An index expression."""
        const, parts = int(x.const), []
        for term, coefficient in x.terms:
            factor = int(coefficient)
            if isinstance(term, Var) and term in self.fixed:
                const += factor * self.fixed[term]
            elif factor:
                parts.append((self._term(term), factor))
        parts.sort(key=lambda part: part[1] < 0)
        text = Text(str(const), ATOM if const >= 0 else UNARY)
        if not parts:
            return text
        first, factor = parts[0]
        text = _times(first, abs(factor)) if abs(factor) != 1 else first
        text = Text(f"-{text.inside(ATOM)}", UNARY) if factor < 0 else text
        for part, factor in parts[1:]:
            sign = "-" if factor < 0 else "+"
            text = Text(f"{text} {sign} {_times(part, abs(factor)).inside(PRODUCT)}", SUM)
        if const:
            sign = "-" if const < 0 else "+"
            text = Text(f"{text} {sign} {abs(const)}", SUM)
        return text

    def _term(self, term: Term) -> Text:
        if isinstance(term, Var):
            self.used.add(self.names[term])
            return Text(self.names[term])
        value, divisor = self.linear(term.value), int(term.divisor)
        rest = isinstance(term, Remainder)
        if self.range(term.value)[0] < 0:
            return call("lw_remainder" if rest else "lw_quotient", value, str(divisor))
        return Text(f"{value.inside(PRODUCT)} {'%' if rest else '/'} {divisor}", PRODUCT)

    def offset(self, buffer: Buffer, index: tuple[Linear, ...], clamped: bool) -> Text:
        """The place in row-major storage."""
        if int(buffer.size) > MOST_ELEMENTS:
            raise BuildError(
                f"{buffer.name} has {int(buffer.size)} elements, and a buffer may have at most "
                f"{MOST_ELEMENTS}: split it into parts"
            )
        step, parts = 1, []
        for position, extent in zip(reversed(index), reversed(buffer.shape), strict=True):
            at = self._clamped(position, int(extent)) if clamped else self.linear(position)
            if at != "0":
                parts.append(_times(at, step))
            step *= int(extent)
        if not parts:
            return Text("0")
        parts.reverse()
        text = parts[0]
        for part in parts[1:]:
            rest = f"({part})" if part.startswith("-") else part.inside(SUM)
            text = Text(f"{text.inside(SUM)} + {rest}", SUM)
        return text

    def _clamped(self, position: Linear, extent: int) -> Text:
        """A subscript, moved to the nearest legal one."""
        at, (low, high) = self.linear(position), self.range(position)
        if low < 0:
            at = call("lw_greatest", at, "0")
        return call("lw_least", at, str(extent - 1)) if high >= extent else at


def _times(x: Text, factor: int) -> Text:
    return x if factor == 1 else product(Text(str(factor)), x)
