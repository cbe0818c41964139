"""Operators on elements: each element of the result depends on one of each input, broadcast."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float, limits
from loopwright.dsl.expr import Expr
from loopwright.graph.importers.onnx.call import Call, Value, dtype_of, operator, shape_of

Function = Callable[..., Any]


def _table(rules: dict[str, Function]) -> None:
    """Register functions of elements, with Python's operators and the notation's functions."""
    for name, rule in rules.items():
        operator(name)(functools.partial(_each, rule))


def _each(rule: Function, call: Call) -> Value:
    return call.each(rule)


def within(x: Expr, low: float, high: float) -> Expr:
    """The element within bounds."""
    return f.min(f.max(x, low), high)


_table(
    {
        "Add": lambda a, b: a + b,
        "Sub": lambda a, b: a - b,
        "Mul": lambda a, b: a * b if a.dtype != "bool" else a & b,
        "Neg": lambda a: -a,
        "Exp": f.exp,
        "Log": f.log,
        "Sqrt": f.sqrt,
        "Tanh": f.tanh,
        "Sigmoid": f.sigmoid,
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
        "Where": f.where,
        "Softsign": lambda a: a / (1 + f.abs(a)),
        "HardSwish": lambda a: a * within(a * (1 / 6) + 0.5, 0, 1),
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
    }
)  # fmt: skip


@operator("Identity")
def _identity(call: Call) -> Value:
    return call.value(0)


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
    if is_float(call.dtype()):
        divisor = call.value(1)
        if isinstance(divisor, np.ndarray) and divisor.size == 1:
            factor = 1 / divisor.reshape(-1)[0].astype(np.float64)
            if _exact_reciprocal(float(divisor.reshape(-1)[0])):
                return call.each(lambda a: a * float(factor), 0)
        return call.each(lambda a, b: a / b)
    return call.each(f.trunc_div)


def _exact_reciprocal(x: float) -> bool:
    return x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5


@operator("Mod")
def _mod(call: Call) -> Value:
    return call.each(f.fmod if call.get("fmod", 0) else lambda a, b: a % b)


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
    dtype, exponent = call.dtype(), call.value(1)
    if isinstance(exponent, np.ndarray) and exponent.size == 1:
        power = float(exponent.reshape(-1)[0])
        if power in _POWERS and (is_float(dtype) or power >= 1):
            shape = np.broadcast_shapes(call.shape(), exponent.shape)
            return call.define(shape, lambda *i: _POWERS[power](call.read(call.value(0), i)))
    if is_float(dtype):
        return call.each(lambda a, b: f.pow(a, f.cast(b, dtype)))
    wide = "float64"
    return call.each(lambda a, b: f.round(f.pow(f.cast(a, wide), f.cast(b, wide))), dtype=dtype)


@operator("Cast", "CastLike")
def _cast(call: Call) -> Value:
    target = call.dtype(1) if call.op == "CastLike" else dtype_of(call.get("to"))
    value = call.value(0)
    return value if call.dtype() == target else call.each(lambda x: f.cast(x, target), 0)


@operator("Sum")
def _sum(call: Call) -> Value:
    return call.each(lambda *x: _chain(lambda a, b: a + b, x))


@operator("Mean")
def _mean(call: Call) -> Value:
    count = len(call.inputs)
    return call.each(lambda *x: _chain(lambda a, b: a + b, x) * (1 / count))


@operator("Max")
def _max(call: Call) -> Value:
    return call.each(lambda *x: _chain(f.max, x))


@operator("Min")
def _min(call: Call) -> Value:
    return call.each(lambda *x: _chain(f.min, x))


def _chain(op: Function, values: tuple[Expr, ...]) -> Expr:
    result = values[0]
    for value in values[1:]:
        result = op(result, value)
    return result


@operator("Relu")
def _relu(call: Call) -> Value:
    return call.each(lambda x: f.max(x, 0))


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


@operator("LeakyRelu")
def _leaky_relu(call: Call) -> Value:
    slope = call.get("alpha", 0.01)
    return call.each(lambda x: f.where(x >= 0, x, x * slope))


@operator("PRelu")
def _prelu(call: Call) -> Value:
    x, slope = call.value(0), call.value(1)
    shape = shape_of(slope)
    try:
        np.broadcast_shapes(shape_of(x), shape)
    except ValueError:  # one slope a channel, as old models have it
        if len(shape) != 1 or shape[0] != shape_of(x)[1]:
            raise call.unsupported(f"slopes {shape} do not broadcast to {shape_of(x)}") from None
        ones = (1,) * (len(shape_of(x)) - 2)
        if isinstance(slope, np.ndarray):
            slope = slope.reshape(*shape, *ones)
        else:
            old = slope
            slope = call.define((*shape, *ones), lambda c, *_: old[c], "slope")
    return call.broadcast([x, slope], lambda a, s: f.where(a >= 0, a, a * s))


@operator("Elu")
def _elu(call: Call) -> Value:
    alpha = call.get("alpha", 1.0)
    return call.each(lambda x: f.where(x > 0, x, (f.exp(f.min(x, 0)) - 1) * alpha))


@operator("Selu")
def _selu(call: Call) -> Value:
    alpha, gamma = (
        call.get("alpha", 1.67326319217681884765625),
        call.get("gamma", 1.05070102214813232421875),
    )
    return call.each(
        lambda x: f.where(x > 0, x * gamma, (f.exp(f.min(x, 0)) - 1) * (alpha * gamma))
    )


@operator("Celu")
def _celu(call: Call) -> Value:
    alpha = call.get("alpha", 1.0)
    return call.each(
        lambda x: f.max(x, 0) + f.min((f.exp(f.min(x, 0) * (1 / alpha)) - 1) * alpha, 0)
    )


@operator("ThresholdedRelu")
def _thresholded_relu(call: Call) -> Value:
    alpha = call.get("alpha", 1.0)
    return call.each(lambda x: f.where(x > alpha, x, 0))


@operator("HardSigmoid")
def _hard_sigmoid(call: Call) -> Value:
    alpha, beta = call.get("alpha", 0.2), call.get("beta", 0.5)
    return call.each(lambda x: within(x * alpha + beta, 0, 1))


@operator("Softplus")
def _softplus(call: Call) -> Value:
    return call.each(_softly)


def _softly(x: Expr) -> Expr:
    return f.max(x, 0) + f.log(1 + f.exp(-f.abs(x)))


@operator("Mish")
def _mish(call: Call) -> Value:
    return call.each(lambda x: x * f.tanh(_softly(x)))


@operator("Gelu", "com.microsoft:Gelu")
def _gelu(call: Call) -> Value:
    return call.each(gelu_tanh if call.get("approximate", "none") == "tanh" else gelu)


@operator("com.microsoft:FastGelu", "com.microsoft:BiasGelu")
def _bias_gelu(call: Call) -> Value:
    function = gelu_tanh if call.op == "FastGelu" else gelu
    if not call.has(1):
        return call.each(function, 0)
    return call.each(lambda x, b: function(x + b), 0, 1)


def gelu(x: Expr) -> Expr:
    """`x / 2 * (1 + erf(x / √2))`."""
    return x * 0.5 * (f.erf(x * math.sqrt(0.5)) + 1)


def gelu_tanh(x: Expr) -> Expr:
    """The same with the error function approximated by a tangent."""
    return x * 0.5 * (f.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)


@operator("com.microsoft:QuickGelu", "Swish")
def _quick_gelu(call: Call) -> Value:
    alpha = call.get("alpha", 1.702 if call.op == "QuickGelu" else 1.0)
    return call.each(lambda x: x * f.sigmoid(x * alpha if alpha != 1 else x))


@operator("Shrink")
def _shrink(call: Call) -> Value:
    bias, lambd, dtype = call.get("bias", 0.0), call.get("lambd", 0.5), call.dtype()
    whole = not is_float(dtype)

    def body(x: Expr) -> Expr:
        y = f.cast(x, "float32") if whole else x
        out = f.where(y < -lambd, y + bias, f.where(y > lambd, y - bias, 0))
        return f.cast(out, dtype) if whole else out

    return call.each(body)


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
