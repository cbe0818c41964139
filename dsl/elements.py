"""The operators and functions of elements: the name of each, and what it is in NumPy.

`codegen/tir`, `codegen/gpu` and `codegen/c` have the same names. An operator of the tables is in
the notation as soon as all of them have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _truncated_quotient(x: Array, y: Array) -> Array:
    """⌊|x / y|⌋ with the sign of x / y, as C divides; 0 by 0."""
    quotient = np.floor_divide(x, y)
    short = (quotient < 0) & (np.multiply(quotient, y) != x) & (np.not_equal(y, 0))
    return np.where(short, quotient + 1, quotient).astype(quotient.dtype)


def _power(x: Array, y: Array) -> Array:
    """x to the power y. NumPy has no integers to negative powers: these are 1 over the power, cut
    off."""
    if np.asarray(x).dtype.kind not in "iu":
        return np.asarray(np.power(x, y))
    one = np.where(np.abs(x) == 1, np.where(np.asarray(y) % 2 == 1, x, 1), 0)
    return np.where(np.asarray(y) < 0, one, np.power(x, np.maximum(y, 0))).astype(x.dtype)


FLOAT_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: np.vectorize(math.erf, otypes=[np.float64])(x),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
}
"""Functions of one element of a floating type."""

UNARY: dict[str, Callable[[Array], Array]] = {
    **FLOAT_FUNCTIONS,
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
}
FUNCTIONS_OF_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "min": np.minimum,
    "max": np.maximum,
    "pow": _power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "trunc_div": _truncated_quotient,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    **FUNCTIONS_OF_TWO,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
REDUCERS = ("sum", "max", "min", "prod")
"""Functions that make one element of many."""
COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""The binary operation of each reducer."""
STEPS = frozenset(
    ("floor", "ceil", "trunc", "round", "floordiv", "mod", "fmod")
    + ("lt", "le", "gt", "ge", "eq", "ne")
)
"""Functions of which a little more of an operand may make much of the result."""
