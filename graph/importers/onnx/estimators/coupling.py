"""Shares of classes from the shares that each has beside each other one.

Algorithm 2 of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise
Coupling" (2004): shares p, together 1, for which p Q p is least, Q following from those of pairs.
One class after the other gets the share that is best beside those of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, Iterations, Results
from loopwright.graph.importers.onnx.operators.control import repeated
from loopwright.graph.importers.onnx.values import Value, all_of, define, shape_of

_SWEEPS = 100
"""Sweeps over the classes after which shares are taken as they are, as in LIBSVM."""
_SPREAD = 0.005
"""The difference between classes, times their number, at which LIBSVM stops before."""


def sides(count: int) -> tuple[tuple[int, ...], ...]:
    """The first classes of all pairs, and the second ones."""
    return tuple(zip(*combinations(range(count), 2)))


def coupled(call: Call, won: Tensor, count: int) -> Tensor:
    """The shares of `count` classes in each row, by the share of the first class of each pair, in
    the order (0, 1), (0, 2), ..., (1, 2)."""
    rows, k = shape_of(won)[0], Index("k", count)
    factors = _factors(call, won, count)
    shares = define("share", (rows, count), lambda _, c: f.cast(1 / count, "float32"))
    slopes = define("slope", (rows, count), lambda i, c: f.sum(factors[i, c, k]) / count)
    moves = define("moves", (rows,), lambda _: f.equal(0, 0))
    turns = np.tile(np.arange(count, dtype=np.int32), max(_SWEEPS, count))
    states: list[Value] = [shares, slopes, moves]
    step = _step(call, factors, count)
    made, _ = repeated(call, Iterations(len(turns), states, [(turns, False)], [], step))
    return call.as_tensor(made[0])


def _factors(call: Call, won: Tensor, count: int) -> Tensor:
    """Q of each row: of two classes, minus the product of their shares in the pair; of one, the
    sum of the squares of all others' shares beside it."""
    rows, pairs, k = shape_of(won)[0], sides(count), Index("k", count)
    numbers = np.zeros((count, count), np.int32)
    numbers[pairs] = numbers[pairs[::-1]] = np.arange(len(pairs[0]))
    place = call.as_tensor(numbers)

    def of_pair(row: Index, one: Index, other: Index) -> Expr:
        first = won[row, place[one, other]]
        return f.where(one < other, first, 1 - first)

    share = define("pair", (rows, count, count), of_pair)

    def factor(row: Index, one: Index, other: Index) -> Expr:
        lost = f.where(f.equal(k, one), 0.0, share[row, k, one])
        both = share[row, one, other] * share[row, other, one]
        return f.where(f.equal(one, other), f.sum(lost * lost), -both)

    return define("factor", (rows, count, count), factor)


def _step(
    call: Call, factors: Tensor, count: int
) -> Callable[[list[Value], list[Value]], Results]:
    """The step of one class. States are the shares, Q times them, and which rows still move; rows
    stop at the beginning of a sweep."""
    rows, k = shape_of(factors)[0], Index("k", count)

    def step(before: list[Value], read: list[Value]) -> Results:
        shares, slopes, moved = map(call.as_tensor, before)
        own = call.as_tensor(read[0])[()]
        mean = define("mean", (rows,), lambda i: f.sum(shares[i, k] * slopes[i, k]))

        def is_moving(i: Index) -> Expr:
            is_far = f.max(f.abs(slopes[i, k] - mean[i])) >= _SPREAD / count
            return all_of([moved[i], is_far | (own > 0)])

        def change(i: Index) -> Expr:
            more = (mean[i] - slopes[i, own]) / factors[i, own, own]
            return f.where(moves[i], more, 0.0)

        moves = define("moves", (rows,), is_moving)
        by = define("change", (rows,), change)

        def following(name: str, old: Tensor, more: Callable[[Index, Index], Expr]) -> Tensor:
            shape = rows, count
            return define(name, shape, lambda i, c: (old[i, c] + more(i, c)) / (1 + by[i]))

        mine = following("share", shares, lambda i, c: f.where(f.equal(c, own), by[i], 0.0))
        others = following("slope", slopes, lambda i, c: by[i] * factors[i, own, c])
        return [mine, others, moves], []

    return step
