"""Attention, and the layers around it, as onnxruntime's optimizer writes them."""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import sum_type
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops.normalization import softmax_of
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.halves import in_float32
from loopwright.graph.importers.onnx.operators.control import row, stacked
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.operators.shapes import joined, reshaped, transposed
from loopwright.graph.importers.onnx.operators.slices import take
from loopwright.graph.importers.onnx.values import Value, define, shape_of

Mask = Callable[[Index, Index, Index], Expr]
"""The addend to the score of a key, by its sample, the place of the query and its own."""
MASKS = "masks of one axis with a length each, of two or of three axes"


@operator("com.microsoft:Attention", limit=MASKS)
def _attention(call: Call) -> list[Value]:
    return _of_projections(call, call.plus(product(call, call.value(0), call.value(1)), 2))


@operator("com.microsoft:QAttention", limit=MASKS)
def _quantized_attention(call: Call) -> list[Value]:
    x, weights, bias, *scales, mask, zero, own, past = (call.optional(n) for n in range(9))
    inputs = (x, weights, *scales, zero, own, bias)
    (made,) = call.by("com.microsoft:MatMulIntegerToFloat", inputs=inputs)
    return _of_projections(replace(call, inputs=(x, weights, bias, mask, past)), made)


def _of_projections(call: Call, made: Value) -> list[Value]:
    """Attention whose queries, keys and values stand side by side in the last axis."""
    for name in ("do_rotary", "qkv_hidden_sizes", "past_present_share_buffer"):
        if call.get(name):
            raise call.unsupported(f"its {name} is not supported; export without it")
    size, count = shape_of(made)[2] // 3, int(call.get("num_heads"))
    sides = [take(call, made, 2, np.arange(size * n, size * (n + 1)), "heads") for n in range(3)]
    queries, *kept = (heads(call, side, count) for side in sides)
    if call.has(4):
        past = call.value(4)
        kept = [joined(call, [row(call, past, n), new], 2) for n, new in enumerate(kept)]
    results = [_attended(call, [queries, *kept], 3)]
    return [*results, stacked(call, kept)] if len(call.outputs) > 1 else results


@operator("com.microsoft:MultiHeadAttention", limit=f"queries, keys and values apart; {MASKS}")
def _multi_head(call: Call) -> list[Value]:
    if call.has(8) or call.has(9) or len(call.outputs) > 3:
        raise call.unsupported(
            "its cache is shared or its scores are a result; export without that"
        )
    if not (call.has(1) and call.has(2)):
        raise call.unsupported("its queries, keys and values are packed; export them apart")
    sides = [call.value(n) for n in range(3)]
    if call.has(3):
        start = 0
        for n, side in enumerate(sides):
            if len(shape_of(side)) == 3:
                size = shape_of(side)[-1]
                own = take(call, call.value(3), 0, np.arange(start, start + size), "bias")
                sides[n] = call.broadcast([side, own], operators.add)
                start += size
    count = int(call.get("num_heads"))
    sides = [side if len(shape_of(side)) == 4 else heads(call, side, count) for side in sides]
    for n in (1, 2):
        if call.has(5 + n):
            sides[n] = joined(call, [call.value(5 + n), sides[n]], 2)
    return [_attended(call, sides, 4), *sides[1:]][: len(call.outputs)]


