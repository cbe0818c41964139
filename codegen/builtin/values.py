"""Element expressions as vector operations, of float32.

They are those that LLVM makes of our TIR, in the same order: a product that is added to something
becomes one operation with it, of two products the last one in a sum and the first one in a
difference. NaN goes through minima and maxima as the notation says.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from loopwright.codegen.builtin.code import Uncovered
from loopwright.codegen.builtin.functions import steps_of
from loopwright.codegen.builtin.vectors import WORDS, Value
from loopwright.dsl.expr import Binary, Cast, Const, Expr, Select, Unary
from loopwright.schedule.tree.grammar import Load, Position

if TYPE_CHECKING:
    from loopwright.codegen.builtin.places import Places

_OPERATORS = {"add": "vaddps", "sub": "vsubps", "mul": "vmulps", "div": "vdivps"}
_EXTREMES = {"min": "vminps", "max": "vmaxps"}
_ROUNDINGS = {"round": 8, "floor": 9, "ceil": 10, "trunc": 11}
_SIMPLE = frozenset(("neg", "abs", "sqrt", "rsqrt", *_ROUNDINGS))
_STEPS: dict[str, tuple[str, int | None]] = {
    "float32.Add": ("vaddps", None),
    "float32.Sub": ("vsubps", None),
    "float32.Mul": ("vmulps", None),
    "float32.Div": ("vdivps", None),
    "float32.Min": ("vminps", None),
    "float32.Max": ("vmaxps", None),
    "float32.sqrt": ("vsqrtps", None),
    **{f"float32.{name}": ("vroundps", mode) for name, mode in _ROUNDINGS.items()},
    "float32.int32": ("vcvttps2dq", None),
    "int32.float32": ("vcvtdq2ps", None),
    "int32.Add": ("vpaddd", None),
    "int32.Sub": ("vpsubd", None),
    "int32.BitwiseAnd": ("vpand", None),
    "int32.BitwiseOr": ("vpor", None),
    "int32.BitwiseXor": ("vpxor", None),
}
_ITEM = 4
ROWS = 4
"""Rows that are transposed together."""
_SIGN = 1 << 31
_FROM = (0xE4, 0xF9, 0xFE, 0xFF)  # lanes from the first, second, … of four on
_EVEN = 0xD8  # the first, the third; the second, the fourth
_EVEN_PAIRS = (0, 2, 4, 6, 1, 3, 5, 7)  # of 64 bits, of 16 lanes


class Values:
    """Works values out, in temporaries or in the home that is asked for."""

    def __init__(self, emitter: Places) -> None:
        self.emitter, self.vectors = emitter, emitter.vectors

    def into(self, x: Expr, lanes: int, register: int) -> None:
        """A value into a home."""
        made = self.value(x, lanes, register)
        self.vectors.move(lanes, made, register)

    def value(self, x: Expr, lanes: int, into: int | None = None) -> Value:
        """A value of so many lanes; `into` is a home that may be written last of all."""
        if (register := self.emitter.hoisted.get(id(x))) is not None:
            return register
        if isinstance(x, Load):
            return self._load(x, lanes)
        if isinstance(x, Binary):
            return self._binary(x, lanes, into)
        if x.dtype != "float32":
            raise Uncovered(f"elements of {x.dtype}")
        vectors = self.vectors
        if isinstance(x, Const):
            return self.vectors.constant(bits(float(x.value)), lanes)
        if isinstance(x, Unary):
            return self._unary(x, lanes, into)
        if isinstance(x, Cast) and x.x.dtype == "int32":
            return vectors.apply("vcvtdq2ps", lanes, self.integer(x.x, lanes), None, None, into)
        if isinstance(x, Select):
            mask = self._mask(x.cond, lanes)
            yes, no = self.value(x.x, lanes), self.value(x.y, lanes)
            return self.vectors.blend(lanes, no, yes, mask, into)
        of_types = f"a cast of {x.x.dtype} to {x.dtype}" if isinstance(x, Cast) else ""
        raise Uncovered(of_types or f"the element {x!r}")

    def part(self, value: Value, first: int, lanes: int) -> Value:
        """So many lanes of a vector from some lane on, as the first of another."""
        if not first:
            return value
        vectors = self.vectors
        if lanes == 8:
            if first != 8:
                raise Uncovered("parts of two registers are read at once")
            return vectors.apply("vextractf32x8", 8, value, None, 1)
        if first % 4 + lanes > 4:
            raise Uncovered("parts of two registers are read at once")
        if first >= 8:
            value = vectors.apply("vextractf32x4", 4, value, None, first // 4)
        elif first >= 4:
            value = vectors.apply("vextractf128", 4, value, None, 1)
        first %= 4
        return vectors.apply("vpermilps", 4, value, None, _FROM[first]) if first else value

    def columns(self, rows: list[Value], lanes: int) -> list[Value]:
        """Rows of 4, 8 or 16 lanes as columns: of lane n, and in the next quarters of lanes n + 4,
        n + 8 and n + 12."""
        vectors = self.vectors

        def mixed(name: str, one: Value, other: Value, immediate: int | None = None) -> Value:
            return vectors.apply(name, lanes, one, other, immediate)

        a, b, c, d = rows
        low, high = mixed("vunpcklps", a, b), mixed("vunpckhps", a, b)
        low2, high2 = mixed("vunpcklps", c, d), mixed("vunpckhps", c, d)
        pairs = ((low, low2), (high, high2))
        return [mixed("vshufps", *pair, half) for pair in pairs for half in (0x44, 0xEE)]

    def _load(self, x: Load, lanes: int) -> Value:
        emitter, vectors = self.emitter, self.vectors
        if x.buffer.dtype != "float32":
            raise Uncovered(f"elements of {x.buffer.dtype}")
        homes = emitter.homes.get(x.buffer.name)
        if homes is not None:
            return self._home(x, lanes)
        place, step = emitter.place(x)
        name = x.buffer.name
        if lanes == 1 or step == _ITEM:
            return vectors.load(name, place, lanes)
        if step == 0:
            return vectors.load(name, place, lanes, one=True)
        return self._gathered(name, place, step, lanes)

    def _home(self, x: Load, lanes: int) -> Value:
        homes = self.emitter.homes[x.buffer.name]
        _, offset, step = self.emitter.where(x)
        whole, rest = divmod(offset // _ITEM, homes.width)
        register = homes.registers[whole]
        if step == _ITEM or lanes == 1:
            if rest + lanes > homes.width:
                raise Uncovered("parts of two registers are read at once")
            return self.part(register, rest, lanes)
        element = self.part(register, rest, 1)
        return self.vectors.apply("vbroadcastss", lanes, element)

    def _gathered(self, name: str, place: tuple[int, int], step: int, lanes: int) -> Value:
        """Lanes that stand apart, one by one; every second one of two vectors, of which the last
        ends with the last lane."""
        vectors, (base, offset) = self.vectors, place
        if step == 2 * _ITEM and lanes >= 4:
            near = vectors.load(name, place, lanes)
            far = vectors.load(name, (base, offset + (lanes - 1) * _ITEM), lanes)
            made = vectors.apply("vshufps", lanes, near, far, _EVEN)
            if lanes == 16:
                order = vectors.pattern(tuple(n for pair in _EVEN_PAIRS for n in (pair, 0)))
                return vectors.apply("vpermpd_by", lanes, order, made)
            return made if lanes == 4 else vectors.apply("vpermpd", lanes, made, None, _EVEN)
        if lanes == 16:
            low, high = (
                self._gathered(name, (base, offset + first * step), step, 8) for first in (0, 8)
            )
            return vectors.apply("vinsertf32x8", lanes, low, high, 1)
        halves = []
        for half in range(0, lanes, 4):
            count = min(4, lanes - half)
            made = vectors.load(name, (base, offset + half * step), 1)
            for lane in range(1, count):
                element = vectors.load(name, (base, offset + (half + lane) * step), 1)
                made = vectors.apply("vinsertps", 4, made, element, lane << 4)
            halves.append(made)
        if len(halves) == 1:
            return halves[0]
        return vectors.apply("vinsertf128", 8, halves[0], halves[1], 1)

    def _binary(self, x: Binary, lanes: int, into: int | None) -> Value:
        vectors, op = self.vectors, x.op
        if op in ("add", "sub"):
            parts = [(x.x, x.y, "msub"), (x.y, x.x, "nmadd")]
            for part, rest, sign in reversed(parts) if op == "add" else parts:
                if isinstance(part, Binary) and part.op == "mul":
                    a, b, c = (self.value(each, lanes) for each in (part.x, part.y, rest))
                    sign = "madd" if op == "add" else sign
                    return vectors.multiply_add(sign, lanes, a, b, c, into)
        if op in _OPERATORS:
            a = self.value(x.x, lanes)
            return vectors.apply(_OPERATORS[op], lanes, a, self.value(x.y, lanes), None, into)
        if op in _EXTREMES:
            return self._extreme(x, lanes, into)
        return self._function(op, [x.x, x.y], lanes)

    def _extreme(self, x: Binary, lanes: int, into: int | None) -> Value:
        """The lesser or greater of two values, NaN if one of them is: the processor gives the
        second operand if one is NaN, so what cannot be NaN goes first."""
        vectors, name = self.vectors, _EXTREMES[x.op]
        one, other = self.value(x.x, lanes), self.value(x.y, lanes)
        if not _may_be_nan(x.y):
            return vectors.apply(name, lanes, other, one, None, into)
        if not _may_be_nan(x.x):
            return vectors.apply(name, lanes, one, other, None, into)
        either = vectors.apply(name, lanes, one, other)
        mask = vectors.unordered(lanes, one)
        return vectors.blend(lanes, either, one, mask, into)

    def _unary(self, x: Unary, lanes: int, into: int | None) -> Value:
        vectors, op = self.vectors, x.op
        if op not in _SIMPLE:
            return self._function(op, [x.x], lanes)
        value = self.value(x.x, lanes)
        if op == "neg":
            sign = vectors.constant(_SIGN, lanes)
            return vectors.apply("vxorps", lanes, value, sign, None, into)
        if op == "abs":
            mask = vectors.constant(_SIGN - 1, lanes)
            return vectors.apply("vandps", lanes, value, mask, None, into)
        if op == "sqrt":
            return vectors.apply("vsqrtps", lanes, value, None, None, into)
        if op == "rsqrt":
            root = vectors.apply("vsqrtps", lanes, value)
            one = vectors.constant(bits(1.0), lanes)
            return vectors.apply("vdivps", lanes, one, root, None, into)
        return vectors.apply("vroundps", lanes, value, None, _ROUNDINGS[op], into)

    def _function(self, op: str, operands: list[Expr], lanes: int) -> Value:
        """An elementary function, step by step; products that are used once go into sums."""
        steps, uses = steps_of(op, len(operands), self.vectors.set.extended)
        given = [self.value(x, lanes) for x in operands]
        made: list[Value] = []
        late: dict[int, tuple[Value, Value]] = {}  # products that wait for their sum
        for at, step in enumerate(steps):
            kind, rest = step[0], step[1:]
            if not uses[at] and at < len(steps) - 1:
                made.append(-1)
            elif kind == "float32.Mul" and uses[at] == 1 and _is_added(steps, at):
                late[at] = made[rest[0]], made[rest[1]]
                made.append(-1)
            elif kind in ("float32.Add", "float32.Sub") and (rest[0] in late or rest[1] in late):
                made.append(self._sum(kind, rest, made, late, lanes))
            elif kind == "argument":
                made.append(given[rest[0]])
            elif kind == "constant":
                dtype, value = rest
                number = bits(value) if dtype == "float32" else int(value) & 0xFFFFFFFF
                made.append(self.vectors.constant(number, lanes))
            else:
                made.append(self._step(op, kind, rest, steps, made, lanes))
        return made[-1]

    def _sum(
        self,
        kind: str,
        rest: tuple[int, ...],
        made: list[Value],
        late: dict[int, tuple[Value, Value]],
        lanes: int,
    ) -> Value:
        """A sum or difference one of whose parts is a product."""
        first, second = rest
        if first in late and second in late:  # one of two products is made after all
            other = first if kind.endswith("Add") else second
            a, b = late.pop(other)
            made[other] = self.vectors.apply("vmulps", lanes, a, b)
        if first in late:
            sign = "madd" if kind.endswith("Add") else "msub"
            return self.vectors.multiply_add(sign, lanes, *late.pop(first), made[second], None)
        sign = "madd" if kind.endswith("Add") else "nmadd"
        return self.vectors.multiply_add(sign, lanes, *late.pop(second), made[first], None)

    def _step(
        self,
        op: str,
        kind: str,
        rest: tuple[int, ...],
        steps: tuple[tuple[object, ...], ...],
        made: list[Value],
        lanes: int,
    ) -> Value:
        vectors, parts = self.vectors, [made[at] for at in rest]
        if kind in _STEPS:
            name, immediate = _STEPS[kind]
            second = parts[1] if len(parts) > 1 else None
            return vectors.apply(name, lanes, parts[0], second, immediate)
        if kind in ("int32.LShift", "int32.RShift"):
            count = steps[rest[1]]
            if count[0] == "constant":
                name = "vpslld" if kind == "int32.LShift" else "vpsrad"
                return vectors.apply(name, lanes, parts[0], None, int(str(count[2])))
        if kind == "Select":
            return vectors.blend(lanes, parts[2], parts[1], parts[0], None)
        if kind == "Not":
            return vectors.negated(lanes, parts[0])
        if kind == "bool.And":
            return vectors.both(lanes, *parts)
        if kind == "bool.Or":
            return vectors.either(lanes, *parts)
        dtype, _, word = kind.lower().rpartition(".")
        if word in WORDS:
            compared = vectors.compared_integers if dtype == "int32" else vectors.compared
            return compared(word, lanes, parts[0], parts[1])
        if kind == "float32.fabs":
            return vectors.apply("vandps", lanes, parts[0], vectors.constant(_SIGN - 1, lanes))
        raise Uncovered(f"the function {op}")

    def _mask(self, x: Expr, lanes: int) -> Value:
        """A truth value of each lane."""
        vectors = self.vectors
        if isinstance(x, Binary) and x.op in WORDS:
            if x.x.dtype == "float32":
                return vectors.compared(x.op, lanes, *self._two(x, self.value, lanes))
            if x.x.dtype == "int32":
                return vectors.compared_integers(x.op, lanes, *self._two(x, self.integer, lanes))
        if isinstance(x, Binary) and x.op in ("and", "or"):
            combined = vectors.both if x.op == "and" else vectors.either
            return combined(lanes, *self._two(x, self._mask, lanes))
        if isinstance(x, Unary) and x.op == "not":
            return vectors.negated(lanes, self._mask(x.x, lanes))
        raise Uncovered(f"the condition {x!r}")

    def integer(self, x: Expr, lanes: int) -> Value:
        """An int32 of so many lanes: a subscript or a number."""
        vectors = self.vectors
        if isinstance(x, Const):
            return vectors.constant(int(x.value) & 0xFFFFFFFF, lanes)
        if not isinstance(x, Position):
            raise Uncovered("arithmetic of int32")
        const, number, step = self.emitter.position(x.value)
        if step:
            pattern = tuple(const + step * lane for lane in range(lanes))
            made = vectors.pattern(pattern)
        else:
            made = vectors.constant(const & 0xFFFFFFFF, lanes)
        if number is None:
            return made
        return vectors.apply("vpaddd", lanes, made, vectors.spread(number, lanes))

    def _two(
        self, x: Binary, work: Callable[[Expr, int], Value], lanes: int
    ) -> tuple[Value, Value]:
        return work(x.x, lanes), work(x.y, lanes)


def bits(value: float) -> int:
    """The bits of a float32."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0x7F800000 | (_SIGN if value < 0 else 0)


def _may_be_nan(x: Expr) -> bool:
    if isinstance(x, Const):
        return isinstance(x.value, float) and math.isnan(x.value)
    if isinstance(x, Binary) and x.op in ("min", "max"):
        return _may_be_nan(x.x) or _may_be_nan(x.y)
    return True


def _is_added(steps: tuple[tuple[object, ...], ...], at: int) -> bool:
    """Return whether the one use of a step is a sum or a difference."""
    users = (s for s in steps[at + 1 :] if at in s[1:] and s[0] not in ("argument", "constant"))
    return next(users)[0] in ("float32.Add", "float32.Sub")
