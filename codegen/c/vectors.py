"""Vector loops as operations on whole vectors, by the extension of C that GCC and Clang share.

These are the loops whose lanes are neighbours in memory, or all the same, under arithmetic of
floats. A register tile that such loops fill stays in registers.
"""

from __future__ import annotations

from loopwright.codegen.c.text import PRODUCT, SUM, UNARY, Text, call
from loopwright.codegen.c.values import Values
from loopwright.dsl.expr import Binary, Const, Expr, Gather, Unary
from loopwright.dsl.traversal import walk
from loopwright.schedule.tree import grammar as g

_MOST_LANES = 64
_LONGEST = 300  # characters of an operand that is written more than once
_KINDS = {"float32": "f32", "float64": "f64"}
_OPERATORS = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT)}


class _PlainError(Exception):
    """The loop is no operation on vectors."""


class VectorLoop:
    """A vector loop of one store."""

    def __init__(self, values: Values, loop: g.Loop) -> None:
        self.values, self.lane, self.lanes = values, loop.var, int(loop.extent)
        (store,) = loop.body
        assert isinstance(store, g.Store), store
        self.store = store

    def assignment(self) -> tuple[str, Text] | None:
        """The place of the store and its value; None for a loop that stays one."""
        kind = _KINDS.get(self.store.buffer.dtype)
        powers = self.lanes & (self.lanes - 1) == 0 and self.lanes <= _MOST_LANES
        if kind is None or not powers or self._step(self.store.buffer, self.store.index) != 1:
            return None
        self.kind = f"{kind}x{self.lanes}"
        self.values.places.fix(self.lane, 0)
        try:
            value = self._whole(self.store.value)
        except _PlainError:
            del self.values.places.fixed[self.lane]
            return None
        return self._at(self.store.buffer, self.store.index), value

    def _at(self, buffer: g.Buffer, index: tuple[g.Linear, ...]) -> Text:
        place = self.values.places.offset(buffer, index, False)
        return call("LW_AT", self.kind, f"{self.values.name(buffer)}[{place}]")

    def _step(self, buffer: g.Buffer, index: tuple[g.Linear, ...]) -> int | None:
        """Distance of neighbouring lanes; None where it differs."""
        terms = g.flat(buffer, index).terms
        if any(not isinstance(t, g.Var) and self.lane in g.variables(t.value) for t, _ in terms):
            return None
        return sum(int(c) for term, c in terms if term is self.lane)

    def _value(self, x: Expr) -> tuple[Text, bool]:
        """A value, and whether it is a vector: others are the same in all lanes."""
        if x.dtype != self.store.buffer.dtype:
            raise _PlainError
        if not self._varies(x):
            return self.values.value(x), False
        if isinstance(x, g.Load) and not x.clamped and self._step(x.buffer, x.index) == 1:
            return self._at(x.buffer, x.index), True
        if isinstance(x, Unary) and x.op == "neg":
            return Text(f"-({self._whole(x.x)})", UNARY), True
        if isinstance(x, Binary) and x.op in _OPERATORS:
            sign, level = _OPERATORS[x.op]
            (one, _), (other, _) = self._value(x.x), self._value(x.y)
            return Text(f"{one.inside(level)} {sign} {other.inside(level + 1)}", level), True
        if isinstance(x, Binary) and x.op in ("min", "max"):
            one, other = self._whole(x.x), self._whole(x.y)
            if len(one) + len(other) > _LONGEST:
                raise _PlainError
            return call(f"LW_{x.op.upper()}", self.kind, one, other), True
        raise _PlainError

    def _whole(self, x: Expr) -> Text:
        """A value as a vector."""
        text, vector = self._value(x)
        if vector:
            return text
        zeros = f"(lw_{self.kind}){{0}}"
        if isinstance(x, Const) and str(x.value) == "0.0":
            return Text(zeros)
        return Text(f"{text.inside(SUM)} - {zeros}", SUM)  # which keeps the sign of a zero

    def _varies(self, x: Expr) -> bool:
        """Return whether lanes have values of their own."""
        for part in walk(x):
            if isinstance(part, Gather):
                part = part.table
            if isinstance(part, g.Load) and any(self.lane in g.variables(i) for i in part.index):
                return True
            if isinstance(part, g.Position) and self.lane in g.variables(part.value):
                return True
        return False
