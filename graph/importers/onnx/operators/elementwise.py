"""Operators on elements: each element of the result depends on one of each input, broadcast."""

from __future__ import annotations

import functools
import math
import operator as operators
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float, limits
from loopwright.dsl.expr import Expr
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.foreign import reinterpreted
from loopwright.graph.importers.onnx.halves import in_float32, rounded_once
from loopwright.graph.importers.onnx.operators.shapes import reshaped
from loopwright.graph.importers.onnx.values import Value, dtype_of, shape_of

Function = Callable[..., Any]


def _aligned(call: Call) -> Call:
    """A call whose second input broadcasts as NumPy's does; before opset 7 an axis said where."""
    if call.version >= 7 or call.get("axis") is None:
        return call
    shape, own = call.shape(0), call.shape(1)
    behind = len(shape) - call.axis() - len(own)
    wide = reshaped(call, call.value(1), (*own, *(1,) * behind))
    return replace(call, inputs=(call.value(0), wide))


def within(x: Expr, low: float, high: float) -> Expr:
    """The element within bounds."""
    return f.min(f.max(x, low), high)


_RULES: dict[str, Function] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b if a.dtype != "bool" else a & b,
    "Neg": lambda a: -a,
    "Exp": f.exp,
    "Log": f.log,
    "Sqrt": f.sqrt,
    "Erf": f.erf,
    "Floor": f.floor,
    "Ceil": lambda a: f.ceil(a),
    "Round": lambda a: f.round(a),
    "Sign": lambda a: f.sign(a),
    "Reciprocal": lambda a: 1 / a,
    "Not": lambda a: ~a,
    "And": lambda a, b: a & b,
    "Or": lambda a, b: a | b,
    "Xor": f.not_equal,
    "Equal": f.equal,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "HardSwish": rounded_once(lambda a: a * within(a * (1 / 6) + 0.5, 0, 1)),
    "Sin": lambda a: f.sin(a), "Cos": lambda a: f.cos(a), "Tan": lambda a: f.tan(a),
    "Asin": lambda a: f.asin(a), "Acos": lambda a: f.acos(a), "Atan": lambda a: f.atan(a),
    "Sinh": lambda a: f.sinh(a), "Cosh": lambda a: f.cosh(a),
    "Asinh": lambda a: f.asinh(a), "Acosh": lambda a: f.acosh(a),
    "Atanh": lambda a: f.atanh(a),
    "IsNaN": lambda a: f.not_equal(a, a),
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "BitwiseNot": lambda a: ~a,
    "Sum": rounded_once(lambda *x: functools.reduce(operators.add, x)),
    "Max": lambda *x: functools.reduce(f.max, x),
    "Min": lambda *x: functools.reduce(f.min, x),
}  # fmt: skip
"""Functions of elements, by Python's operators and the notation's functions."""

for _name, _rule in _RULES.items():
    operator(_name)(functools.partial(lambda rule, call: _aligned(call).each(rule), _rule))


@operator("Identity")
def _identity(call: Call) -> Value:
    return call.value(0)


@operator("Where")
def _where(call: Call) -> Value:
    """A condition that is known and the same everywhere chooses a side as a whole, unless it has
    more elements at other sizes."""
    condition = call.value(0)
    grows = id(condition) in call.weights.growing
    if isinstance(condition, np.ndarray) and condition.size and not grows:
        if condition.min() != condition.max():
            return call.each(f.where)
        call.weights.say(condition)
        chosen = call.value(1 if condition.flat[0] else 2)
        if shape_of(chosen) == np.broadcast_shapes(*(shape_of(call.value(n)) for n in range(3))):
            return chosen
    return call.each(f.where)


@operator("Dropout", limit="in inference alone")
def _dropout(call: Call) -> list[Value]:
    training = call.known(2, False)
    if training is not None and training.any() and float(call.known(1, 0.5) or 0) != 0:
        raise call.unsupported("it drops elements as in training; programs are for inference")
    mask = np.ones(call.shape(), bool)
    return [call.value(0), mask][: len(call.outputs)]


@operator("Abs")
def _abs(call: Call) -> Value:
    unsigned = call.dtype().startswith("u")
    return call.value(0) if unsigned else call.each(f.abs)


