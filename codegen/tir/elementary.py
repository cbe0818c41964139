"""Elementary functions as TIR expressions that the vectorizer widens.

TVM's own `exp`, `log`, `sin`, `erf` become one call of the C library per lane. Those here are
arithmetic, selects and bit casts alone, so in a vectorized loop they stay vectors, on any target
and without a library; `apply_scaling` alone has an instruction of AVX-512. Error bounds are in ulp
(units in the last place of the float32 result), measured over the float32 arguments, with and
without fused multiply-add:

    exp 1.3    exp2 1.6   expm1 2.5  log 1      log2 2.5   log10 2.5  log1p 2.5  pow 1.5
    sinh 2.5   cosh 2.5   tanh 2.7   asinh 3.5  acosh 3.5  atanh 3.5
    sin 1.6    cos 1.6    tan 3.5    asin 2.5   acos 2.5   atan 3     atan2 3.5
    sigmoid 2.5           erf 3.2    rsqrt 1.5  sqrt 0.5

NaN propagates, infinities and signed zeros give what C says. The only results that are lost are
those of `sigmoid` under 4.2e-39, which become 0. `fmod` alone is the C library's.

Each function takes a `bind` for the values that it uses twice (`loopwright.codegen.tir.bindings`).
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr

from loopwright.codegen.tir import exponential, trigonometry
from loopwright.codegen.tir.bindings import Bind, dtype_of
from loopwright.codegen.tir.convert import convert
from loopwright.codegen.tir.float32 import bits, magnitude, number, with_sign_of
from loopwright.dsl.errors import NotationError

Functions = Callable[..., Expr]
"""Function that makes the elementary function of a name of operands: f(name, *operands, bind)."""


_WHOLE = 2.0**23
"""From here on every float32 is an integer."""


def nearest(x: Expr, bind: Bind) -> Expr:
    """The nearest integer, the even one of two (TVM does not vectorize its own)."""
    raw = bind(bits(x))
    a = bind(magnitude(raw))
    rounded = bind(bind(a + number(_WHOLE)) - number(_WHOLE))
    return with_sign_of(raw, tirx.Select(a < number(_WHOLE), rounded, a))


def _of_tvm(function: Callable[[Expr], Expr]) -> Functions:
    """An instruction, but a libm call before SSE4.1."""
    return lambda x, bind: function(x)


ELEMENTARY: dict[str, Functions] = {
    **{
        name: getattr(exponential, name)
        for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sinh", "cosh")
        + ("tanh", "asinh", "acosh", "atanh", "sigmoid", "erf")
    },
    **{
        name: getattr(trigonometry, name)
        for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
    },
    "pow": exponential.power,
    "sqrt": _of_tvm(tirx.sqrt),  # correctly rounded: an instruction everywhere
    # The estimates that processors offer have 12 bits or so.
    "rsqrt": lambda x, bind: number(1.0) / tirx.sqrt(x),
    "floor": _of_tvm(tirx.floor),
    "ceil": _of_tvm(tirx.ceil),
    "trunc": _of_tvm(tirx.trunc),
    "round": nearest,
    "fmod": lambda x, y, bind: libm("fmod", x, y),
}
"""The functions of float32, by name: f(x, bind), f(x, y, bind)."""

# What is no call of libm in float64; TVM's own tanh of float64 loses all its digits near 0.
_FLOAT64: dict[str, Callable[[Expr], Expr]] = {
    "sqrt": tirx.sqrt,
    "rsqrt": tirx.rsqrt,
    "sigmoid": tirx.sigmoid,
    "floor": tirx.floor,
    "ceil": tirx.ceil,
    "trunc": tirx.trunc,
    "round": tirx.nearbyint,
    "exp": tirx.exp,
    "log": tirx.log,
    "erf": tirx.erf,
}

C_NAMES = {"abs": "fabs", "round": "rint"}
"""Functions that C calls otherwise."""


def apply(name: str, *operands: Expr, bind: Bind) -> Expr:
    """The elementary function `name` of operands, or "abs", in their floating type.

    float16 and bfloat16 are worked out in float32 and rounded once; float64 calls libm, except for
    roots and what cuts off fractions. Raises `NotationError` for other names and types.
    """
    dtype = dtype_of(operands[0])
    if name == "abs":
        return tirx.abs(*operands)
    if name not in ELEMENTARY:
        raise NotationError(f"no function {name!r}; there are {', '.join(ELEMENTARY)}")
    if dtype == "float32":
        return ELEMENTARY[name](*operands, bind)
    if dtype == "float64":
        return _FLOAT64[name](*operands) if name in _FLOAT64 else libm(name, *operands)
    if dtype in ("float16", "bfloat16"):
        wide = [convert(x, "float32") for x in operands]
        return convert(ELEMENTARY[name](*wide, bind), dtype, bind)
    raise NotationError(f"{name} of {dtype}: only floating types have it; convert the argument")


def apply_scaling(name: str, *operands: Expr, bind: Bind) -> Expr:
    """`apply` for AVX-512, which multiplies vectors by powers of two (vscalefps)."""
    if name == "exp" and dtype_of(operands[0]) == "float32":
        return exponential.exp_scaled(operands[0], bind)
    return apply(name, *operands, bind=bind)


def libm(name: str, *operands: Expr, bind: Bind | None = None) -> Expr:
    """A call of the C library, or what takes one call and a division."""
    dtype = dtype_of(operands[0])
    one = tirx.FloatImm(dtype, 1.0)
    if name == "sigmoid":
        return one / (one + libm("exp", -operands[0]))
    if name == "rsqrt":
        return one / libm("sqrt", *operands)
    name = C_NAMES.get(name, name)
    return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *operands)
