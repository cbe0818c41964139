"""Element expressions as TIR.

float16 and bfloat16 are computed in float32 and rounded after every operation, which is what the
notation means outside of sums and what every target can do; truth values are stored as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import tirx

from loopwright.codegen.tir import integers
from loopwright.codegen.tir.bindings import Bind, dtype_of
from loopwright.codegen.tir.convert import convert, of_bfloat16, to_bfloat16
from loopwright.codegen.tir.elementary import Functions
from loopwright.codegen.tir.indices import expression
from loopwright.dsl import expr as e
from loopwright.dsl.dtypes import HALVES, is_float, is_unsigned, numpy_dtype
from loopwright.dsl.traversal import children, walk
from loopwright.schedule.tree.grammar import Buffer, Column, Linear, Load, Position

_SHORT = 8  # parts of an expression that may be written more than once
_WRAPPING = ("add", "sub", "mul")
_DIVISIONS = ("floordiv", "mod", "trunc_div", "fmod")

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    # Python's operators would take floats for reals: x * 0 for 0, whatever x is.
    "add": tirx.Add,
    "sub": tirx.Sub,
    "mul": tirx.Mul,
    "div": tirx.Div,
    # TVM gives the second operand where the comparison fails: so NaN on the left comes through.
    "min": lambda x, y: tirx.Min(y, x),
    "max": lambda x, y: tirx.Max(y, x),
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": tirx.EQ,
    "ne": lambda x, y: tirx.Not(tirx.EQ(x, y)),  # TVM's own is false for NaN
    "and": tirx.And,
    "or": tirx.Or,
}
_BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "and": tirx.bitwise_and,
    "or": tirx.bitwise_or,
    "xor": tirx.bitwise_xor,
}


def storage_type(dtype: str) -> str:
    """The type of a buffer's elements in TIR: bits for those that TVM handles badly."""
    return {"bool": "uint8", "bfloat16": "uint16"}.get(dtype, dtype)


