"""Sums over support vectors of ai.onnx.ml, and the classes that they vote for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.estimators.coupling import coupled, sides
from loopwright.graph.importers.onnx.estimators.scores import (
    classes,
    floats_of,
    label_of_best,
    of_best,
    of_two,
    transformed,
)
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.values import Array, Value, define, number, shape_of

_LEAST = 1e-7
"""The least share of a class in a pair."""


@operator("ai.onnx.ml:SVMRegressor")
def _svm_regressor(call: Call) -> Value:
    x = floats_of(call)
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
    width, columns = vectors.shape[1], shape_of(x)[1]
    if width != columns:
        raise call.unsupported(f"its vectors have {width} numbers, and its data {columns} columns")
    gamma, bias, degree = map(float, [*(call.get("kernel_params") or []), 0.0, 0.0, 0.0][:3])
    if kind == "RBF":
        kept, k = call.as_tensor(vectors), Index("k", width)
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


@operator("ai.onnx.ml:SVMClassifier", limit="labels are whole numbers")
def _svm_classifier(call: Call) -> list[Value]:
    x, count = floats_of(call), len(classes(call))
    sizes = call.get("vectors_per_class") or []
    if not sum(sizes):
        return _of_linear(call, x, count)
    scores = _pairs(call, x, np.repeat(np.arange(count), sizes))
    label = label_of_best(call, _votes(call, scores, count))
    if call.get("prob_a"):
        return [label, transformed(call, _shares(call, scores, count))]
    if count != 2:
        return [label, transformed(call, scores)]
    is_plain = call.get("post_transform", "NONE") == "NONE"
    return [label, of_two(call, scores, 0.0, shares=not is_plain)[1]]


def _of_linear(call: Call, x: Tensor, count: int) -> list[Value]:
    """Labels and scores where the weights of each class are known."""
    weights = np.asarray(call.get("coefficients"), np.float32).reshape(count, -1)
    rho = float(call.get("rho")[0])
    made = product(call, x, np.ascontiguousarray(weights.T))
    scores = call.broadcast([made], lambda y: y + rho)
    if count != 2:
        return of_best(call, scores)
    low, high = (number(n, "int64") for n in classes(call))
    positive = bool((weights >= 0).all())

    def label(i: Index) -> Expr:
        one, other = scores[i, 0], scores[i, 1]
        top = f.max(one, other)
        is_high = top >= 0.5 if positive else top > 0
        return f.where(is_high | (other > one), high, low)

    return [define("label", shape_of(scores)[:1], label), transformed(call, scores)]


def _pairs(call: Call, x: Tensor, own: Array) -> Tensor:
    """The score of each row and each pair of classes, in the order (0, 1), (0, 2), ..., (1, 2).
    `own` is the class of each vector."""
    vectors = np.asarray(call.get("support_vectors"), np.float32).reshape(len(own), -1)
    given = np.asarray(call.get("coefficients"), np.float32).reshape(-1, len(own))
    columns = [
        np.where(own == one, given[other - 1], 0) + np.where(own == other, given[one], 0)
        for one, other in combinations(range(len(given) + 1), 2)
    ]
    made = product(call, _kernel(call, x, vectors), np.stack(columns, axis=1))
    return call.broadcast([made, _of_pairs(call, "rho", len(columns))], lambda y, r: y + r)


def _of_pairs(call: Call, name: str, count: int) -> Array:
    """An attribute that has a number for each of so many pairs."""
    return np.asarray(call.get(name)[:count], np.float32).reshape(count)


def _votes(call: Call, scores: Tensor, count: int) -> Tensor:
    """How many pairs each class wins: the first one of a pair by a score above 0."""
    one, other = (call.as_tensor(np.array(side, np.int32)) for side in sides(count))
    k = Index("k", shape_of(scores)[1])

    def won(row: Index, own: Index) -> Expr:
        winner = f.where(scores[row, k] > 0, one[k], other[k])
        return f.sum(f.cast(f.equal(winner, own), "int32"))

    return define("votes", (shape_of(scores)[0], count), won)


def _shares(call: Call, scores: Tensor, count: int) -> Tensor:
    """The share of each class: shares in pairs follow from scores, as Platt scales them."""
    pairs = shape_of(scores)[1]
    slopes, offsets = (_of_pairs(call, f"prob_{n}", pairs) for n in "ab")
    won = call.broadcast(
        [scores, slopes, offsets],
        lambda s, a, b: f.min(f.max(f.sigmoid(-(s * a + b)), _LEAST), 1 - _LEAST),
    )
    return coupled(call, won, count)
