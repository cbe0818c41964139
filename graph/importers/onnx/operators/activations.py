"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Expr
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.halves import rounded_once
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.values import Value, shape_of


def _softplus(x: Expr) -> Expr:
    return f.max(x, 0) + f.log1p(f.exp(-f.abs(x)))


_RULES: dict[str, tuple[Callable[..., Expr], tuple[float, ...]]] = {
    "Affine": (lambda x, a, b: x * a + b, (1.0, 0.0)),
    "Celu": (lambda x, a: f.max(x, 0) + f.expm1(f.min(x, 0) * (1 / a)) * a, (1.0,)),
    "Clip": (within, (0.0, 0.0)),
    "Elu": (lambda x, a: f.where(x > 0, x, f.expm1(f.min(x, 0)) * a), (1.0,)),
    "HardSigmoid": (lambda x, a, b: within(x * a + b, 0, 1), (0.2, 0.5)),
    "LeakyRelu": (lambda x, a: f.where(x >= 0, x, x * a), (0.01,)),
    "Mish": (lambda x: x * f.tanh(_softplus(x)), ()),
    "Relu": (lambda x: f.max(x, 0), ()),
    "ScaledTanh": (lambda x, a, b: f.tanh(x * b) * a, (1.0, 1.0)),
    "Sigmoid": (f.sigmoid, ()),
    "Softplus": (_softplus, ()),
    "Softsign": (lambda x: x / (1 + f.abs(x)), ()),
    "Tanh": (f.tanh, ()),
    "ThresholdedRelu": (lambda x, a: f.where(x > a, x, 0), (1.0,)),
}
"""Functions of an element and of `alpha` and `beta`, and the defaults of these."""
_ONE_STEP = ("Clip", "LeakyRelu", "Relu", "Sigmoid", "Tanh", "ThresholdedRelu")


def taken(name: str) -> int:
    """How many numbers a function of elements takes beside them."""
    return len(_RULES[name][1])


def activation(name: str, *given: float | None) -> Callable[[Expr], Expr]:
    """A function of elements by its name, with its `alpha` and `beta` where they are given."""
    rule, defaults = _RULES[name]
    values = [d if g is None else float(g) for d, g in zip(defaults, (*given, None, None))]
    function = lambda x: rule(x, *values)  # noqa: E731 - one expression
    return function if name in _ONE_STEP else rounded_once(function)


@operator(*sorted(_RULES.keys() - {"Affine", "Clip", "ScaledTanh"}))
def _activation(call: Call) -> Value:
    return call.each(activation(call.op, call.get("alpha"), call.get("beta")))


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


@operator("Selu")
def _selu(call: Call) -> Value:
    alpha, gamma = (
        call.get("alpha", 1.67326319217681884765625),
        call.get("gamma", 1.05070102214813232421875),
    )

    @rounded_once
    def selu(x: Expr) -> Expr:
        return f.where(x > 0, x * gamma, f.expm1(f.min(x, 0)) * (alpha * gamma))

    return call.each(selu)


@operator("Gelu", "com.microsoft:Gelu")
def _gelu(call: Call) -> Value:
    return call.each(gelu_tanh if call.get("approximate", "none") == "tanh" else gelu)


@operator("com.microsoft:FastGelu", "com.microsoft:BiasGelu")
def _bias_gelu(call: Call) -> Value:
    function = gelu_tanh if call.op == "FastGelu" else gelu
    if not call.has(1):
        return call.each(function, 0)
    return call.each(rounded_once(lambda x, b: function(x + b)), 0, 1)


@rounded_once
def gelu(x: Expr) -> Expr:
    """`x / 2 * (1 + erf(x / √2))`."""
    return x * 0.5 * (f.erf(x * math.sqrt(0.5)) + 1)


@rounded_once
def gelu_tanh(x: Expr) -> Expr:
    """The same with the error function approximated by a tangent."""
    return x * 0.5 * (f.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)


@operator("com.microsoft:QuickGelu", "Swish")
def _quick_gelu(call: Call) -> Value:
    alpha = call.get("alpha", 1.702 if call.op == "QuickGelu" else 1.0)
    return call.each(rounded_once(lambda x: x * f.sigmoid(x * alpha if alpha != 1 else x)))


@operator("Shrink")
def _shrink(call: Call) -> Value:
    bias, lambd, dtype = call.get("bias", 0.0), call.get("lambd", 0.5), call.dtype()
    whole = not is_float(dtype)

    def body(x: Expr) -> Expr:
        y = f.cast(x, "float32") if whole else x
        out = f.where(y < -lambd, y + bias, f.where(y > lambd, y - bias, 0))
        return f.cast(out, dtype) if whole else out

    return call.each(body)
