"""Products and convolutions of com.microsoft that are fused with what stands around them."""

from __future__ import annotations

from loopwright.dsl.dtypes import sum_type
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.operators.activations import activation
from loopwright.graph.importers.onnx.operators.convolution import convolved
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.operators.shapes import transposed
from loopwright.graph.importers.onnx.values import Value, shape_of

_ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")


@operator("com.microsoft:FusedMatMul", "com.microsoft:TransposeMatMul")
def _fused_matmul(call: Call) -> Value:
    sides = []
    for number, side in enumerate("AB"):
        value = call.value(number)
        order = list(range(len(shape_of(value))))
        if call.get(f"transBatch{side}", 0):  # the rows' axis stands first
            order = [*order[1:-1], order[0], order[-1]]
        if call.get(f"trans{side}", 0):
            order[-2:] = order[:-3:-1]
        sides.append(transposed(value, order))
    alpha, dtype = float(call.get("alpha", 1.0)), call.dtype()
    if alpha == 1:
        return product(call, *sides)
    made = product(call, *sides, dtype=sum_type(dtype))
    return call.broadcast([made], lambda x: x * alpha, dtype)


@operator("com.microsoft:FusedConv")
def _fused_conv(call: Call) -> Value:
    made = convolved(call, call.tensor(0), call.value(1), call.optional(2))
    return _activated(call, call.plus(made, 3))


@operator("com.microsoft:FusedGemm")
def _fused_gemm(call: Call) -> Value:
    return _activated(call, *call.by("Gemm"))


def _activated(call: Call, made: Value) -> Value:
    """A fused convolution or product, put through its last step."""
    name = call.get("activation", "")
    given = call.get("activation_params")
    if given is None:
        given = [call.get(f"activation_{each}", 0.0) for each in ("alpha", "beta")]
    a, b = [*map(float, given), 0.0, 0.0][:2]
    if name and name not in _ACTIVATIONS:
        raise call.unsupported(f"its activation is {name!r}; it may be {', '.join(_ACTIVATIONS)}")
    return call.broadcast([made], activation(name, a, b)) if name else made
