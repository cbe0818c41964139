"""Exponentials, logarithms, powers and what is made of them, of float32.

The polynomials are minimax in relative error, by Remez' exchange: `tools/minimax.py` prints them.
The argument reductions are the textbook ones (Muller, Elementary Functions, 3rd ed., ch. 11).
"""

from __future__ import annotations

import math

from tvm import tirx
from tvm.ir import Expr

from loopwright.codegen.tir.bindings import Bind
from loopwright.codegen.tir.float32 import (
    BIAS,
    MANTISSA,
    NAN_BITS,
    at_most,
    bits,
    clamp,
    double,
    from_bits,
    horner,
    integer,
    magnitude,
    number,
    power_of_two,
    with_sign_of,
)

# e^r = 1 + r + r^2 p(r) for |r| <= ln(2)/2; e^r - 1 to 2^-25.8.
_EXP = (0.49999997, 0.166665435, 0.0416672006, 0.008366514, 0.00138825225)
# log(1 + f) = f - f^2/2 + f^3 p(f) for 1 + f in [sqrt(1/2), sqrt(2)], to 2^-27.2.
_LOG = (
    0.333333313, -0.250008196, 0.200012267, -0.166233569,
    0.142017573, -0.13160181, 0.12761578, -0.0763449967,
)  # fmt: skip
# erf(x) = 1 - exp(-x p(x)) for 0 <= x <= 3.95, to 2^-24.2: half an ulp, from rounding 2/sqrt(pi).
_ERF = (
    1.12837923, 0.636619389, 0.102777831, -0.0191530641, -0.000160396201,
    0.00166702748, -0.000632836833, 0.000117641262, -9.25626409e-06,
)  # fmt: skip

# ln 2 in two parts; the first has 15 bits, so that its products with exponents are exact.
_LN2_HIGH = 45426 / 65536
_LN2_LOW = math.log(2) - _LN2_HIGH
# log10(2), likewise.
_LOG2_HIGH = 19728 / 65536
_LOG2_LOW = math.log10(2) - _LOG2_HIGH
# sinh(x) = x + x^3 p(x^2) for |x| <= 1, to 2^-25.2.
_SINH = (0.166667163, 0.00833028369, 0.000203721938)
# 2 atanh(s) / ln 2 = s p(s^2) for |s| <= 0.1716, by its series, to 2^-40.
_ATANH = tuple(2 / math.log(2) / (2 * k + 1) for k in range(8))
# Adding it to a float rounds that to an integer, which is then in the low bits.
_ROUNDER = 1.5 * 2.0**23
_ROUNDER_BITS = 0x4B400000  # of the float _ROUNDER
_WIDE_ROUNDER = 1.5 * 2.0**52  # the same for float64
_WIDE_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_SMALLEST_NORMAL = 2.0**-126
_SQRT_HALF_BITS = 0x3F3504F3


def exp(x: Expr, bind: Bind) -> Expr:
    """e^x within 1.3 ulp, denormal results included; exactly 0 below -104."""
    y, is_zero = _without_underflow(x, -104.0, bind)
    return _unless(is_zero, _exp_shifted(y, 89.0, 0, bind))


def exp_scaled(x: Expr, bind: Bind) -> Expr:
    """The same, where the machine multiplies by 2^n in one instruction."""
    x = bind(x)
    rounded, r = _reduce(at_most(x, 89.0, bind), 0, bind)
    n = bits(rounded) - integer(_ROUNDER_BITS)
    scaled = tirx.call_llvm_pure_intrin("float32", "llvm.ldexp", _exp_of_remainder(r), n)
    # Below the bound r may be anything: the instruction leaves such lanes out, without underflow.
    return _unless(x < number(-104.0), scaled)


def exp2(x: Expr, bind: Bind) -> Expr:
    """2^x within 1.6 ulp, denormal results included; exactly 0 below -151."""
    y, is_zero = _without_underflow(x, -151.0, bind)
    x = at_most(y, 129.0, bind)
    rounder = number(_ROUNDER + 2 * BIAS)
    rounded = bind(x + rounder)
    r = bind((x - bind(rounded - rounder)) * number(math.log(2)))
    return _unless(is_zero, _scaled(_exp_of_remainder(r), bits(rounded), bind))


