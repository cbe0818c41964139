"""Activation functions."""

from __future__ import annotations

import math

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Expr
from loopwright.graph.importers.onnx.call import Call, Value, operator, shape_of
from loopwright.graph.importers.onnx.operators.elementwise import within


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
