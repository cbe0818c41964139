"""Tolerances of comparisons with the oracle, and the slack that ill-conditioned elements need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.dsl import expr as e
from loopwright.dsl.dtypes import epsilon, is_float
from loopwright.dsl.index import Index
from loopwright.dsl.oracle.evaluation import (
    EXACT,
    Array,
    Exact,
    evaluate_element,
    is_step,
    is_sum_of_products,
    run,
)
from loopwright.dsl.tensor import Definition, Tensor
from loopwright.dsl.traversal import children, walk
from loopwright.dsl.workload import Workload, defined, reads

_SIGNS: tuple[tuple[int, ...], ...] = ((1, -1), (1,), (-1,))
"""Ways in which numbers may be off, at random among them."""
_SAMPLED = 4  # places along each axis at which the terms of a sum are looked at


def slack(
    workload: Workload, inputs: Sequence[Array], outputs: Sequence[Array]
) -> tuple[Array, ...]:
    """Tolerance of each element of the outputs of `evaluate` beyond `tolerance`, in float32;
    nothing at all where that is never needed.

    A quotient by a sum that almost vanishes, or the exponential of a large number, makes much of
    the rounding before it; a step (a comparison, what cuts off a fraction) makes a whole number of
    it. So all is computed again, with floating inputs, stages and what steps look at off by what
    they may be, up or down at random, and for steps all up and all down: an element may move twice
    as far as it does then.
    """
    definitions = [defined(s) for s in workload.stages]
    (first, *more) = definitions
    if not more and is_sum_of_products(first):
        if all(isinstance(x, e.Read) for x in children(first.body)):  # terms of magnitude 1
            return ()
    given = [np.asarray(value) for value in inputs]
    rng = np.random.default_rng(0)
    steps = any(d.reducer in e.ORDERS or any(map(is_step, walk(d.body))) for d in definitions)
    runs = [
        run(workload, given, _Off(workload, rng, signs))
        for signs in (_SIGNS if steps else _SIGNS[:1])
    ]
    rtol, atol = tolerance(workload)
    found = []
    for tensor, value, *moved in zip(workload.outputs, outputs, *runs):
        floating = is_float(tensor.dtype)
        exact = value.astype(np.float64)
        beyond = np.zeros(value.shape)
        with np.errstate(all="ignore"):
            for other in moved:
                distance = np.abs(other.astype(np.float64) - exact)
                if floating:
                    distance = 2 * (distance - (atol + rtol * np.abs(exact)))
                beyond = np.fmax(beyond, distance)
        found.append(beyond.astype(np.float32))
    return tuple(found) if any(map(np.any, found)) else ()


def tolerance(workload: Workload, error_growth: float = 1.0) -> tuple[float, float]:
    """`(rtol, atol)` for comparing a program of this workload with the oracle; `error_growth` is
    how much larger its rounding errors may be than those of the definitions' own sums.

    A sum of K terms of magnitude 1 and varying sign walks: σ√k away after k steps, and λσ√k in the
    worst of many results, with λ = √(2 ln N) for N steps in all. Each step rounds by at most ε/2
    of where it stands, at random, so that the errors walk too: λ · λσε/2 · √(Σ k/12), below
    2ε·K for the products of uniform numbers (σ = 1/3) and any N that a machine has memory for.
    (Their worst case, ε/2 · Σ k, is √K times that, and would hide a missing term.) Where terms
    have one sign, the sum stands at K, and its relative error is ε√K. Halves that a sum reads from
    an earlier stage were rounded, also at random. Stages in a row add up.
    """
    bounds = [_bounds(stage) for stage in workload.stages]
    inputs = max((epsilon(t.dtype) for t in workload.inputs), default=0.0)
    coarsest = max((epsilon(t.dtype) for t in workload.stages), default=0.0)
    rtol = 8 * min(inputs, coarsest) + sum(one for one, _ in bounds)
    return rtol, error_growth * sum(other for _, other in bounds)


def _bounds(stage: Tensor) -> tuple[float, float]:
    """Tolerance of a stage whose operands are right, relative and absolute."""
    d = defined(stage)
    worked = [x for x in walk(d.body) if not isinstance(x, (e.Read, e.Const))]
    eps = max(map(epsilon, (stage.dtype, *(x.dtype for x in worked))))
    terms = 1 + sum(isinstance(x, e.Binary) and x.op in ("add", "sub") for x in worked)
    steps = math.prod(i.extent or 1 for i in d.reduce)
    summed = terms * steps if d.reducer in ("sum", "prod") else terms
    read = (r.tensor for r in reads(d.body) if r.tensor.definition is not None)
    rounded = sum(epsilon(t.dtype) for t in set(read) if epsilon(t.dtype) > eps)
    return (eps * (8 + math.sqrt(steps)), eps * (4 + 2 * summed) + 4 * rounded * math.sqrt(steps))


class _Off(Exact):
    """Every floating number is off by what rounding may make of it."""

    def __init__(
        self, workload: Workload, rng: np.random.Generator, signs: tuple[int, ...]
    ) -> None:
        self._inputs, self._rng, self._signs = set(workload.inputs), rng, signs

    def tensor(self, tensor: Tensor, value: Array, values: Mapping[Tensor, Array]) -> Array:
        if not is_float(tensor.dtype):
            return value
        rtol, atol = epsilon(tensor.dtype) / 2, 0.0
        if tensor not in self._inputs:
            # What is to be expected, a quarter of what is allowed.
            rtol, atol = (bound / 4 for bound in _bounds(tensor))
            atol *= _magnitude(defined(tensor), values)
        return self._moved(value, rtol, atol).astype(value.dtype)

    def operand(self, x: e.Expr, value: Array) -> Array:
        return self._moved(value, 8 * epsilon(x.dtype), 0.0) if is_float(x.dtype) else value

    def _moved(self, value: Array, rtol: float, atol: float) -> Array:
        exact = value.astype(np.float64)
        sign: Any = self._signs[0]
        if len(self._signs) > 1:
            sign = 2 * self._rng.integers(2, size=value.shape, dtype=np.int8) - 1
        off = np.abs(exact)  # one array, changed in its place: there may be a hundred million
        off *= rtol
        off += atol
        off *= sign
        off += exact
        return np.asarray(off)


def _magnitude(d: Definition, values: Mapping[Tensor, Array]) -> float:
    """Magnitude of the terms of a sum, by some of them; at least 1."""
    if d.reducer != "sum":
        return 1.0
    grid: dict[Index, Array] = {}
    for number, (index, extent) in enumerate(d.extents.items()):
        span = np.unique(np.linspace(0, extent - 1, _SAMPLED).astype(int))
        grid[index] = span.reshape([-1 if p == number else 1 for p in range(len(d.extents))])
    terms = np.abs(evaluate_element(d.body, grid, values, EXACT))
    return float(np.max(terms, initial=1.0, where=np.isfinite(terms)))