class ValueEmitter:
    """Emits element expressions; the caller says where elements and variables are."""

    def __init__(
        self,
        offset: Callable[[Buffer, tuple[Linear, ...], bool], Any],
        linear: Callable[[Linear], Any],
        buffers: Mapping[str, Any],
        shuffled: Callable[[Load], Any],
        functions: Functions,
    ) -> None:
        """`shuffled` gives loads that are better made otherwise, None for all others."""
        self.offset, self.linear, self.buffers = offset, linear, buffers
        self.shuffled, self.functions = shuffled, functions

    # ---- how a machine computes; a GPU's differs ----

    def of_half(self, stored: Any, dtype: str) -> Any:
        """The float32 of a float16 or bfloat16 as its buffer holds it."""
        return of_bfloat16(stored) if dtype == "bfloat16" else convert(stored, "float32")

    def to_half(self, value: Any, dtype: str, bind: Bind) -> Any:
        """A floating value rounded to float16 or bfloat16, as a buffer holds it."""
        if dtype == "bfloat16":
            return to_bfloat16(value, bind)
        return convert(value, dtype, bind)

    def function(self, op: str, parts: list[Any], bind: Bind) -> Any:
        """An elementary function, or "abs", of float32 or float64."""
        return self.functions(op, *parts, bind=bind)

    def natural_power(self, x: Any, y: Any, choose: integers.Choose, bind: Bind) -> Any:
        """An integer to a power that is not negative."""
        return integers.by_squares(x, y, choose, bind)

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        """One of two values."""
        return tirx.Select(condition, yes, no)

    def binary(self, op: str, parts: list[Any], bind: Bind) -> Any:
        """An operator of two values of one type."""
        return _BINARY[op](*parts)

    def constant(self, x: e.Const) -> Any:
        """A constant, in the type that it is computed in."""
        return _const(x)

    # ---- what they mean, which is the same everywhere ----

    def stored(self, x: e.Expr, dtype: str, bind: Bind) -> Any:
        """A value as its buffer holds it; `bind` names what is used more than once."""
        if isinstance(x, Load) and x.dtype == dtype:
            return self._element(x)
        if isinstance(x, e.Gather) and x.dtype == dtype:
            return self._gathered(x, bind)
        value = self._emit(x, bind)
        if dtype == "bool":
            return tirx.Cast("uint8", value)
        return self.to_half(value, dtype, bind) if dtype in HALVES else value

    def _emit(self, x: e.Expr, bind: Bind) -> Any:
        """A value in the type that it is computed in: float32 for the halves."""
        if isinstance(x, e.Const):
            return self.constant(x)
        if isinstance(x, Load):
            return self._loaded(self._element(x), x.dtype)
        if isinstance(x, Position):
            value = self.linear(x.value)
            return tirx.IntImm("int32", value) if isinstance(value, int) else value
        if isinstance(x, e.Gather):
            return self._loaded(self._gathered(x, bind), x.dtype)
        parts = [self._emit(child, bind) for child in children(x)]
        if isinstance(x, e.Select):
            return self.choose(*parts)
        if isinstance(x, e.Cast):
            return self._cast(parts[0], x.x.dtype, x.type, bind)
        if isinstance(x, e.Unary):
            return self._rounded(self._unary(x.op, parts[0], x.dtype, bind), x.dtype, bind)
        assert isinstance(x, e.Binary), x
        if x.op in e.COMPARISONS and x.x.dtype == "bool":
            parts = [tirx.Cast("uint8", part) for part in parts]
        if x.op in ("min", "max"):
            return self._extreme(x, parts, bind)
        value = self._binary(x, parts, bind)
        return value if x.dtype == "bool" else self._rounded(value, x.dtype, bind)

    def _extreme(self, x: e.Binary, parts: list[Any], bind: Bind) -> Any:
        """The lesser or greater of two values, NaN if one of them is.

        `binary` gives its first value where a comparison fails: NaN there comes through in one
        instruction, and what cannot be NaN goes second."""
        one, other = parts
        if not _may_be_nan(x.y):
            return self.binary(x.op, [one, other], bind)
        if not _may_be_nan(x.x):
            return self.binary(x.op, [other, one], bind)
        # The first of a reduction is its accumulator: with AVX-512, a maximum in place, masked.
        one = one if isinstance(x.x, Load) else bind(one)
        either = self.binary(x.op, [other, one], bind)
        return self.choose(tirx.EQ(one, one), either, one)

    def _binary(self, x: e.Binary, parts: list[Any], bind: Bind) -> Any:
        """An operator or a function; not yet rounded to a half."""
        if is_float(x.dtype):
            if x.op in ("floordiv", "mod"):
                return self._floored(x.op, bind(parts[0]), bind(parts[1]), bind)
            if x.op in ("pow", "atan2", "fmod"):
                return self.function(x.op, parts, bind)
        elif x.op in _WRAPPING:
            return integers.wrapped(x.op, parts, x.dtype, bind)
        elif x.op in _DIVISIONS:
            return integers.divided(x.op, bind(parts[0]), parts[1], self.choose, bind)
        elif x.op in _BITWISE and x.dtype != "bool":
            return _BITWISE[x.op](*parts)
        elif x.op in e.SHIFTS:
            return integers.shifted(x.op, parts[0], parts[1], self.choose, bind)
        elif x.op == "pow":
            return integers.power(parts[0], parts[1], self.natural_power, self.choose, bind)
        return self.binary(x.op, parts, bind)

    def _unary(self, op: str, value: Any, dtype: str, bind: Bind) -> Any:
        if op == "not":
            return tirx.Not(value) if dtype == "bool" else tirx.bitwise_not(value)
        if op == "neg":
            if is_float(dtype):
                return -value
            return integers.wrapped("sub", [tirx.IntImm(dtype, 0), value], dtype, bind)
        if not is_float(dtype):
            assert op == "abs", op
            if is_unsigned(dtype):
                return value
            negative = self._unary("neg", value, dtype, bind)
            return self.choose(value < 0, negative, value)
        return self.function(op, [value], bind)

    def _floored(self, op: str, x: Any, y: Any, bind: Bind) -> Any:
        """⌊x / y⌋ of floats, or what remains, as NumPy works them out of fmod."""
        zero = tirx.FloatImm(dtype_of(x), 0.0)
        rest = bind(self.function("fmod", [x, y], bind))
        below = tirx.And(tirx.LT(rest, zero), tirx.GT(y, zero))
        short = tirx.Or(below, tirx.And(tirx.GT(rest, zero), tirx.LT(y, zero)))
        if op == "mod":
            # A remainder of 0 has the sign of y.
            signed = self.choose(
                tirx.EQ(rest, zero), self.choose(tirx.LT(y, zero), -zero, zero), rest
            )
            return self.choose(short, rest + y, signed)
        quotient = bind((x - rest) / y)
        one = tirx.FloatImm(dtype_of(x), 1.0)
        quotient = bind(self.choose(short, quotient - one, quotient))
        whole = bind(self.function("floor", [quotient], bind))
        nearest = self.choose(
            quotient - whole > tirx.FloatImm(dtype_of(x), 0.5), whole + one, whole
        )
        return self.choose(tirx.EQ(y, zero), x / y, nearest)

    def _element(self, x: Load) -> Any:
        """A value as its buffer holds it."""
        if (value := self.shuffled(x)) is not None:
            return value
        at = self.offset(x.buffer, x.index, x.clamped)
        at = tirx.IntImm("int32", at) if isinstance(at, int) else at
        return tirx.BufferLoad(self.buffers[x.buffer.name], [at])

    def _loaded(self, value: Any, dtype: str) -> Any:
        """An element of a buffer, in the type that it is computed in."""
        if dtype == "bool":
            return tirx.NE(value, tirx.IntImm("uint8", 0))
        return self.of_half(value, dtype) if dtype in HALVES else value

    def _gathered(self, x: e.Gather, bind: Bind) -> Any:
        """An element of a buffer at places that elements name, as the buffer holds it."""
        table = x.table
        step: Column = 1
        at = expression(self.offset(table.buffer, table.index, table.clamped))
        for named, size in zip(reversed(x.at), reversed(x.shape), strict=True):
            if named is not None:
                at = at + self._place(named, size, bind) * self._whole(step, "int32")
            step = step * size
        return tirx.BufferLoad(self.buffers[table.buffer.name], [at])

    def _whole(self, value: Column, dtype: str) -> Any:
        """A number of the tree, which may be a formula, as an integer of a type."""
        found = self.linear(Linear((), value))
        return tirx.IntImm(dtype, found) if isinstance(found, int) else tirx.Cast(dtype, found)

    def _place(self, named: e.Expr, size: Column, bind: Bind) -> Any:
        """A subscript that an element names, inside of an axis."""
        # A name would be kept for each lane. Without one, TVM sees where all lanes have the same
        # subscript, and loads neighbours as a vector.
        short = sum(1 for _ in walk(named)) <= _SHORT
        value = self._emit(named, (lambda part: part) if short else bind)
        dtype = dtype_of(value)
        wide = dtype if dtype in ("int64", "uint64") else "int64" if dtype == "uint32" else "int32"
        value = value if dtype == wide else tirx.Cast(wide, value)
        value = value if short else bind(value)
        last = self._whole(size - 1, wide)
        if not is_unsigned(wide):
            zero = tirx.IntImm(wide, 0)
            near = tirx.Add(value, self._whole(size, wide))
            value = self.choose(tirx.LT(value, zero), tirx.Max(near, zero), value)
        return tirx.Cast("int32", tirx.Min(value, last))

    def _cast(self, value: Any, source: str, dtype: str, bind: Bind) -> Any:
        if source == "bool":
            value = tirx.Cast("int32", value)
        if dtype in HALVES:
            return self._rounded(tirx.Cast("float32", value), dtype, bind)
        if is_float(source) and dtype in integers.WIDER and dtype != "int32":
            wide = "int64" if dtype == "uint32" else "int32"
            value = tirx.Cast(wide, value)  # then wrap, as NumPy does
        return tirx.Cast(dtype, value)

    def _rounded(self, value: Any, dtype: str, bind: Bind) -> Any:
        if dtype not in HALVES:
            return value
        half = self.to_half(value, dtype, bind)
        return self.of_half(bind(half) if dtype == "bfloat16" else half, dtype)


