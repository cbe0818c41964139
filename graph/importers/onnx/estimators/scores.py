"""Scores of estimators: what is done to them at the end, and the labels that they choose."""

from __future__ import annotations

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl import ops
from loopwright.dsl.dtypes import is_float
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.operators.shapes import joined, reshaped
from loopwright.graph.importers.onnx.values import Array, Value, define, shape_of

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""What may be done to scores, in ONNX's order; the last two are refused."""


def rows_of(call: Call) -> Tensor:
    """The first input as rows of floats; a vector is one row."""
    shape = call.shape()
    if len(shape) not in (1, 2):
        raise call.unsupported(f"its data are {shape}; they may be rows, or one row")
    x = reshaped(call, call.value(0), (1, *shape)[-2:])
    kept = call.dtype() if is_float(call.dtype()) else "float32"
    return call.broadcast([x], lambda e: f.cast(e, kept))


def floats_of(call: Call) -> Tensor:
    """The rows of `rows_of` in single precision."""
    return call.broadcast([rows_of(call)], lambda e: f.cast(e, "float32"))


def transformed(call: Call, scores: Tensor) -> Tensor:
    """Scores of rows after the call's `post_transform`. A score that is alone stays as it is, as
    in onnxruntime."""
    name = _transform(call)
    if name == "NONE" or shape_of(scores)[1] == 1:
        return scores
    return ops.softmax(scores) if name == "SOFTMAX" else call.broadcast([scores], f.sigmoid)


def _transform(call: Call) -> str:
    given = call.get("post_transform", "NONE")
    name = given if isinstance(given, str) else _TRANSFORMS[int(given)]
    if name not in _TRANSFORMS[:3]:
        allowed = ", ".join(_TRANSFORMS[:3])
        raise call.unsupported(f"its post_transform is {name}; it may be {allowed}")
    return name


def classes(call: Call) -> Array:
    """The labels of a classifier as whole numbers. Raises `UnsupportedOperator` for strings that
    the model gives; where nothing reads them, they are numbered."""
    strings = call.get("classlabels_strings") or []
    if not strings:
        return np.asarray(call.get("classlabels_int64s") or call.get("classlabels_ints"), np.int64)
    if call.uses.get(call.outputs[0]):
        raise call.unsupported(
            "its labels are strings, which no tensor holds: train with whole numbers as labels, "
            f"or end the model at its scores, {call.outputs[-1]!r}, as by onnx.utils.extract_model"
        )
    return np.arange(len(strings))


def of_best(call: Call, scores: Tensor) -> list[Value]:
    """The label of the first greatest score of each row, and the transformed scores."""
    return [label_of_best(call, scores), transformed(call, scores)]


def label_of_best(call: Call, scores: Tensor) -> Tensor:
    """The label of the first greatest score of each row."""
    best = ops.argmax(scores, -1, dtype="int32")
    labels = call.as_tensor(classes(call))
    return define("label", shape_of(best), lambda i: labels[best[i]])


def of_second(call: Call, scores: Tensor, least: float) -> Value:
    """The labels of rows: of two classes the second where the last score is above `least`."""
    low, high = (int(n) for n in classes(call))
    last = shape_of(scores)[1] - 1

    def label(i: Index) -> Expr:
        return f.where(scores[i, last] > least, f.cast(high, "int64"), f.cast(low, "int64"))

    return define("label", shape_of(scores)[:1], label)


def of_two(call: Call, score: Tensor, least: float, shares: bool) -> list[Value]:
    """The labels of rows of two classes, and the scores of both, by that of the second. They are 1
    together where they are `shares` or become such, and else each other's negative."""
    is_logistic = _transform(call) == "LOGISTIC"
    one = 1.0 if shares and not is_logistic else 0.0
    sides = [call.broadcast([score], lambda x: one - x), score]
    if is_logistic:
        sides = [call.broadcast([side], f.sigmoid) for side in sides]
    return [of_second(call, score, least), joined(call, sides, 1)]


@operator("ai.onnx.ml:ZipMap", limit="refused: export with options={'zipmap': False}")
def _zip_map(call: Call) -> Value:
    raise call.unsupported(
        "it makes a dictionary of each row: export with options={'zipmap': False}, or end the "
        f"model at {call.names[0]!r}, as onnx.utils.extract_model does"
    )
