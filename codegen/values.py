"""Element expressions as TIR.

float16 and bfloat16 are computed in float32 and rounded after every operation, which is what the
notation means and what every target can do; truth values are stored as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx

from loopwright.codegen.elementary import ELEMENTARY
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Binary, Cast, Const, Expr, Select, Unary
from loopwright.schedule.tree import Buffer, Linear, Load, Position

_HALVES = ("float16", "bfloat16")

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "floordiv": tirx.floordiv,
    "mod": tirx.floormod,
    # TVM gives the second operand where the comparison fails: so NaN on the left comes through,
    # and relu(NaN) is NaN.
    "min": lambda x, y: tirx.Min(y, x),
    "max": lambda x, y: tirx.Max(y, x),
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": tirx.EQ,
    "ne": tirx.NE,
    "and": tirx.And,
    "or": tirx.Or,
}


def storage_type(dtype: str) -> str:
    """The type of a buffer's elements in TIR."""
    return "uint8" if dtype == "bool" else dtype


class ValueEmitter:
    """Emits element expressions; the caller says where elements and variables are."""

    def __init__(
        self,
        offset: Callable[[Buffer, tuple[Linear, ...], bool], Any],
        linear: Callable[[Linear], Any],
        buffers: Mapping[str, Any],
        libm: bool,
    ) -> None:
        """With `libm`, elementary functions are calls of the C library, else vectors of ours."""
        self.offset, self.linear, self.buffers, self.libm = offset, linear, buffers, libm

    def stored(self, x: Expr, dtype: str) -> Any:
        """A value as its buffer holds it."""
        value = self.emit(x)
        if dtype == "bool":
            return tirx.Cast("uint8", value)
        return _to(value, dtype) if dtype in _HALVES else value

    def emit(self, x: Expr) -> Any:
        """A value in the type that it is computed in: float32 for the halves."""
        if isinstance(x, Const):
            return _const(x)
        if isinstance(x, Load):
            return self._load(x)
        if isinstance(x, Position):
            value = self.linear(x.value)
            return tirx.IntImm("int32", value) if isinstance(value, int) else value
        if isinstance(x, Select):
            return tirx.Select(self.emit(x.cond), self.emit(x.x), self.emit(x.y))
        if isinstance(x, Cast):
            return _cast(self.emit(x.x), x.x.dtype, x.type)
        if isinstance(x, Unary):
            return _rounded(self._unary(x.op, self.emit(x.x), x.dtype), x.dtype)
        assert isinstance(x, Binary), x
        value = _BINARY[x.op](self.emit(x.x), self.emit(x.y))
        return value if x.dtype == "bool" or x.op in ("min", "max") else _rounded(value, x.dtype)

    def _unary(self, op: str, value: Any, dtype: str) -> Any:
        if op == "not":
            return tirx.Not(value)
        if op == "neg":
            return -value
        if not is_float(dtype):
            assert op == "abs", op
            return value if dtype == "uint8" else tirx.Select(value < 0, -value, value)
        if self.libm:
            return _libm(op, value, "float64" if dtype == "float64" else "float32")
        if op == "abs" or dtype == "float64":
            return getattr(tirx, op)(value)
        return ELEMENTARY[op](value)

    def _load(self, x: Load) -> Any:
        at = self.offset(x.buffer, x.index, x.clamped)
        at = tirx.IntImm("int32", at) if isinstance(at, int) else at
        value = tirx.BufferLoad(self.buffers[x.buffer.name], [at])
        if x.dtype == "bool":
            return tirx.NE(value, tirx.IntImm("uint8", 0))
        return tirx.Cast("float32", value) if x.dtype in _HALVES else value


def _const(x: Const) -> Any:
    dtype = "float32" if x.type in _HALVES else x.type
    if dtype == "bool":
        return tirx.IntImm("bool", int(x.value))
    if not is_float(dtype):
        return tirx.IntImm(dtype, int(x.value))
    value = float(x.value)
    if math.isinf(value) or math.isnan(value):
        special = tirx.infinity(dtype) if math.isinf(value) else tirx.nan(dtype)
        return -special if value < 0 else special
    return tirx.FloatImm(dtype, value)


def _libm(op: str, value: Any, dtype: str) -> Any:
    """A call of the C library, or what takes one call and a division."""
    one = tirx.FloatImm(dtype, 1.0)
    if op == "sigmoid":
        return one / (one + _libm("exp", -value, dtype))
    if op == "rsqrt":
        return one / _libm("sqrt", value, dtype)
    name = "fabs" if op == "abs" else op
    return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", value)


def _cast(value: Any, source: str, dtype: str) -> Any:
    if source == "bool":
        value = tirx.Cast("int32", value)
    if dtype in _HALVES:
        return _rounded(tirx.Cast("float32", value), dtype)
    if is_float(source) and dtype in ("int8", "uint8"):
        value = tirx.Cast("int32", value)  # then wrap, as NumPy does
    return _to(value, dtype)


def _rounded(value: Any, dtype: str) -> Any:
    return tirx.Cast("float32", _to(value, dtype)) if dtype in _HALVES else value


def _to(value: Any, dtype: str) -> Any:
    return tirx.Cast(dtype, value)