def expm1(x: Expr, bind: Bind) -> Expr:
    """e^x - 1 within 2.5 ulp, small in relative error at 0 too."""
    # Half of it, as e^x may be 2^128.
    x = bind(x)
    rounded, r = _reduce(clamp(x, -80.0, 89.0, bind), BIAS - 1, bind)
    scale = bind(power_of_two(bits(rounded)))
    half = (r + r * r * horner(_EXP, r)) * scale + (scale - number(0.5))
    return tirx.Select(magnitude(bits(x)) < number(2.0**-25), x, half * number(2.0))


def log(x: Expr, bind: Bind) -> Expr:
    """The natural logarithm within 1 ulp; -inf at both zeros, NaN below."""
    x = bind(x)
    e, f, tail = _logarithm(x, bind)
    tail = tail + e * number(_LN2_LOW)
    return _of_positive(x, e * number(_LN2_HIGH) + (f + tail))


def log2(x: Expr, bind: Bind) -> Expr:
    """The logarithm to base 2 within 2.5 ulp; exact at powers of 2."""
    x = bind(x)
    e, f, tail = _logarithm(x, bind)
    return _of_positive(x, e + (f + tail) * number(1 / math.log(2)))


def log10(x: Expr, bind: Bind) -> Expr:
    """The logarithm to base 10 within 2.5 ulp."""
    x = bind(x)
    e, f, tail = _logarithm(x, bind)
    low = (f + tail) * number(1 / math.log(10)) + e * number(_LOG2_LOW)
    return _of_positive(x, e * number(_LOG2_HIGH) + low)


def log1p(x: Expr, bind: Bind) -> Expr:
    """The natural logarithm of 1 + x within 2.5 ulp, of tiny x too."""
    x = bind(x)
    sum_ = bind(x + number(1.0))
    lost = bind(x - bind(sum_ - number(1.0)))  # by rounding the sum
    usual = tirx.And(sum_ > number(0.0), sum_ < number(math.inf))
    more = tirx.Select(usual, lost / sum_, number(0.0))
    return tirx.Select(tirx.EQ(sum_, number(1.0)), x, log(sum_, bind) + more)


def tanh(x: Expr, bind: Bind) -> Expr:
    """(e^2|x| - 1) / (e^2|x| + 1) with the sign of x, within 2.7 ulp; +-1 from 9.1 on."""
    raw = bind(bits(x))
    twice = at_most(magnitude(raw), 10.0, bind) * number(2.0)
    em = bind(_expm1(twice, bind))
    return with_sign_of(raw, em / (em + number(2.0)))


def sigmoid(x: Expr, bind: Bind) -> Expr:
    """1 / (1 + e^-x) within 2.5 ulp; 0 from -88.4 down, where it is under 4.2e-39."""
    # e^-x may be inf, by the factor 2^128, and need not be exact once 1 + e^-x rounds to 1.
    rounded, r = _reduce(clamp(-x, -87.0, 89.0, bind), BIAS, bind)
    e_x = _exp_of_remainder(r) * power_of_two(bits(rounded))
    return number(1.0) / (number(1.0) + e_x)


def erf(x: Expr, bind: Bind) -> Expr:
    """The error function within 3.2 ulp; +-1 from 3.95 on.

    -log(1 - erf(x)) is nearly a parabola, and an error in it counts less the larger it is: one
    polynomial serves the whole range, tiny arguments too.
    """
    raw = bind(bits(x))
    a = at_most(magnitude(raw), 3.95, bind)
    return with_sign_of(raw, _expm1(-a * horner(_ERF, a), bind))


def sinh(x: Expr, bind: Bind) -> Expr:
    """(e^x - e^-x) / 2 within 2.5 ulp; a polynomial for |x| <= 1."""
    raw = bind(bits(x))
    a = bind(magnitude(raw))
    half = bind(_exp_shifted(a, 90.0, -1, bind))
    z = bind(a * a)
    near = a + a * z * horner(_SINH, z)
    return with_sign_of(raw, tirx.Select(a > number(1.0), half - number(0.25) / half, near))


