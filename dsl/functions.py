"""Functions of the notation: selection, casts, element-wise functions, reductions."""

from __future__ import annotations

from typing import Any

from loopwright.dsl.dtypes import check_dtype
from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import (
    Cast,
    Expr,
    Reduce,
    Select,
    as_expr,
    binary,
    refuse_truth,
    sides,
    unary,
)


def where(cond: object, x: object, y: object) -> Expr:
    """`x` where `cond` holds, else `y`.

    Reads on either side may leave their tensor: such a read gives the nearest element, and the
    condition decides that it is not used.
    """
    refuse_truth(cond, "where: the condition")
    test = as_expr(cond)
    if test.dtype != "bool":
        raise NotationError(f"where: the condition is {test.dtype}, not a truth value")
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


def equal(x: object, y: object) -> Expr:
    """Return whether two elements, or two index expressions, are equal (`==` compares
    notation)."""
    return binary("eq", x, y)


def not_equal(x: object, y: object) -> Expr:
    """Return whether two elements, or two index expressions, differ."""
    return binary("ne", x, y)


def exp(x: object) -> Expr:
    """e to the power x."""
    return unary("exp", x)


def log(x: object) -> Expr:
    """The natural logarithm."""
    return unary("log", x)


def sqrt(x: object) -> Expr:
    """The square root."""
    return unary("sqrt", x)


def rsqrt(x: object) -> Expr:
    """One over the square root."""
    return unary("rsqrt", x)


def tanh(x: object) -> Expr:
    """The hyperbolic tangent."""
    return unary("tanh", x)


def sigmoid(x: object) -> Expr:
    """1 / (1 + exp(-x))."""
    return unary("sigmoid", x)


def erf(x: object) -> Expr:
    """The error function."""
    return unary("erf", x)


def floor(x: object) -> Expr:
    """The greatest integer that is not above x, as a float."""
    return unary("floor", x)


def abs(x: object) -> Expr:  # noqa: A001 - the field's name for it
    """The magnitude."""
    return unary("abs", x)


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
    result = binary(op, x, others[0])
    for other in others[1:]:
        result = binary(op, result, other)
    return result
