"""Operators that read at places that elements name."""

from __future__ import annotations

import math

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index, as_affine
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import ModelError
from loopwright.graph.importers.onnx.call import Call, NotKnown, operator
from loopwright.graph.importers.onnx.operators.shapes import reshaped
from loopwright.graph.importers.onnx.operators.slices import take
from loopwright.graph.importers.onnx.values import Array, Value, define, number, shape_of


@operator("OneHot")
def _one_hot(call: Call) -> Value:
    indices, values = call.value(0), call.value(2)
    try:
        depth = call.integer(1)
    except NotKnown as reason:
        stated = call.stated(reason)
        depth = max(set(stated) - set(call.shape()), default=stated[-1])
    shape = shape_of(indices)
    axis = call.checked_axis(int(call.get("axis", -1)), len(shape) + 1)

    def value(at: int) -> Expr:
        if isinstance(values, Tensor):
            return values[at]
        return number(values[at], str(values.dtype))

    def body(*i: Index) -> Expr:
        element = f.cast(call.read(indices, (*i[:axis], *i[axis + 1 :])), "int64")
        place = f.cast(i[axis], "int64")
        # A negative index counts from the end; one outside of the range has no place.
        hit = f.equal(place, f.where(element < 0, element + depth, element))
        return f.where(hit, value(1), value(0))

    return define("onehot", (*shape[:axis], depth, *shape[axis:]), body)


@operator("ReverseSequence")
def _reverse_sequence(call: Call) -> Value:
    x, lengths = call.tensor(0), call.value(1)
    sequences = call.get("batch_axis", 1), call.get("time_axis", 0)
    batch, time = call.checked_axes(sequences, len(call.shape()))

    def body(*i: Index) -> Expr:
        length = f.cast(call.read(lengths, (i[batch],)), "int32")
        here = f.cast(i[time], "int32")
        at = f.where(here < length, length - 1 - here, here)
        return x[tuple(at if d == time else k for d, k in enumerate(i))]

    return define("reversesequence", call.shape(), body)


@operator("Gather")
def _gather(call: Call) -> Value:
    value, indices, axis = call.value(0), call.value(1), call.axis(0)
    shape, own = shape_of(value), shape_of(indices)
    new, extent = (*shape[:axis], *own, *shape[axis + 1 :]), shape[axis]
    if isinstance(indices, np.ndarray):
        places = known_places(call, indices.astype(np.int64), extent)
        if len(own) > 1 and isinstance(value, Tensor) and (steps := _steps(places)) is not None:
            first = int(places.flat[0])

            def window(*i: Index) -> Expr:
                inner = i[axis : axis + len(own)]
                at = sum((k * step for k, step in zip(inner, steps)), as_affine(first))
                return value[(*i[:axis], at, *i[axis + len(own) :])]

            return define("gather", new, window)
        return reshaped(call, take(call, value, axis, places.reshape(-1), "gather"), new)
    table = call.tensor(0)

    def body(*i: Index) -> Expr:
        at = call.read(indices, i[axis : axis + len(own)])
        return table[(*i[:axis], at, *i[axis + len(own) :])]

    return define("gather", new, body)


def known_places(call: Call, indices: Array, extent: int) -> Array:
    """Known indices, counted from the front of an axis of so many elements."""
    if indices.size and (indices.min() < -extent or indices.max() >= extent):
        raise call.unsupported(
            f"an index of {indices.min()} to {indices.max()} is outside of {extent}"
        )
    return indices % max(extent, 1)


def _steps(places: Array) -> list[int] | None:
    """Steps along each axis that places go by, as those of sliding windows; None for others."""
    if 0 in places.shape:
        return None
    first = places.flat[0]
    steps = [
        int(places[tuple(int(d == k) for d in range(places.ndim))] - first) if n > 1 else 0
        for k, n in enumerate(places.shape)
    ]
    made = sum((g * s for g, s in zip(np.indices(places.shape), steps)), first)
    return steps if np.array_equal(places, made) else None


@operator("GatherElements")
def _gather_elements(call: Call) -> Value:
    table, indices, axis = call.tensor(0), call.value(1), call.axis(0)

    def body(*i: Index) -> Expr:
        at = call.read(indices, i)
        return table[tuple(at if d == axis else k for d, k in enumerate(i))]

    return define("gatherelements", shape_of(indices), body)


@operator("GatherND")
def _gather_nd(call: Call) -> Value:
    table, indices, batch = call.tensor(0), call.tensor(1), int(call.get("batch_dims", 0))
    shape, own = call.shape(0), call.shape(1)
    count = own[-1]
    outer = len(own) - 1

    def body(*i: Index) -> Expr:
        at = [indices[(*i[:outer], n)] for n in range(count)]
        return table[(*i[:batch], *at, *i[outer:])]

    return define("gathernd", (*own[:-1], *shape[batch + count :]), body)


@operator("Compress", limit="the condition must be known")
def _compress(call: Call) -> Value:
    chosen, value = np.flatnonzero(call.required(1)), call.value(0)
    if call.get("axis") is None:
        value = reshaped(call, value, (math.prod(call.shape()),))
        return take(call, value, 0, chosen, "compress")
    return take(call, value, call.axis(), chosen, "compress")


@operator(
    "NonMaxSuppression",
    "NonZero",
    "Unique",
    limit="refused: the shape of its result depends on data",
)
def _shape_of_data(call: Call) -> Value:
    read = (n for n, x in zip(call.names, call.inputs) if isinstance(x, Tensor) and not x.constant)
    raise ModelError(
        f"{call.label}: the shape of its result depends on data, and programs are made for fixed "
        "shapes; choose elements by a mask of fixed shape (Where), or end the model at "
        f"{', '.join(read)} and compute the rest outside (onnx.utils.extract_model cuts a file)"
    )