def cosh(x: Expr, bind: Bind) -> Expr:
    """(e^x + e^-x) / 2 within 2.5 ulp."""
    half = bind(_exp_shifted(magnitude(bits(x)), 90.0, -1, bind))
    return half + number(0.25) / half


def asinh(x: Expr, bind: Bind) -> Expr:
    """log(|x| + sqrt(x^2 + 1)) with the sign of x, within 3.5 ulp."""
    raw = bind(bits(x))
    a = bind(magnitude(raw))
    z = bind(a * a)
    more = a + z / (number(1.0) + tirx.sqrt(z + number(1.0)))
    return with_sign_of(raw, _log1p_or_twice(a, more, bind))


def acosh(x: Expr, bind: Bind) -> Expr:
    """log(x + sqrt(x^2 - 1)) within 3.5 ulp; NaN below 1."""
    x = bind(x)
    t = bind(x - number(1.0))
    value = _log1p_or_twice(x, t + tirx.sqrt(t * t + number(2.0) * t), bind)
    return tirx.Select(x < number(1.0), from_bits(integer(NAN_BITS)), value)


def atanh(x: Expr, bind: Bind) -> Expr:
    """log((1 + |x|) / (1 - |x|)) / 2 with the sign of x, within 3.5 ulp; NaN beyond 1."""
    raw = bind(bits(x))
    a = bind(magnitude(raw))
    ratio = bind((a + a) / (number(1.0) - a))
    return with_sign_of(raw, number(0.5) * log1p(ratio, bind))


def power(x: Expr, y: Expr, bind: Bind) -> Expr:
    """x to the power y within 1.5 ulp, with all that C says of zeros, infinities and NaN.

    2^(y log2|x|), whose exponent is worked out in float64: an error in it counts 128 times.
    """
    x, y = bind(x), bind(y)
    raw = bind(bits(x))
    a = bind(magnitude(raw))
    wide = bind(tirx.Cast("float64", y) * _wide_log2(a, bind))
    wide = bind(tirx.Select(wide > double(160.0), double(160.0), wide))
    wide = bind(tirx.Select(wide < double(-160.0), double(-160.0), wide))
    rounder = double(_WIDE_ROUNDER + 2 * BIAS)
    rounded = bind(wide + rounder)
    r = bind(tirx.Cast("float32", (wide - bind(rounded - rounder)) * double(math.log(2))))
    exponent = tirx.Cast("int32", tirx.reinterpret("int64", rounded))
    value = bind(_scaled(_exp_of_remainder(r), exponent, bind))
    half = bind(y * number(0.5))
    whole, even = tirx.EQ(tirx.floor(y), y), tirx.EQ(tirx.floor(half), half)
    odd = tirx.And(whole, tirx.Not(even))
    signed = tirx.Select(tirx.And(raw < integer(0), odd), -value, value)
    negative = tirx.And(x < number(0.0), x > number(-math.inf))
    signed = tirx.Select(tirx.And(negative, tirx.Not(whole)), from_bits(integer(NAN_BITS)), signed)
    infinite = tirx.EQ(magnitude(bits(y)), number(math.inf))
    one = tirx.Or(tirx.EQ(y, number(0.0)), tirx.EQ(x, number(1.0)))
    one = tirx.Or(one, tirx.And(tirx.EQ(a, number(1.0)), infinite))
    return tirx.Select(one, number(1.0), signed)


def _wide_log2(a: Expr, bind: Bind) -> Expr:
    """log2(a) as float64, to 2^-36, for a >= 0: e + 2 atanh(s) / ln 2, s = (m - 1) / (m + 1) for
    a = 2^e m with m between sqrt(1/2) and sqrt(2)."""
    wide = bind(tirx.Cast("float64", a))
    raw = bind(tirx.reinterpret("int64", wide))
    e = bind((raw - tirx.IntImm("int64", _WIDE_SQRT_HALF_BITS)) >> tirx.IntImm("int64", 52))
    m = bind(tirx.reinterpret("float64", raw - (e << tirx.IntImm("int64", 52))))
    s = bind((m - double(1.0)) / (m + double(1.0)))
    value = s * horner(_ATANH, bind(s * s), "float64")
    value = tirx.Cast("float64", tirx.Cast("int32", e)) + value
    value = tirx.Select(wide > double(0.0), value, double(-math.inf))
    return tirx.Select(wide < double(math.inf), value, wide)


