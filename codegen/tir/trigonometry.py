"""Circular functions of float32, and their inverses.

The polynomials are minimax in relative error: `tools/minimax.py` prints them.
"""

from __future__ import annotations

import math

from tvm import tirx
from tvm.ir import Expr

from loopwright.codegen.tir.bindings import Bind
from loopwright.codegen.tir.float32 import (
    MAGNITUDE,
    bits,
    double,
    from_bits,
    horner,
    integer,
    magnitude,
    number,
    with_sign_of,
)

# sin(r) = r + r^3 p(r^2) for |r| <= pi/4, to 2^-26.8; cos(r) = 1 - r^2/2 + r^4 p(r^2), to 2^-32.4.
_SIN = (-0.166666552, 0.0083321603, -0.000195152825)
_COS = (0.0416666456, -0.00138873165, 2.44331568e-05)
# atan(t) = t + t^3 p(t^2) for |t| <= tan(pi/8), to 2^-25.4.
_ATAN = (-0.333329499, 0.199777097, -0.138776794, 0.0805372298)
# asin(x) = x + x^3 p(x^2) for |x| <= 1/2, to 2^-27.3.
_ASIN = (0.166667521, 0.0749529749, 0.0454703756, 0.0241795145, 0.0421663076)

_ROUNDER = 1.5 * 2.0**52
"""Adding it to a float64 rounds that to an integer, which is then in the low bits."""
_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBB
"""2/pi times 2^240."""
_RANGES = (0, *(2.0 ** (28 + 25 * n) for n in range(4)))
"""Starts of the ranges of arguments that have the same parts of 2/pi."""


def _parts(number: int) -> tuple[float, float, float]:
    """2/pi without what makes whole turns with every argument of a range, in three parts. The
    first two have 29 bits, so that their products with float32 are exact."""
    scale = 25 * number
    # Arguments are multiples of 2^(scale - 20); those under 2^28 may be smaller.
    value = (_TWO_OVER_PI << scale) % (4 << 240 + 20)
    unit = 240 + 22 - 29
    high, rest = divmod(value, 1 << unit)
    middle, low = divmod(rest, 1 << unit - 29)
    whole = 1 << 240 + scale
    return (high << unit) / whole, (middle << unit - 29) / whole, low / whole


def sin(x: Expr, bind: Bind) -> Expr:
    """The sine within 1.6 ulp, of all float32."""
    return _sine(*_turned(bind(x), bind), bind)


def cos(x: Expr, bind: Bind) -> Expr:
    """The cosine within 1.6 ulp, of all float32."""
    quadrant, r = _turned(bind(x), bind)
    return _sine(bind(quadrant + integer(1)), r, bind)  # cos(x) = sin(x + pi/2)


def _sine(quadrant: Expr, r: Expr, bind: Bind) -> Expr:
    sine, cosine = _sine_and_cosine(r, bind)
    odd = tirx.EQ(quadrant & integer(1), integer(1))
    sign = tirx.Select(odd, integer(0), bits(r) & integer(~MAGNITUDE))
    return _flipped(tirx.Select(odd, cosine, sine), sign, quadrant)


def tan(x: Expr, bind: Bind) -> Expr:
    """The tangent within 3.5 ulp, of all float32."""
    quadrant, r = _turned(bind(x), bind)
    sine, cosine = map(bind, _sine_and_cosine(r, bind))
    odd = tirx.EQ(quadrant & integer(1), integer(1))
    value = tirx.Select(odd, cosine, sine) / tirx.Select(odd, sine, cosine)
    return _flipped(value, bits(r) & integer(~MAGNITUDE), quadrant << integer(1))


def asin(x: Expr, bind: Bind) -> Expr:
    """The inverse of the sine within 2.5 ulp; beyond 1/2 by that of half of the other angle."""
    raw = bind(bits(x))
    large, p = _arc_sine(bind(magnitude(raw)), bind)
    return with_sign_of(raw, tirx.Select(large, number(math.pi / 2) - (p + p), p))


def acos(x: Expr, bind: Bind) -> Expr:
    """The inverse of the cosine within 2.5 ulp."""
    x = bind(x)
    large, p = _arc_sine(bind(magnitude(bits(x))), bind)
    negative = x < number(0.0)
    far = tirx.Select(negative, number(math.pi) - (p + p), p + p)
    near = number(math.pi / 2) - tirx.Select(negative, -p, p)
    return tirx.Select(large, far, near)


