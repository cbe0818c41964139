"""Element-wise operators against NumPy, broadcast."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.tensor import Tensor
from tests.dsl.compute import Array, check, compute, draw

ops = lw.ops
T = lw.tensor

ERF = np.vectorize(math.erf)


UNARY: list[tuple[Callable[..., Tensor], Callable[[Array], Array]]] = [
    (ops.relu, lambda x: np.maximum(x, 0)),
    (ops.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    (lambda x: ops.clip(x, -0.5, 0.25), lambda x: np.clip(x, -0.5, 0.25)),
    (ops.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    (ops.tanh, np.tanh),
    (ops.gelu, lambda x: x / 2 * (1 + ERF(x / math.sqrt(2)))),
    (ops.silu, lambda x: x / (1 + np.exp(-x))),
]


@pytest.mark.parametrize(("op", "function"), UNARY)
@pytest.mark.parametrize("shape", [(), (7,), (3, 1, 5)])
def test_activations_work_on_each_element(
    op: Callable[..., Tensor], function: Callable[[Array], Array], shape: tuple[int, ...]
) -> None:
    x = T("x", shape)
    check(op(x), function(draw(x).astype(np.float64)), x)


BINARY: list[tuple[Callable[..., Tensor], Callable[..., Array]]] = [
    (ops.add, np.add),
    (ops.sub, np.subtract),
    (ops.mul, np.multiply),
    (ops.div, np.divide),
    (ops.maximum, np.maximum),
    (ops.minimum, np.minimum),
]


@pytest.mark.parametrize(("op", "function"), BINARY)
@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((3, 5), (3, 5)),
        ((3, 5), (5,)),
        ((3, 1), (1, 5)),
        ((), (3,)),
        ((2, 1, 3), (5, 1)),
        ((1,), (1,)),
    ],
)
def test_two_operands_broadcast_as_in_numpy(
    op: Callable[..., Tensor], function: Callable[..., Array], one: Any, two: Any
) -> None:
    x, y = T("x", one), T("y", two)
    values = {x: draw(x), y: draw(y) + 2}
    check(op(x, y), np.asarray(function(values[x], values[y])), given=values)
    assert op(x, y).name == op.__name__


@pytest.mark.parametrize(("op", "function"), BINARY)
def test_numbers_take_the_type_of_the_tensor(
    op: Callable[..., Tensor], function: Callable[..., Array]
) -> None:
    x = T("x", (3,), "float16")
    values = {x: draw(x) + np.float16(2)}
    assert op(x, 2).dtype == "float16"
    np.testing.assert_allclose(compute(op(x, 2), values), function(values[x], 2), rtol=2e-3)
    np.testing.assert_allclose(compute(op(2.5, x), values), function(2.5, values[x]), rtol=2e-3)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_bias_add_runs_along_an_axis(axis: int) -> None:
    x = T("x", (2, 3, 5))
    bias = T("bias", (x.shape[axis],))
    shape = [-1 if d == axis % 3 else 1 for d in range(3)]
    check(ops.bias_add(x, bias, axis), draw(x) + draw(bias).reshape(shape), x, bias)
