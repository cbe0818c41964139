"""Attention of decoders, as onnxruntime's generative models write it: turned positions, keys that
several queries share, and a cache of past keys and values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import sum_type
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops.normalization import softmax_of
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.microsoft.attention import heads, joined_heads
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.operators.shapes import reshaped, transposed
from loopwright.graph.importers.onnx.operators.slices import take
from loopwright.graph.importers.onnx.values import Value, define, shape_of

Past = Callable[[Index], Any]
"""The number of keys of a sample that are past: an element, or 0."""


@operator("com.microsoft:RotaryEmbedding", limit="without ragged batches")
def _rotary(call: Call) -> Value:
    if call.get("is_packed_batching", 0):
        raise call.unsupported("its batch is ragged; export without packed batching")
    x, places = call.value(0), call.value(1)
    shape = shape_of(x)
    if len(shape) == 3:
        size = 2 * call.shape(2)[1]
        if dimension := int(call.get("rotary_embedding_dim", 0)):
            size = shape[2] // int(call.get("num_heads", 0) or shape[2] // dimension)
        x = heads(call, x, shape[2] // size)
    single = math.prod(shape_of(places)) == 1

    def place(b: Index, s: Index) -> Expr:
        if single:
            return f.cast(call.read(reshaped(call, places, ()), ()), "int32") + s
        return f.cast(call.read(places, (b, s)), "int32")

    turned = _turned(call, x, (2, 3), place, bool(call.get("interleaved", 0)))
    scale = float(call.get("scale", 1.0))
    turned = turned if scale == 1 else call.broadcast([turned], lambda v: v * scale)
    return turned if len(shape) == 4 else joined_heads(call, turned)


@operator(
    "com.microsoft:GroupQueryAttention",
    limit="floats",
)
def _group_query(call: Call) -> list[Value]:
    if call.has(12) or call.has(13):
        raise call.unsupported("its cache has scales; export it with a cache of floats")
    if call.get("qk_output", 0):
        raise call.unsupported("its scores are a result; export without that")
    count, shared = int(call.get("num_heads")), int(call.get("kv_num_heads"))
    sides = [call.value(0)]
    size = shape_of(sides[0])[2] // count
    if call.has(1):
        sides += [call.value(1), call.value(2)]
    else:
        size = shape_of(sides[0])[2] // (count + 2 * shared)
        ends = [0, count, count + shared, count + 2 * shared]
        parts = [np.arange(a * size, b * size) for a, b in itertools.pairwise(ends)]
        sides = [take(call, sides[0], 2, part, "heads") for part in parts]
    q, k, v = (heads(call, x, n) for x, n in zip(sides, (count, shared, shared)))
    batch, _, length, _ = shape_of(q)
    total = call.integer(6)

    def past(b: Index) -> Any:
        """The number of past keys: none, where all are new."""
        if total == length:
            return 0
        return f.cast(call.read(call.value(5), (b,)), "int32") + (1 - length)

    if call.get("do_rotary", 0):
        way = bool(call.get("rotary_interleaved", 0))
        given = call.optional(9)

        def place(b: Index, s: Index) -> Any:
            return past(b) + s if given is None else f.cast(call.read(given, (b, s)), "int32")

        q, k = (_turned(call, x, (7, 8), place, way) for x in (q, k))
    keys, values = (_cached(call, n, new, past, total) for n, new in ((3, k), (4, v)))
    rows = count // shared * length
    scores = product(
        call,
        reshaped(call, q, (batch, shared, rows, size)),
        transposed(keys, (0, 1, 3, 2)),
        dtype=sum_type(str(q.dtype)),
    )
    scored = _scores(call, scores, past, (size, count // shared, length))
    weights: Value = softmax_of(scored, -1, str(q.dtype))
    if shape_of(scored) != shape_of(scores):
        weights = take(call, weights, 3, np.arange(shape_of(scores)[3]), "weights")
    made = reshaped(call, product(call, weights, values), (batch, count, length, size))
    made = joined_heads(call, made)
    return [made, keys, values][: len(call.outputs)]


def _turned(
    call: Call,
    x: Value,
    tables: tuple[int, int],
    place: Callable[[Index, Index], Any],
    interleaved: bool,
) -> Value:
    """Pairs of channels `[sample, head, place, channel]` turned by the angles of their places, of
    which inputs are the cosines and sines."""
    cosines, sines = (call.tensor(n) for n in tables)
    tensor, half = call.as_tensor(x), shape_of(cosines)[1]

    def body(b: Index, h: Index, s: Index, c: Index) -> Expr:
        at, own = place(b, s), tensor[b, h, s, c]
        pair, first = (c // 2, f.equal(c % 2, 0)) if interleaved else (c % half, c < half)
        step = 1 if interleaved else half
        other = f.where(first, -tensor[b, h, s, c + step], tensor[b, h, s, c - step])
        turned = own * cosines[at, pair] + other * sines[at, pair]
        return turned if 2 * half == shape_of(x)[3] else f.where(c < 2 * half, turned, own)

    return define("rotary", shape_of(x), body)


def _cached(call: Call, number: int, new: Value, past: Past, total: int) -> Value:
    """The past keys or values with the new ones behind them and zeros after these, in a cache of
    the same length or of all that there are."""
    if not call.has(number):
        return new
    batch, count, length, size = shape_of(new)
    old, fresh = call.tensor(number), call.as_tensor(new)
    longest = shape_of(old)[2]
    if total == length and longest <= length:
        return new

    def body(b: Index, h: Index, t: Index, c: Index) -> Expr:
        first = past(b)
        place = f.min(f.max(t - first, 0), length - 1)
        inside = (t >= first) & (t < first + length)
        found = f.where(inside, fresh[b, h, place, c], 0)
        own = old[b, h, t, c] if longest >= total else f.where(t < longest, old[b, h, t, c], 0)
        return f.where(t < first, own, found)

    return define("cache", (batch, count, max(longest, total), size), body)


def _scores(call: Call, products: Value, past: Past, sizes: tuple[int, int, int]) -> Tensor:
    """Products of queries and keys, scaled, those of later places left out. Rows are `place`s of
    the queries that share keys, one query after the other. Behind them is the sink, if there is
    one: a score of no key."""
    size, group, length = sizes
    scale = float(call.get("scale", 0.0) or 1 / math.sqrt(size))
    cap, window = float(call.get("softcap", 0.0)), int(call.get("local_window_size", -1))
    tensor = call.as_tensor(products)
    bias = call.optional(10)

    def body(b: Index, h: Index, r: Index, t: Index) -> Expr:
        x = tensor[b, h, r, t] * scale
        if cap:
            x = f.tanh(x / cap) * cap
        if bias is not None:
            at = (b, h * group + r // length, r % length, t)
            x = x + f.cast(call.read(bias, at), tensor.dtype)
        last = past(b) + r % length
        seen = t <= last
        if window > 0:
            seen = seen & (t > last - window)
        x = f.where(seen, x, -math.inf)
        if sink is None:
            return x
        own = f.cast(call.read(sink, (h * group + r // length,)), tensor.dtype)
        return f.where(t < keys, x, own)

    *shape, keys = shape_of(products)
    sink: Value | None = call.optional(11)
    if sink is None and call.get("smooth_softmax", 0) == 1:
        sink = np.zeros(1, np.float32)
    return define("scores", (*shape, keys if sink is None else keys + 1), body)