def atan(x: Expr, bind: Bind) -> Expr:
    """The inverse of the tangent within 3 ulp."""
    raw = bind(bits(x))
    a = bind(magnitude(raw))
    steep = a > number(1.0)
    low, high = (tirx.Select(steep, number(1.0), a), tirx.Select(steep, a, number(1.0)))
    angle = bind(_angle(low, high, bind))
    return with_sign_of(raw, tirx.Select(steep, number(math.pi / 2) - angle, angle))


def atan2(y: Expr, x: Expr, bind: Bind) -> Expr:
    """The angle of the point (x, y) within 3.5 ulp, with C's zeros and infinities."""
    y, x = bind(y), bind(x)
    rise, run = bind(magnitude(bits(y))), bind(magnitude(bits(x)))
    steep = rise > run
    low, high = bind(tirx.Select(steep, run, rise)), bind(tirx.Select(steep, rise, run))
    # 0/0 is no angle, and neither is inf/inf: these are as 0/1 and 1/1.
    same = tirx.EQ(low, high)
    zero = tirx.EQ(high, number(0.0))
    # The sum of both must be finite. Where this rounds the lower one, the angle is 0 anyway.
    scale = bind(tirx.Select(high > number(2.0**126), number(0.5), number(1.0)))
    low = tirx.Select(same, tirx.Select(zero, number(0.0), number(1.0)), low * scale)
    high = tirx.Select(same, number(1.0), high * scale)
    angle = bind(_angle(low, high, bind))
    angle = bind(tirx.Select(steep, number(math.pi / 2) - angle, angle))
    behind = bits(x) < integer(0)
    angle = tirx.Select(behind, number(math.pi) - angle, angle)
    known = tirx.And(tirx.EQ(x, x), tirx.EQ(y, y))
    return tirx.Select(known, with_sign_of(bits(y), angle), x + y)


def _turned(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """(q, r): x = q pi/2 + r modulo whole turns, |r| <= pi/4; q in the two lowest bits.

    Payne and Hanek's reduction in float64: the parts of 2/pi that make whole turns with every
    argument as large as this one are left out, and the products with the others are exact.
    """
    a = magnitude(bits(x))
    wide = bind(tirx.Cast("float64", x))
    factors = [double(part) for part in _parts(0)]
    for number_, begin in enumerate(_RANGES[1:], 1):
        beyond = bind(tirx.Cast("int32", a >= number(begin)))
        factors = [
            tirx.Select(tirx.NE(beyond, integer(0)), double(part), factor)
            for part, factor in zip(_parts(number_), factors)
        ]
    high, middle, low = (bind(wide * factor) for factor in factors)
    first, rest = _rounded(high, bind)
    second, rest = _rounded(bind(rest + middle), bind)
    r = bind(tirx.Cast("float32", (rest + low) * double(math.pi / 2)))
    return bind(first + second), r


def _rounded(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """The lowest bits of the integer nearest to a float64, and what is left of x."""
    rounded = bind(x + double(_ROUNDER))
    rest = bind(x - bind(rounded - double(_ROUNDER)))
    return tirx.Cast("int32", tirx.reinterpret("int64", rounded)), rest


def _sine_and_cosine(r: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """sin(|r|) and cos(r) for |r| <= pi/4: neither is negative."""
    a = bind(magnitude(bits(r)))
    z = bind(a * a)
    cosine = number(1.0) - (number(0.5) * z - z * z * horner(_COS, z))
    return a + a * z * horner(_SIN, z), cosine


def _flipped(value: Expr, sign: Expr, quadrant: Expr) -> Expr:
    """`value` with a sign, flipped in the quadrants 2 and 3."""
    flip = (quadrant & integer(2)) << integer(30)
    return from_bits(bits(value) ^ sign ^ flip)


def _arc_sine(a: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """(large, p): p = asin(a), or asin(sqrt((1 - a) / 2)) where a > 1/2."""
    large = a > number(0.5)
    z = bind(tirx.Select(large, (number(1.0) - a) * number(0.5), a * a))
    s = bind(tirx.Select(large, tirx.sqrt(z), a))
    return large, bind(s + s * z * horner(_ASIN, z))


def _angle(low: Expr, high: Expr, bind: Bind) -> Expr:
    """atan(low / high) for 0 <= low <= high: from tan(pi/8) on by that of the angle from pi/4."""
    low, high = bind(low), bind(high)
    large = low > number(math.tan(math.pi / 8)) * high
    over = tirx.Select(large, low - high, low)
    under = tirx.Select(large, low + high, high)
    t = bind(over / under)
    z = bind(t * t)
    angle = t + t * z * horner(_ATAN, z)
    return tirx.Select(large, number(math.pi / 4) + angle, angle)
