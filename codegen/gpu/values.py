"""Element expressions as TIR for GPUs: scalar code, with the functions of the device.

What the languages lack or say differently (halves above all, which are stored as 16-bit integers)
is in the preludes, under names that begin with `lw_`.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from loopwright.codegen.tir.bindings import Bind, dtype_of
from loopwright.codegen.tir.elementary import C_NAMES
from loopwright.codegen.tir.integers import Choose
from loopwright.codegen.tir.values import ValueEmitter, by_bits, storage_type
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Const


def gpu_storage_type(dtype: str) -> str:
    """The type of a buffer's elements in TIR: halves are bits, which every device can move."""
    return "uint16" if dtype == "float16" else storage_type(dtype)


class Names:
    """Binds values by naming them, one statement each: `t = value`."""

    def __init__(self) -> None:
        self.statements: list[Any] = []

    def __call__(self, value: Any) -> Any:
        variable = tirx.Var("t", dtype_of(value))
        self.statements.append(tirx.Bind(variable, value))
        return variable


class GpuValues(ValueEmitter):
    """Emits element expressions for "cuda" or "opencl", which have their own functions."""

    language: str

    def of_half(self, stored: Any, dtype: str) -> Any:
        return tirx.call_pure_extern("float32", f"lw_of_{dtype}", stored)

    def to_half(self, value: Any, dtype: str, bind: Bind) -> Any:
        value = value if dtype_of(value) == "float32" else tirx.Cast("float32", value)
        return tirx.call_pure_extern("uint16", f"lw_to_{dtype}", value)

    def function(self, op: str, parts: list[Any], bind: Bind) -> Any:
        dtype = dtype_of(parts[0])
        if op == "sigmoid":
            one = tirx.FloatImm(dtype, 1.0)
            return one / (one + self.function("exp", [-parts[0]], bind))
        name = C_NAMES.get(op, op)
        if self.language == "cuda" and dtype == "float32":
            name += "f"  # OpenCL's names are for all types
        return tirx.call_pure_extern(dtype, name, *parts)

    def natural_power(self, x: Any, y: Any, choose: Choose, bind: Bind) -> Any:
        wide = [tirx.Cast("uint64", part) for part in (x, y)]
        return tirx.Cast(dtype_of(x), tirx.call_pure_extern("uint64", "lw_power", *wide))

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        """C's conditional operator: OpenCL's `select` wants conditions as wide as the values."""
        return tirx.if_then_else(condition, yes, no)

    def binary(self, op: str, parts: list[Any], bind: Bind) -> Any:
        """min and max are comparisons, which give the first value where they fail: the languages'
        own drop NaN, or do not say what they do."""
        if op not in ("min", "max"):
            return super().binary(op, parts, bind)
        x, y = bind(parts[0]), bind(parts[1])
        return tirx.if_then_else(y < x if op == "min" else y > x, y, x)

    def constant(self, x: Const) -> Any:
        """TVM writes seven digits of a constant into OpenCL: others go as bits. It has names for
        NaN in both languages, and takes the address of bits."""
        if is_float(x.type) and math.isnan(float(x.value)):
            return tirx.FloatImm("float64" if x.type == "float64" else "float32", math.nan)
        if self.language != "opencl" or not math.isfinite(float(x.value)):
            return super().constant(x)
        bits = by_bits(x, "as")
        return super().constant(x) if bits is None else bits
