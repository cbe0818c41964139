"""Conversions between element types, around what TVM's `Cast` does badly.

float16 and bfloat16 are types to store: TVM compares and selects float16 lane by lane. Load,
`convert` to float32, compute, `convert` back and store vectorizes, and needs no library.

Conversions of bfloat16 are arithmetic on bits, since TVM's legalization of that type does not
understand `Let`: inside of one it takes Cast("float32", load) for the bits as an integer,
silently, and it refuses to store Cast("bfloat16", ...).
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr

from loopwright.codegen.tir.bindings import Bind, dtype_of, with_lets


def convert(x: Expr, dtype: str, bind: Bind | None = None) -> Expr:
    """`x` as a `dtype`, rounded to nearest even; NaN stays NaN.

    To float16 and bfloat16 from float64 it rounds twice, through float32.
    """
    source = dtype_of(x)
    if source == dtype:
        return x
    if source == "float64" and dtype in ("float16", "bfloat16"):
        # To float16 LLVM would call a function of the compiler's library, __truncdfhf2.
        return convert(tirx.Cast("float32", x), dtype, bind)
    if source == "float32" and dtype == "bfloat16":
        return tirx.reinterpret("bfloat16", to_bfloat16(x, bind))
    if source == "bfloat16":
        return convert(of_bfloat16(tirx.reinterpret("uint16", x)), dtype, bind)
    return tirx.Cast(dtype, x)


def of_bfloat16(bits: Expr) -> Expr:
    """The float32 of a bfloat16 that is given as uint16 bits; exact: they are its upper half."""
    return tirx.reinterpret("float32", tirx.Cast("uint32", bits) << _uint(16))


def to_bfloat16(x: Expr, bind: Bind | None) -> Expr:
    """The uint16 bits of a bfloat16: the upper half of a float32, rounded to nearest even."""
    if bind is None:
        return with_lets(lambda bind: to_bfloat16(x, bind))
    bits = bind(tirx.reinterpret("uint32", bind(x)))  # C takes the address of what is inside
    upper = bits >> _uint(16)
    rounded = (bits + (_uint(0x7FFF) + (upper & _uint(1)))) >> _uint(16)
    # The sum would carry some NaNs over to 0 or inf (CUDA's has all bits set).
    nan = (bits & _uint(0x7FFFFFFF)) > _uint(0x7F800000)
    return tirx.Cast("uint16", tirx.Select(nan, _uint(0x7FC0), rounded))


def _uint(value: int) -> Expr:
    return tirx.IntImm("uint32", value)
