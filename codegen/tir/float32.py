"""Parts of float32 functions: numbers, bits, polynomials, and limits that keep NaN."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr

from loopwright.codegen.tir.bindings import Bind

BIAS = 127  # of a float32's exponent
MANTISSA = 23  # its bits
MAGNITUDE = 0x7FFFFFFF  # all bits but the sign
NAN_BITS = 0x7FC00000


def horner(coefficients: tuple[float, ...], x: Expr, dtype: str = "float32") -> Expr:
    """c0 + x (c1 + x (c2 + ...)); LLVM fuses each step where the machine can."""
    value: Expr = tirx.FloatImm(dtype, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + tirx.FloatImm(dtype, coefficient)
    return value


def clamp(x: Expr, low: float, high: float, bind: Bind) -> Expr:
    """x between the bounds; NaN stays."""
    x = at_most(x, high, bind)
    return bind(tirx.Select(x < number(low), number(low), x))


def at_most(x: Expr, high: float, bind: Bind) -> Expr:
    """The lesser of x and a number; NaN stays."""
    # Not tirx.Min, whose answer for NaN depends on the order of its operands.
    x = bind(x)
    return bind(tirx.Select(x > number(high), number(high), x))


def magnitude(value_bits: Expr) -> Expr:
    """The float of bits, without its sign."""
    return from_bits(value_bits & integer(MAGNITUDE))


def with_sign_of(sign_bits: Expr, value: Expr) -> Expr:
    """`value` with the sign in `sign_bits` (tirx.copysign is not vectorized)."""
    return from_bits((bits(value) & integer(MAGNITUDE)) | (sign_bits & integer(~MAGNITUDE)))


def power_of_two(exponent: Expr) -> Expr:
    """2^(k - 127), k from 0 to 255 (there it is inf) in the 9 lowest bits of `exponent`."""
    return from_bits(exponent << integer(MANTISSA))


def bits(x: Expr) -> Expr:
    """A float's bits."""
    return tirx.reinterpret("int32", x)


def from_bits(value: Expr) -> Expr:
    """The float of bits."""
    return tirx.reinterpret("float32", value)


def number(value: float) -> Expr:
    """A constant."""
    return tirx.FloatImm("float32", value)


def double(value: float) -> Expr:
    """A constant of float64."""
    return tirx.FloatImm("float64", value)


def integer(value: int) -> Expr:
    """A constant of int32, as bits are."""
    return tirx.IntImm("int32", value)
