"""Elementary functions as TIR expressions that the vectorizer widens.

TVM's own `exp`, `log`, `tanh`, `erf` become one call of the C library per lane. Those here are
arithmetic, selects and bit casts alone, so in a vectorized loop they stay vectors, on any target
and without a library; `apply_scaling` alone has an instruction of AVX-512. Error bounds are in ulp
(units in the last place of the float32 result), measured over the float32 arguments, with and
without fused multiply-add:

    exp 1.3    log 1    tanh 2.7    sigmoid 2.5    erf 3.2    rsqrt 1.5    sqrt 0.5

NaN propagates, infinities and signed zeros give what C says. The only results that are lost are
those of `sigmoid` under 4.2e-39, which become 0.

The polynomials are minimax in relative error, by Remez' exchange: `tools/minimax.py` prints them.
The argument reductions are the textbook ones (Muller, Elementary Functions, 3rd ed., ch. 11).

Each function takes a `bind` for the values that it uses twice (`loopwright.codegen.tir.bindings`).
Without one it binds by `Let`, which compiles fast for a single function only, not for functions of
functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr

from loopwright.codegen.tir.bindings import Bind, dtype_of, with_lets
from loopwright.codegen.tir.convert import convert
from loopwright.codegen.tir.indices import number
from loopwright.dsl.errors import NotationError

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
# Adding it to a float rounds that to an integer, which is then in the low bits.
_ROUNDER = 1.5 * 2.0**23
_ROUNDER_BITS = 0x4B400000  # of the float _ROUNDER
_BIAS = 127  # of a float32's exponent
_MANTISSA = 23  # its bits
_SMALLEST_NORMAL = 2.0**-126
_SQRT_HALF_BITS = 0x3F3504F3
_NAN_BITS = 0x7FC00000
_MAGNITUDE = 0x7FFFFFFF  # all bits but the sign


_Function = Callable[[Expr, Bind], Expr]
Functions = Callable[[str, Expr, Bind], Expr]
"""Function that makes the elementary function of a name of a value."""


def _binds_by_let(function: _Function) -> Callable[..., Expr]:
    """Makes the argument `bind` optional."""

    @functools.wraps(function)
    def call(x: Expr, bind: Bind | None = None) -> Expr:
        return function(x, bind) if bind else with_lets(lambda lets: function(x, lets))

    return call


@_binds_by_let
def exp(x: Expr, bind: Bind) -> Expr:
    """e^x within 1.3 ulp, denormal results included; exactly 0 from -104 down."""
    rounded, r = _reduce(_clamp(x, -104.0, 89.0, bind), 2 * _BIAS, bind)
    # 2^n overflows before the result does, and underflows: two factors of about 2^(n/2).
    bits = bind(_bits(rounded))
    half = bind(bits >> number(1))
    return _exp_of_remainder(r) * _power_of_two(half) * _power_of_two(bits - half)


def _exp_scaled(x: Expr, bind: Bind) -> Expr:
    """The same, where the machine multiplies by 2^n in one instruction."""
    rounded, r = _reduce(_clamp(x, -104.0, 89.0, bind), 0, bind)
    n = _bits(rounded) - number(_ROUNDER_BITS)
    return tirx.call_llvm_pure_intrin("float32", "llvm.ldexp", _exp_of_remainder(r), n)


@_binds_by_let
def log(x: Expr, bind: Bind) -> Expr:
    """The natural logarithm within 1 ulp; -inf at both zeros, NaN below.

    x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); log x = e ln 2 + log(1 + f).
    """
    x = bind(x)
    denormal = x < _float(_SMALLEST_NORMAL)
    bits = bind(_bits(tirx.Select(denormal, x * _float(2.0**_MANTISSA), x)))
    shift = tirx.Select(denormal, _float(_MANTISSA), _float(0.0))
    exponent = bind((bits - number(_SQRT_HALF_BITS)) >> number(_MANTISSA))
    f = bind(_from_bits(bits - (exponent << number(_MANTISSA))) - _float(1.0))
    e = bind(tirx.Cast("float32", exponent) - shift)
    tail = f * f * (f * _horner(_LOG, f) - _float(0.5)) + e * _float(_LN2_LOW)
    positive = e * _float(_LN2_HIGH) + (f + tail)
    others = tirx.Select(x < _float(0.0), _from_bits(number(_NAN_BITS)), _float(-math.inf))
    finite = tirx.Select(x > _float(0.0), positive, others)
    return tirx.Select(x < _float(math.inf), finite, x)  # inf and NaN are their own logarithms


@_binds_by_let
def tanh(x: Expr, bind: Bind) -> Expr:
    """(e^2|x| - 1) / (e^2|x| + 1) with the sign of x, within 2.7 ulp; +-1 from 9.1 on."""
    bits = bind(_bits(x))
    twice = _at_most(_magnitude(bits), 10.0, bind) * _float(2.0)
    em = bind(_expm1(twice, bind))
    return _with_sign_of(bits, em / (em + _float(2.0)))


@_binds_by_let
def sigmoid(x: Expr, bind: Bind) -> Expr:
    """1 / (1 + e^-x) within 2.5 ulp; 0 from -88.4 down, where it is under 4.2e-39."""
    # e^-x may be inf, by the factor 2^128, and need not be exact once 1 + e^-x rounds to 1.
    rounded, r = _reduce(_clamp(-x, -87.0, 89.0, bind), _BIAS, bind)
    e_x = _exp_of_remainder(r) * _power_of_two(_bits(rounded))
    return _float(1.0) / (_float(1.0) + e_x)


@_binds_by_let
def erf(x: Expr, bind: Bind) -> Expr:
    """The error function within 3.2 ulp; +-1 from 3.95 on.

    -log(1 - erf(x)) is nearly a parabola, and an error in it counts less the larger it is: one
    polynomial serves the whole range, tiny arguments too.
    """
    bits = bind(_bits(x))
    a = _at_most(_magnitude(bits), 3.95, bind)
    return _with_sign_of(bits, _expm1(-a * _horner(_ERF, a), bind))


@_binds_by_let
def sqrt(x: Expr, bind: Bind) -> Expr:
    """The square root, correctly rounded: an instruction everywhere."""
    return tirx.sqrt(x)


@_binds_by_let
def rsqrt(x: Expr, bind: Bind) -> Expr:
    """1 / sqrt(x) within 1.5 ulp (the estimates that processors offer have 12 bits or so)."""
    return _float(1.0) / tirx.sqrt(x)


@_binds_by_let
def floor(x: Expr, bind: Bind) -> Expr:
    """The largest integer that is not above; an instruction, but a libm call before SSE4.1."""
    return tirx.floor(x)


ELEMENTARY: dict[str, Callable[..., Expr]] = {
    f.__name__: f for f in (exp, log, tanh, sigmoid, erf, sqrt, rsqrt, floor)
}
"""The functions of float32, by name: f(x, bind=None)."""

# Libm's, lane by lane. TVM's own tanh of float64 loses all its digits near 0.
_FLOAT64: dict[str, Callable[[Expr], Expr]] = {
    **{name: getattr(tirx, name) for name in ELEMENTARY},
    "tanh": lambda x: tirx.call_pure_extern("float64", "tanh", x),
}


def apply(name: str, x: Expr, bind: Bind | None = None) -> Expr:
    """The elementary function `name` of `x`, or "abs", in the floating type of `x`.

    float16 and bfloat16 are worked out in float32 and rounded once; float64 calls libm, except for
    sqrt, rsqrt and floor. Raises `NotationError` for other names and types.
    """
    dtype = dtype_of(x)
    if name == "abs":
        return tirx.abs(x)
    if name not in ELEMENTARY:
        raise NotationError(f"no function {name!r}; there are {', '.join(ELEMENTARY)}")
    if dtype == "float32":
        return ELEMENTARY[name](x, bind)
    if dtype == "float64":
        return _FLOAT64[name](x)
    if dtype in ("float16", "bfloat16"):
        return convert(ELEMENTARY[name](convert(x, "float32"), bind), dtype, bind)
    raise NotationError(f"{name} of {dtype}: only floating types have it; convert the argument")


def apply_scaling(name: str, x: Expr, bind: Bind) -> Expr:
    """`apply` for AVX-512, which multiplies vectors by powers of two (vscalefps)."""
    scaled = name == "exp" and dtype_of(x) == "float32"
    return _exp_scaled(x, bind) if scaled else apply(name, x, bind)


def libm(name: str, x: Expr, bind: Bind | None = None) -> Expr:
    """A call of the C library, or what takes one call and a division."""
    dtype = dtype_of(x)
    one = tirx.FloatImm(dtype, 1.0)
    if name == "sigmoid":
        return one / (one + libm("exp", -x))
    if name == "rsqrt":
        return one / libm("sqrt", x)
    name = "fabs" if name == "abs" else name
    return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", x)


def _expm1(y: Expr, bind: Bind) -> Expr:
    """e^y - 1 for -87 < y < 88, small in relative error at 0 too."""
    rounded, r = _reduce(bind(y), _BIAS, bind)
    scale = bind(_power_of_two(_bits(rounded)))
    return (r + r * r * _horner(_EXP, r)) * scale + (scale - _float(1.0))


def _reduce(y: Expr, bias: int, bind: Bind) -> tuple[Expr, Expr]:
    """(rounded, r): y = n ln 2 + r, |r| <= ln(2)/2; n + bias in the low bits of `rounded`."""
    rounder = _float(_ROUNDER + bias)
    rounded = bind(y * _float(1 / math.log(2)) + rounder)
    n = bind(rounded - rounder)  # unbound, TVM would simplify (a + b) - b to a
    return rounded, bind(y - n * _float(_LN2_HIGH) - n * _float(_LN2_LOW))


def _exp_of_remainder(r: Expr) -> Expr:
    return _horner((1.0, 1.0, *_EXP), r)


def _horner(coefficients: tuple[float, ...], x: Expr) -> Expr:
    """c0 + x (c1 + x (c2 + ...)); LLVM fuses each step where the machine can."""
    value = _float(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + _float(coefficient)
    return value


def _clamp(x: Expr, low: float, high: float, bind: Bind) -> Expr:
    """x between the bounds; NaN stays."""
    x = _at_most(x, high, bind)
    return bind(tirx.Select(x < _float(low), _float(low), x))


def _at_most(x: Expr, high: float, bind: Bind) -> Expr:
    # Not tirx.Min, whose answer for NaN depends on the order of its operands.
    x = bind(x)
    return bind(tirx.Select(x > _float(high), _float(high), x))


def _magnitude(bits: Expr) -> Expr:
    return _from_bits(bits & number(_MAGNITUDE))


def _with_sign_of(bits: Expr, value: Expr) -> Expr:
    """`value` with the sign in `bits` (tirx.copysign is not vectorized)."""
    return _from_bits((_bits(value) & number(_MAGNITUDE)) | (bits & number(~_MAGNITUDE)))


def _power_of_two(exponent: Expr) -> Expr:
    """2^(k - 127), k from 0 to 255 (there it is inf) in the 9 lowest bits of `exponent`."""
    return _from_bits(exponent << number(_MANTISSA))


def _bits(x: Expr) -> Expr:
    return tirx.reinterpret("int32", x)


def _from_bits(bits: Expr) -> Expr:
    return tirx.reinterpret("float32", bits)


def _float(value: float) -> Expr:
    return tirx.FloatImm("float32", value)
