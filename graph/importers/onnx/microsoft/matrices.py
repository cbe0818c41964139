"""Distances between rows, and inverses of matrices."""

from __future__ import annotations

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.index import Index
from loopwright.graph.importers.onnx.call import SCANS, Call, operator
from loopwright.graph.importers.onnx.values import Value, define


@operator("com.microsoft:CDist")
def _distances(call: Call) -> Value:
    """The Euclidean distance, or its square, of each row of one matrix and each of another."""
    (rows, columns), (others, _) = call.shape(0), call.shape(1)
    a, b, k = call.tensor(0), call.tensor(1), Index("k", columns)
    squares = define("squares", (rows, others), lambda i, j: f.sum((a[i, k] - b[j, k]) ** 2))
    is_square = call.get("metric", "sqeuclidean") == "sqeuclidean"
    return squares if is_square else call.broadcast([squares], f.sqrt)


@operator("com.microsoft:Inverse")
def _inverse(call: Call) -> list[Value]:
    unit = np.eye(call.shape()[-1], dtype=call.dtype())
    return call.by(f"{SCANS}:Solve", inputs=(call.value(0), unit))
