"""Functions of the notation: selection, casts, element-wise functions, reductions."""

from __future__ import annotations

import functools
from typing import Any, Protocol

from loopwright.dsl.dtypes import check_dtype, is_float, item_bytes
from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import Cast, Expr, Reduce, Select, as_expr, binary, power, sides, unary
from loopwright.dsl.valueless import refuse_truth

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cast",
    "ceil",
    "cos",
    "cosh",
    "equal",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fmod",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "min",
    "not_equal",
    "pow",
    "prod",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "trunc_div",
    "unpack",
    "where",
]


def where(cond: object, x: object, y: object) -> Expr:
    """`x` where `cond` holds, else `y`.

    Reads on either side may leave their tensor: such a read gives the nearest element, and the
    condition decides that it is not used.
    """
    refuse_truth(cond, "where: the condition")
    test = as_expr(cond)
    if test.dtype != "bool":
        raise NotationError(
            f"where: the condition is {test.dtype}, not a truth value: compare it, as A[i] > 0"
        )
    a, b = sides(x, y)
    if a.dtype != b.dtype:
        raise NotationError(f"where: the sides are {a.dtype} and {b.dtype}; cast one")
    return Select(test, a, b)


def cast(x: object, dtype: str) -> Expr:
    """Convert to another element type: floats to integers truncate, narrow integers wrap."""
    refuse_truth(x, "cast: the value")
    value, name = as_expr(x), check_dtype(dtype)
    if value.dtype == name:
        return value
    if name == "bool":
        return binary("ne", value, 0)
    return Cast(value, name)


def unpack(x: object, bits: int, place: object, signed: bool = False) -> Expr:
    """One of the numbers of a few bits that an integer element holds, as int32.

    Places count from the lowest bits: `lw.unpack(P[k // 2, n], 4, k % 2)` is element k of numbers
    of four bits, two in a byte. `signed` numbers are in two's complement.

    Raises `NotationError` unless `bits` divide the element, and are fewer than 32.
    """
    value = as_expr(x)
    whole = 0 if is_float(value.dtype) or value.dtype == "bool" else 8 * item_bytes(value.dtype)
    if not 0 < whole <= 32 or bits not in (1, 2, 4, 8, 16) or bits > whole:
        raise NotationError(
            f"unpack: {bits!r} bits of {value.dtype}; give 1, 2, 4, 8 or 16 bits of an integer of "
            "at most 32"
        )
    number = cast(value, "int32") >> (cast(place, "int32") * bits) & (1 << bits) - 1
    half = 1 << (bits - 1)
    return (number ^ half) - half if signed else number


def equal(x: object, y: object) -> Expr:
    """Equality of two elements or indices; `==` compares the notation."""
    return binary("eq", x, y)


def not_equal(x: object, y: object) -> Expr:
    """Return whether two elements, or two index expressions, differ."""
    return binary("ne", x, y)


class _OfOne(Protocol):
    def __call__(self, x: object) -> Expr: ...


def _unary(name: str, meaning: str) -> _OfOne:
    """A function of one element."""

    def function(x: object) -> Expr:
        return unary(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    return function


exp = _unary("exp", "e to the power x.")
log = _unary("log", "The natural logarithm.")
sqrt = _unary("sqrt", "The square root.")
rsqrt = _unary("rsqrt", "One over the square root.")
tanh = _unary("tanh", "The hyperbolic tangent.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
erf = _unary("erf", "The error function.")
floor = _unary("floor", "The greatest integer that is not above x, as a float.")
exp2 = _unary("exp2", "2 to the power x.")
expm1 = _unary("expm1", "e to the power x, less 1; exact near 0.")
log2 = _unary("log2", "The logarithm to base 2.")
log10 = _unary("log10", "The logarithm to base 10.")
log1p = _unary("log1p", "The natural logarithm of 1 + x; exact near 0.")
sin = _unary("sin", "The sine; x in radians.")
cos = _unary("cos", "The cosine; x in radians.")
tan = _unary("tan", "The tangent; x in radians.")
asin = _unary("asin", "The angle between -π/2 and π/2 whose sine is x.")
acos = _unary("acos", "The angle between 0 and π whose cosine is x.")
atan = _unary("atan", "The angle between -π/2 and π/2 whose tangent is x.")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
asinh = _unary("asinh", "The inverse of `sinh`.")
acosh = _unary("acosh", "The inverse of `cosh`, from 0 up; NaN below x = 1.")
atanh = _unary("atanh", "The inverse of `tanh`.")
ceil = _unary("ceil", "The least integer that is not below x, as a float.")
trunc = _unary("trunc", "x without its fraction, as a float.")
round = _unary("round", "The nearest integer, as a float; of two, the even one.")  # noqa: A001
abs = _unary("abs", "The magnitude.")  # noqa: A001


def sign(x: object) -> Expr:
    """-1, 0 or 1, in the type of x; NaN of NaN."""
    value = as_expr(x)
    if value.dtype.startswith("uint"):
        return where(value > 0, 1, value)
    return where(value > 0, 1, where(value < 0, -1, value))


def isnan(x: object) -> Expr:
    """Return whether an element is NaN."""
    return binary("ne", x, x)


def isinf(x: object) -> Expr:
    """Return whether an element is an infinity."""
    value = as_expr(x)
    if not is_float(value.dtype):
        return binary("ne", value, value)
    return binary("eq", abs(value), float("inf"))


def pow(x: object, y: object) -> Expr:  # noqa: A001
    """x to the power y, as `x ** y`; of integers, negative powers are cut off to integers."""
    return power(x, y)


def atan2(y: object, x: object) -> Expr:
    """The angle of the point (x, y), from -π to π."""
    return binary("atan2", y, x)


def fmod(x: object, y: object) -> Expr:
    """Remainder of x / y, with the sign of x, as in C; `x % y` has the sign of y, as in Python.

    Of integers by 0, it is 0.
    """
    return binary("fmod", x, y)


def trunc_div(x: object, y: object) -> Expr:
    """x / y without its fraction, of integers, as in C; `x // y` is the floor. By 0, it is 0."""
    return binary("trunc_div", x, y)


def relu(x: object) -> Expr:
    """max(x, 0)."""
    return binary("max", x, 0)


def sum(x: object) -> Expr:  # noqa: A001
    """Sum over the indices that are absent on the left: `S[i] = lw.sum(X[i, k])`, same as `+=`."""
    return _reduction("sum", x)


def prod(x: object) -> Expr:
    """Multiply over the indices that are absent on the left."""
    return _reduction("prod", x)


def max(x: object, *others: object) -> Expr:  # noqa: A001
    """With one argument the greatest over the absent indices; with more, the greatest of them."""
    return _extreme("max", x, others)


def min(x: object, *others: object) -> Expr:  # noqa: A001
    """With one argument the least over the absent indices; with more, the least of them."""
    return _extreme("min", x, others)


def _reduction(op: str, x: object) -> Expr:
    value = as_expr(x)
    if value.dtype == "bool":
        raise NotationError(f"{op} over truth values: cast them first")
    return Reduce(op, value)


def _extreme(op: str, x: object, others: tuple[Any, ...]) -> Expr:
    if not others:
        return _reduction(op, x)
    first, *rest = others
    return functools.reduce(functools.partial(binary, op), rest, binary(op, x, first))
