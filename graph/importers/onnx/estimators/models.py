"""Linear models and sums over support vectors of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.estimators.scores import (
    classes,
    of_best,
    of_two,
    rows_of,
    transformed,
)
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.values import Array, Value, define, shape_of


@operator("ai.onnx.ml:LinearRegressor")
def _linear_regressor(call: Call) -> Value:
    return transformed(call, _linear(call, int(call.get("targets", 1))))


@operator("ai.onnx.ml:LinearClassifier", limit="labels are whole numbers")
def _linear_classifier(call: Call) -> list[Value]:
    rows = len(call.get("intercepts") or classes(call))
    scores = _linear(call, rows)
    if rows == 1 and len(classes(call)) == 2:
        return of_two(call, scores, 0.0, shares=True)
    return of_best(call, scores)


def _linear(call: Call, rows: int) -> Tensor:
    """Data times `coefficients`, a row of them for each result, plus `intercepts`."""
    x = _floats(call)
    weights = np.asarray(call.get("coefficients"), np.float32).reshape(rows, -1)
    made = product(call, x, np.ascontiguousarray(weights.T))
    bias = np.asarray(call.get("intercepts") or [0.0] * rows, np.float32)
    return call.broadcast([made, bias], lambda y, b: y + b)


def _floats(call: Call) -> Tensor:
    return call.broadcast([rows_of(call)], lambda e: f.cast(e, "float32"))


@operator("ai.onnx.ml:SVMRegressor")
def _svm_regressor(call: Call) -> Value:
    x = _floats(call)
    weights = np.asarray(call.get("coefficients"), np.float32)
    rho = float((call.get("rho") or [0.0])[0])
    count = int(call.get("n_supports", 0))
    if count:
        vectors = np.asarray(call.get("support_vectors"), np.float32).reshape(count, -1)
        sides = _kernel(call, x, vectors), weights.reshape(count, 1)
    else:  # the sum over support vectors of a linear kernel, made before
        sides = x, weights.reshape(-1, 1)
    made = call.broadcast([product(call, *sides)], lambda y: y + rho)
    if call.get("one_class", 0):
        return call.broadcast([made], lambda y: f.where(y > 0, 1.0, -1.0))
    return transformed(call, made)


def _kernel(call: Call, x: Tensor, vectors: Array) -> Tensor:
    """The kernel of each row of data and each support vector."""
    kind = str(call.get("kernel_type", "LINEAR"))
    gamma, bias, degree = map(float, [*(call.get("kernel_params") or []), 0.0, 0.0, 0.0][:3])
    if kind == "RBF":
        kept, k = call.as_tensor(vectors), Index("k", vectors.shape[1])
        rows = shape_of(x)[0], len(vectors)
        apart = define("apart", rows, lambda i, j: f.sum((x[i, k] - kept[j, k]) ** 2))
        return call.broadcast([apart], lambda d: f.exp(-gamma * d))
    functions: dict[str, Callable[[Expr], Expr]] = {
        "LINEAR": lambda d: d,
        "POLY": lambda d: f.pow(gamma * d + bias, degree),
        "SIGMOID": lambda d: f.tanh(gamma * d + bias),
    }
    dots = product(call, x, np.ascontiguousarray(vectors.T))
    return call.broadcast([dots], functions[kind])