def _may_be_nan(x: e.Expr) -> bool:
    if isinstance(x, e.Const):
        return isinstance(x.value, float) and math.isnan(x.value)
    if isinstance(x, e.Binary) and x.op in ("min", "max"):
        return _may_be_nan(x.x) or _may_be_nan(x.y)
    exact = isinstance(x, e.Cast) and not is_float(x.x.dtype)
    return is_float(x.dtype) and not exact


def by_bits(x: e.Const, function: str) -> Any:
    """A constant as a call of `function`_float or `function`_double with its bits, where seven
    digits, which is what TVM writes, do not say it; None for others."""
    if not is_float(x.type):
        return None
    dtype = "float64" if x.type == "float64" else "float32"
    value = _of_type(x)
    bits, seen = _bits(value, dtype), float(f"{value:e}")
    if math.isfinite(seen) and _bits(seen, dtype) == bits:
        return None
    kind, size = ("double", "int64") if dtype == "float64" else ("float", "int32")
    return tirx.call_pure_extern(dtype, f"{function}_{kind}", tirx.IntImm(size, bits))


def _bits(value: float, dtype: str) -> int:
    with np.errstate(over="ignore"):
        return int(np.array(value, dtype).view("int64" if dtype == "float64" else "int32"))


def _of_type(x: e.Const) -> float:
    """A floating constant as its type has it: TVM takes no number that is too large for it."""
    with np.errstate(over="ignore"):
        return float(np.asarray(x.value, numpy_dtype(x.type)))


def _const(x: e.Const) -> Any:
    dtype = "float32" if x.type in HALVES else x.type
    if dtype == "bool":
        return tirx.IntImm("bool", int(x.value))
    if not is_float(dtype):
        return tirx.IntImm(dtype, int(x.value))
    value = _of_type(x)
    if math.isinf(value):
        infinite = tirx.infinity(dtype)
        return -infinite if value < 0 else infinite
    if math.isnan(value):  # as bits: what is known at compile time is folded as if it were ordered
        integer = tirx.IntImm(dtype.replace("float", "int"), _bits(value, dtype))
        return tirx.reinterpret(dtype, integer)
    return tirx.FloatImm(dtype, value)