def heads(call: Call, x: Value, count: int) -> Value:
    """`[sample, place, channel]` as `[sample, head, place, channel of the head]`."""
    batch, length, size = shape_of(x)
    return transposed(reshaped(call, x, (batch, length, count, size // count)), (0, 2, 1, 3))


def joined_heads(call: Call, x: Value) -> Value:
    """The inverse of `heads`."""
    batch, count, length, size = shape_of(x)
    return reshaped(call, transposed(x, (0, 2, 1, 3)), (batch, length, count * size))


def _attended(call: Call, sides: Sequence[Value], mask: int) -> Value:
    """Values weighted by the products of queries and keys, of which input number `mask` hides
    some, and to which input 5 is added."""
    queries, keys, values = sides
    batch, _, length, size = shape_of(queries)
    scale = float(call.get("scale") or 1 / math.sqrt(size))
    wide = sum_type(str(queries.dtype))
    turned = transposed(keys, (0, 1, 3, 2))
    scores = call.as_tensor(product(call, queries, turned, dtype=wide))
    shape = shape_of(scores)
    hidden = _mask(call, mask, (batch, length, shape[-1]))
    added = call.optional(5)
    causal = bool(call.get("unidirectional", 0))

    def score(*i: Index) -> Expr:
        b, _, q, k = i
        x = scores[i] * scale
        x = x if added is None else x + f.cast(call.read(added, i), wide)
        x = x if hidden is None else x + f.cast(hidden(b, q, k), wide)
        return f.where(k <= q + (shape[-1] - length), x, -math.inf) if causal else x

    weights = softmax_of(define("scores", shape, score), -1, str(queries.dtype))
    return joined_heads(call, product(call, weights, values))


def _mask(call: Call, number: int, sizes: tuple[int, int, int]) -> Mask | None:
    """The mask that is an input, for samples, queries and keys: of each key, of each key for each
    query, or how many keys of each sample count."""
    if not call.has(number):
        return None
    own, filler = call.value(number), float(call.get("mask_filter_value", -10000.0))
    batch, _, keys = sizes
    if shape_of(own) == (batch, keys):
        return lambda b, _, k: f.where(f.equal(call.read(own, (b, k)), 0), filler, 0.0)
    if shape_of(own) == sizes:
        return lambda b, q, k: f.where(f.equal(call.read(own, (b, q, k)), 0), filler, 0.0)
    if shape_of(own) == (batch,):
        return lambda b, _, k: f.where(f.cast(call.read(own, (b,)), "int32") > k, 0.0, filler)
    allowed = f"{(batch, keys)}, {sizes} or {(batch,)}"
    raise call.unsupported(f"its mask is of {shape_of(own)}; it may be of {allowed}")


@operator("com.microsoft:SkipSimplifiedLayerNormalization")
@in_float32
def _skip_rms_norm(call: Call) -> Sequence[Value]:
    values = [call.value(n) for n in (0, 1, 3) if call.has(n)]
    x = call.broadcast(values, lambda *v: sum(v[1:], v[0]))
    inputs = x, call.inputs[2]
    (made,) = call.by("com.microsoft:SimplifiedLayerNormalization", inputs=inputs)
    return [made, made, made, x][: len(call.outputs)]


@operator("com.microsoft:EmbedLayerNormalization")
@in_float32
def _embed_layer_norm(call: Call) -> Sequence[Value]:
    ids, (batch, length) = call.value(0), call.shape(0)
    places: Value = call.value(8) if call.has(8) else np.arange(length)[None]
    rows = [(2, ids), (3, places)]
    if call.has(1):
        rows.append((4, call.value(1)))

    def embedded(*i: Index) -> Expr:
        parts = [call.tensor(n)[call.read(at, i[:2]), i[2]] for n, at in rows]
        return sum(parts[1:], parts[0])

    size = call.shape(2)[1]
    total = define("embedded", (batch, length, size), embedded)
    options = {"axis": -1, "epsilon": call.get("epsilon", 1e-12)}
    inputs = total, *call.inputs[5:7]
    made, *_ = call.by("LayerNormalization", inputs=inputs, attributes=options)
    counts: Value = np.zeros(batch, np.int32)
    if call.has(7):
        mask, k = call.tensor(7), Index("k", length)
        counts = define("lengths", (batch,), lambda b: f.sum(f.cast(mask[b, k], "int32")))
    return [made, counts, total][: len(call.outputs)]


@operator("com.microsoft:QEmbedLayerNormalization")
def _quantized_embed_layer_norm(call: Call) -> Sequence[Value]:
    """The same for tables and a scale and shift that are quantized: they are made real."""
    real: list[Value | None] = []
    for n in range(2, 7):
        kept = call.known(n)
        if kept is not None:
            less = call.required(n + 11, 0).astype(np.float32)
            kept = (kept.astype(np.float32) - less) * call.required(n + 6)
        real.append(kept)
    inputs = *call.inputs[:2], *real, call.optional(7)
    return call.by("com.microsoft:EmbedLayerNormalization", inputs=inputs)