def _without_underflow(x: Expr, low: float, bind: Bind) -> tuple[Expr, Expr]:
    """x, or 0 below `low`, and whether it is. A product that underflows takes a hundred cycles, as
    masked scores would that are far below all others."""
    x = bind(x)
    is_zero = x < number(low)
    return bind(tirx.Select(is_zero, number(0.0), x)), is_zero


def _unless(is_zero: Expr, value: Expr) -> Expr:
    return tirx.Select(is_zero, number(0.0), value)


def _exp_shifted(x: Expr, high: float, shift: int, bind: Bind) -> Expr:
    """2^shift e^x, for x up to `high` and above -104."""
    rounded, r = _reduce(at_most(x, high, bind), 2 * BIAS + shift, bind)
    return _scaled(_exp_of_remainder(r), bits(rounded), bind)


def _scaled(x: Expr, exponent: Expr, bind: Bind) -> Expr:
    """x 2^n for n + 254 in the low bits of `exponent`. 2^n overflows before the result does, and
    underflows: two factors of about 2^(n/2)."""
    exponent = bind(exponent)
    half = bind(exponent >> integer(1))
    return x * power_of_two(half) * power_of_two(exponent - half)


def _logarithm(x: Expr, bind: Bind) -> tuple[Expr, Expr, Expr]:
    """(e, f, tail): x = 2^e (1 + f), sqrt(1/2) <= 1 + f <= sqrt(2), log(1 + f) = f + tail; x >
    0."""
    denormal = x < number(_SMALLEST_NORMAL)
    raw = bind(bits(tirx.Select(denormal, x * number(2.0**MANTISSA), x)))
    shift = tirx.Select(denormal, number(MANTISSA), number(0.0))
    exponent = bind((raw - integer(_SQRT_HALF_BITS)) >> integer(MANTISSA))
    f = bind(from_bits(raw - (exponent << integer(MANTISSA))) - number(1.0))
    e = bind(tirx.Cast("float32", exponent) - shift)
    return e, f, f * f * (f * horner(_LOG, f) - number(0.5))


def _of_positive(x: Expr, value: Expr) -> Expr:
    """A logarithm of x: `value` where x is positive and finite."""
    others = tirx.Select(x < number(0.0), from_bits(integer(NAN_BITS)), number(-math.inf))
    finite = tirx.Select(x > number(0.0), value, others)
    return tirx.Select(x < number(math.inf), finite, x)  # inf and NaN are their own logarithms


def _log1p_or_twice(a: Expr, more: Expr, bind: Bind) -> Expr:
    """log(1 + more), or log(2 a) where a is so large that its square may overflow."""
    large = a > number(1e9)
    value = log1p(bind(tirx.Select(large, a, more)), bind)
    return value + tirx.Select(large, number(math.log(2)), number(0.0))


def _expm1(y: Expr, bind: Bind) -> Expr:
    """e^y - 1 for -87 < y < 88, small in relative error at 0 too."""
    rounded, r = _reduce(bind(y), BIAS, bind)
    scale = bind(power_of_two(bits(rounded)))
    return (r + r * r * horner(_EXP, r)) * scale + (scale - number(1.0))


def _reduce(y: Expr, bias: int, bind: Bind) -> tuple[Expr, Expr]:
    """(rounded, r): y = n ln 2 + r, |r| <= ln(2)/2; n + bias in the low bits of `rounded`."""
    rounder = number(_ROUNDER + bias)
    rounded = bind(y * number(1 / math.log(2)) + rounder)
    n = bind(rounded - rounder)  # unbound, TVM would simplify (a + b) - b to a
    return rounded, bind(y - n * number(_LN2_HIGH) - n * number(_LN2_LOW))


def _exp_of_remainder(r: Expr) -> Expr:
    return horner((1.0, 1.0, *_EXP), r)
