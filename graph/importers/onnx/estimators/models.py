"""Linear models of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.estimators.scores import (
    classes,
    floats_of,
    of_best,
    of_two,
    transformed,
)
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.values import Value, shape_of


@operator("ai.onnx.ml:LinearRegressor")
def _linear_regressor(call: Call) -> Value:
    return transformed(call, _linear(call, int(call.get("targets", 1))))


@operator("ai.onnx.ml:LinearClassifier", limit="labels are whole numbers")
def _linear_classifier(call: Call) -> list[Value]:
    labels = len(classes(call))
    rows = len(call.get("intercepts") or classes(call))
    scores = _linear(call, rows)
    if rows == 1 and labels == 2:
        return of_two(call, scores, 0.0, shares=True)
    if rows != labels:
        raise call.unsupported(f"it has {rows} scores and {labels} labels, one for each score")
    return of_best(call, scores)


def _linear(call: Call, rows: int) -> Tensor:
    """Data times `coefficients`, a row of them for each result, plus `intercepts`."""
    x = floats_of(call)
    weights = np.asarray(call.get("coefficients"), np.float32)
    bias = np.asarray(call.get("intercepts") or [0.0] * rows, np.float32)
    columns = shape_of(x)[1]
    if (weights.size, bias.size) != (rows * columns, rows):
        raise call.unsupported(
            f"it has {weights.size} coefficients and {bias.size} intercepts; for {rows} results "
            f"of {columns} columns it may have {rows * columns} and {rows}"
        )
    made = product(call, x, np.ascontiguousarray(weights.reshape(rows, columns).T))
    return call.broadcast([made, bias], lambda y, b: y + b)
