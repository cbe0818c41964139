"""Columns of tables: scaled, chosen, joined, filled in and coded."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.estimators.lists import for_columns
from loopwright.graph.importers.onnx.operators.reduction import along
from loopwright.graph.importers.onnx.operators.shapes import joined, reshaped
from loopwright.graph.importers.onnx.values import Array, Value, define, number, shape_of


@operator("ai.onnx.ml:Scaler")
def _scaler(call: Call) -> Value:
    columns = (call.shape() or (1,))[-1]
    numbers = (for_columns(call, name, columns) for name in ("offset", "scale"))
    values = [call.value(0), *(n.astype(np.float32) for n in numbers)]
    return call.broadcast(values, lambda x, o, s: (f.cast(x, "float32") - o) * s)


@operator("ai.onnx.ml:Normalizer")
def _normalizer(call: Call) -> Value:
    """Each row over its norm; one whose norm is 0 stays."""
    x = call.broadcast([call.value(0)], lambda e: f.cast(e, "float32"))
    kind = str(call.get("norm", "MAX"))
    before: dict[str, Callable[[Expr], Expr]] = {
        "MAX": lambda e: e, "L1": f.abs, "L2": lambda e: e * e,
    }  # fmt: skip
    total = along(x, [len(shape_of(x)) - 1], "max" if kind == "MAX" else "sum", True, before[kind])
    norm = call.broadcast([total], f.sqrt) if kind == "L2" else total
    return call.broadcast([x, norm], lambda e, n: e / f.where(f.equal(n, 0), 1.0, n))


@operator("ai.onnx.ml:Binarizer")
def _binarizer(call: Call) -> Value:
    least = float(call.get("threshold", 0.0))
    return call.each(lambda x: f.where(x > least, f.cast(1, x.dtype), f.cast(0, x.dtype)))


@operator("ai.onnx.ml:Imputer")
def _imputer(call: Call) -> Value:
    """Data with other numbers in place of those that are missing."""
    is_whole = call.get("imputed_value_int64s") is not None
    name, plain = ("int64s", "int64") if is_whole else ("floats", "float")
    columns = (call.shape() or (1,))[-1]
    new = for_columns(call, f"imputed_value_{name}", columns).astype(call.dtype())
    missing = call.get(f"replaced_value_{plain}", 0)

    def filled(x: Expr, other: Expr) -> Expr:
        hit = f.isnan(x) if math.isnan(missing) else f.equal(x, missing)
        return f.where(hit, other, x)

    return call.broadcast([call.value(0), new], filled)


@operator("ai.onnx.ml:FeatureVectorizer")
def _feature_vectorizer(call: Call) -> Value:
    parts = [_table(call, call.value(n)) for n in range(len(call.inputs))]
    columns = [shape_of(x)[-1] for x in parts]
    if (stated := call.get("inputdimensions") or columns) != columns:
        raise call.unsupported(f"its inputdimensions are {stated}; its inputs have {columns}")
    floats = [call.broadcast([x], lambda e: f.cast(e, "float32")) for x in parts]
    return joined(call, list(floats), 1)


def _table(call: Call, x: Value) -> Value:
    """Rows, which a vector is one of."""
    return x if len(shape_of(x)) > 1 else reshaped(call, x, (1, *shape_of(x)))


@operator("ai.onnx.ml:ArrayFeatureExtractor")
def _array_feature_extractor(call: Call) -> Value:
    """The columns that the second input names."""
    x = _table(call, call.value(0))
    columns = reshaped(call, call.value(1), (math.prod(call.shape(1)),))
    (made,) = call.by("Gather", inputs=(x, columns), attributes={"axis": -1})
    return made


@operator(
    "ai.onnx.ml:OneHotEncoder", limit="categories are whole numbers; an unknown one gives zeros"
)
def _one_hot_encoder(call: Call) -> Value:
    kinds = call.get("cats_int64s")
    if kinds is None:
        raise call.unsupported("its categories are strings; they may be whole numbers")
    kept, x, shape = call.as_tensor(np.asarray(kinds, np.int64)), call.value(0), call.shape()

    def hit(*i: Index) -> Expr:
        same = f.equal(f.cast(call.read(x, i[:-1]), "int64"), kept[i[-1]])
        return f.cast(same, "float32")

    return define("onehot", (*shape, len(kinds)), hit)


@operator("ai.onnx.ml:LabelEncoder", limit="keys and values are numbers")
def _label_encoder(call: Call) -> Value:
    """The value beside the first key that an element is, or the default."""
    keys, values = _numbers(call, "keys"), _numbers(call, "values")
    if len(keys) != len(values):
        raise call.unsupported(f"it has {len(keys)} keys and {len(values)} values")
    default = call.get("default_tensor")
    if default is None:
        whole = values.dtype == np.int64
        default = call.get("default_int64", -1) if whole else call.get("default_float", -0.0)
    x, kept, k = call.tensor(0), call.as_tensor(keys), Index("k", len(keys))

    def place(*i: Index) -> Expr:
        same = f.equal(x[i], kept[k])
        if keys.dtype.kind == "f" and np.isnan(keys).any():
            same |= f.isnan(x[i]) & f.isnan(kept[k])
        return f.min(f.where(same, k, len(keys)))

    at, coded = define("place", call.shape(), place), call.as_tensor(values)
    missing, last = number(np.reshape(default, -1)[0], str(values.dtype)), len(keys) - 1
    return call.broadcast([at], lambda n: f.where(n <= last, coded[f.min(n, last)], missing))


def _numbers(call: Call, side: str) -> Array:
    """The keys or the values of a code."""
    given = call.get(f"{side}_tensor")
    if given is None:
        for name, dtype in (("int64s", np.int64), ("floats", np.float32)):
            if call.get(f"{side}_{name}") is not None:
                given = np.asarray(call.get(f"{side}_{name}"), dtype)
    if given is None or given.dtype == object:
        raise call.unsupported(f"its {side} are strings; they may be numbers")
    return np.asarray(given).reshape(-1)
