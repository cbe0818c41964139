"""Counts of sequences of tokens in others."""

from __future__ import annotations

import functools
import itertools
import operator as operators
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.values import Value, define, number

_MODES = ("TF", "IDF", "TFIDF")


@operator("TfIdfVectorizer", limit="of numbers, each n-gram at a place of its own")
def _tf_idf(call: Call) -> Value:
    if not call.get("pool_int64s"):
        raise call.unsupported("its n-grams are of strings; programs take numbers")
    if (mode := call.get("mode")) not in _MODES:
        raise call.unsupported(f"its mode is {mode!r}; it may be {', '.join(_MODES)}")
    x, shape = call.tensor(0), call.shape()
    places = [int(n) for n in call.get("ngram_indexes")]
    width = max(places) + 1
    if len(set(places)) != len(places):
        raise call.unsupported("two of its n-grams have one place")
    new = (*shape[:-1], width)
    counts = [
        _counts(x, new, call, grams, skip)
        for grams in _pool(call, places).values()
        for skip in range(int(call.get("max_skip_count")) + 1 if len(grams[0][0]) > 1 else 1)
    ]
    weights = call.get("weights")
    table = call.as_tensor(np.asarray(weights, np.float32)) if weights else None

    def body(*i: Index) -> Expr:
        total: Expr = functools.reduce(operators.add, (c[i] for c in counts), number(0, "float32"))
        if mode == "IDF":
            total = f.min(total, 1)
        return total if table is None or mode == "TF" else total * table[i[-1]]

    return define("tfidf", new, body)


Gram = tuple[tuple[int, ...], int]
"""Tokens, and the place of their count."""


def _pool(call: Call, places: Sequence[int]) -> dict[int, list[Gram]]:
    """The n-grams to be counted, by their lengths."""
    tokens = [int(n) for n in call.get("pool_int64s")]
    starts = [*(int(n) for n in call.get("ngram_counts")), len(tokens)]
    low, high = int(call.get("min_gram_length")), int(call.get("max_gram_length"))
    found: dict[int, list[Gram]] = defaultdict(list)
    rest = iter(places)
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        for at in range(start, end, length):
            place = next(rest)
            if low <= length <= high:
                found[length].append((tuple(tokens[at : at + length]), place))
    return found


def _counts(
    x: Tensor, shape: tuple[int, ...], call: Call, grams: Sequence[Gram], skip: int
) -> Tensor:
    """Counts of n-grams of one length in rows, so many tokens left out between theirs."""
    length, extent = len(grams[0][0]), call.shape()[-1]
    spots = extent - (length - 1) * (skip + 1)
    if spots < 1:
        return define("none", shape, lambda *_: number(0, "float32"))
    row = np.full(shape[-1], -1, np.int32)
    for n, (_, place) in enumerate(grams):
        row[place] = n
    tokens = call.as_tensor(np.array([t for t, _ in grams]).astype(x.dtype))
    rows, at = call.as_tensor(row), Index("t", spots)

    def body(*i: Index) -> Expr:
        own = f.max(rows[i[-1]], 0)
        hits = [
            f.equal(x[(*i[:-1], at + k * (skip + 1))], tokens[own, as_expr(k)])
            for k in range(length)
        ]
        hit = functools.reduce(operators.and_, hits, rows[i[-1]] >= 0)
        return f.sum(f.cast(hit, "float32"))

    return define("counts", shape, body)
