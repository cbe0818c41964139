"""Products and convolutions of com.microsoft that are fused with what stands around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.graph.importers.onnx.call import OPERATORS, Call, Value, operator, shape_of
from loopwright.graph.importers.onnx.operators.convolution import convolved
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.operators.shapes import transposed


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
        sides.append(transposed(call, value, order))
    made, alpha = product(call, *sides), float(call.get("alpha", 1.0))
    return made if alpha == 1 else call.broadcast([made], lambda x: x * alpha)


@operator("com.microsoft:FusedConv")
def _fused_conv(call: Call) -> Value:
    made: Value = convolved(
        call, call.tensor(0), call.value(1), call.value(2) if call.has(2) else None
    )
    if call.has(3):
        made = call.broadcast([made, call.value(3)], lambda a, b: a + b)
    activation = _activation(call)
    return made if activation is None else call.broadcast([made], activation)


@operator("com.microsoft:FusedGemm")
def _fused_gemm(call: Call) -> Value:
    made = OPERATORS["Gemm"](call)
    assert not isinstance(made, Sequence)
    activation = _activation(call)
    return made if activation is None else call.broadcast([made], activation)


def _activation(call: Call) -> Callable[[Expr], Expr] | None:
    """The last step of a fused convolution or product, of each element."""
    name = call.get("activation", "")
    given = call.get("activation_params")
    if given is None:
        given = [call.get(f"activation_{each}", 0.0) for each in ("alpha", "beta")]
    a, b = [*map(float, given), 0.0, 0.0][:2]
    rules: dict[str, Callable[[Expr], Expr]] = {
        "Relu": lambda x: f.max(x, 0),
        "Tanh": f.tanh,
        "Sigmoid": f.sigmoid,
        "LeakyRelu": lambda x: f.where(x >= 0, x, x * a),
        "Clip": lambda x: within(x, a, b),
        "HardSigmoid": lambda x: within(x * a + b, 0, 1),
    }
    if name and name not in rules:
        raise call.unsupported(f"its activation is {name!r}; it may be {', '.join(rules)}")
    return rules.get(name)