@operator("Div")
def _div(call: Call) -> Value:
    call = _aligned(call)
    if is_float(call.dtype()):
        divisor = call.value(1)
        if isinstance(divisor, np.ndarray) and divisor.size == 1 and not call.may_vary(1).any():
            number = float(divisor.reshape(-1)[0])
            if number and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5:
                # Its reciprocal is exact.
                return call.each(lambda a: a * (1 / number), 0)
        return call.each(lambda a, b: a / b)
    return call.each(f.trunc_div)


@operator("Mod")
def _mod(call: Call) -> Value:
    return call.each(f.fmod if call.get("fmod", 0) else lambda a, b: a % b)


_LAST_DIGITS = 1e-14
"""Share of a power in float64 that rounding may make."""
_POWERS: dict[float, Callable[[Expr], Expr]] = {
    -1.0: lambda x: 1 / x,
    -0.5: f.rsqrt,
    0.5: f.sqrt,
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
}


@operator("Pow")
def _pow(call: Call) -> Value:
    call = _aligned(call)
    dtype, exponent = call.dtype(), call.value(1)
    if isinstance(exponent, np.ndarray) and exponent.size == 1:
        power = float(exponent.reshape(-1)[0])
        if power in _POWERS and (is_float(dtype) or power >= 1):
            shape = np.broadcast_shapes(call.shape(), exponent.shape)
            return call.define(shape, lambda *i: _POWERS[power](call.read(call.value(0), i)))
    if is_float(dtype) or not is_float(str(exponent.dtype)):
        return call.each(lambda a, b: f.pow(a, f.cast(b, dtype)))

    def cut(a: Expr, b: Expr) -> Expr:
        power = f.pow(f.cast(a, "float64"), f.cast(b, "float64"))
        whole = f.round(power)  # which the power itself may miss by its last digit
        return f.where(f.abs(power - whole) <= f.abs(whole) * _LAST_DIGITS, whole, power)

    return call.each(cut, dtype=dtype)


@operator("Cast", "CastLike")
def _cast(call: Call) -> Value:
    target = call.dtype(1) if call.op == "CastLike" else dtype_of(call.get("to"))
    value = call.value(0)
    if isinstance(value, np.ndarray):  # like a tensor that is known at a call only
        return value.astype(target)
    return value if call.dtype() == target else call.each(lambda x: f.cast(x, target), 0)


@operator("Mean")
@in_float32
def _mean(call: Call) -> Value:
    count = len(call.inputs)
    return call.each(lambda *x: functools.reduce(operators.add, x) * (1 / count))


@operator("Clip")
def _clip(call: Call) -> Value:
    bounds: list[tuple[Function, Value]] = []
    for place, name, op in ((1, "min", f.max), (2, "max", f.min)):
        if call.has(place):
            bounds.append((op, call.value(place)))
        elif call.get(name) is not None:
            bounds.append((op, np.array(call.get(name), call.dtype())))
    bounds = [(op, v) for op, v in bounds if not _never(v)]

    def body(x: Expr, *limits: Expr) -> Expr:
        for (op, _), limit in zip(bounds, limits):
            x = op(x, limit)
        return x

    return call.broadcast([call.value(0), *(v for _, v in bounds)], body)


def _never(bound: Value) -> bool:
    """Return whether a bound is infinite, or the end of its type."""
    if not isinstance(bound, np.ndarray) or bound.size != 1:
        return False
    value = bound.reshape(-1)[0]
    return bool(np.isinf(value)) if bound.dtype.kind == "f" else value in limits(str(bound.dtype))


@operator("IsInf")
def _is_inf(call: Call) -> Value:
    above, below = call.get("detect_positive", 1), call.get("detect_negative", 1)
    inf = math.inf

    def body(x: Expr) -> Expr:
        if above and below:
            return f.equal(f.abs(x), inf)
        if above or below:
            return f.equal(x, inf if above else -inf)
        return f.equal(x, inf) & f.equal(x, -inf)

    return call.each(body)


@operator("BitShift")
def _bit_shift(call: Call) -> Value:
    left = call.get("direction") == "LEFT"
    return call.each(lambda a, b: a << b if left else a >> b)


@operator("BitCast", limit="between floats and integers TVM's function computes it")
def _bit_cast(call: Call) -> Value:
    old, new = call.dtype(), dtype_of(call.get("to"))
    if np.dtype(old).itemsize != np.dtype(new).itemsize:
        raise call.unsupported(f"{old} and {new} differ in their bits")
    if is_float(old) or is_float(new):
        (made,) = call.step(reinterpreted(call.tensor(0), new))
        return made
    return call.each(lambda x: f.cast(x, new), 0)
