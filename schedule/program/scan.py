"""Scans: sums, products and extremes of all elements up to each one, told from their notation.

    Y[r, i] = sum over k of where(k <= i, X[r, k], 0)
     ↦  for i: acc += X[r, i];  Y[r, i] = acc

The notation says n terms for each of n elements. A loop that keeps its running result takes one
step for each, whatever n is.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.dsl.dtypes import limits
from loopwright.dsl.expr import Const, Expr, Select
from loopwright.dsl.index import Index
from loopwright.dsl.ranges import indices_in
from loopwright.schedule.program.nest import Nest, extent, is_order
from loopwright.schedule.program.padding import room


@dataclass(frozen=True)
class Scan:
    """A running result.

    Attributes
    ----------
    axis: along which it goes.
    body: what each place adds to it, with the reduction's index for the place.
    backward: whether it begins at the last place.
    exclusive: whether a place's own element does not count for it.
    """

    axis: Index
    body: Expr
    backward: bool
    exclusive: bool


def scan_of(nest: Nest) -> Scan | None:
    """The running result that a nest computes; None if it is something else."""
    body = nest.body
    if nest.reducer is None or is_order(nest) or len(nest.reduce) != 1 or nest.start is not None:
        return None
    if not isinstance(body, Select) or (test := room(body.cond)) is None:
        return None
    low, high = limits(body.dtype)
    identity = {"sum": 0, "prod": 1, "max": low, "min": high}[nest.reducer]
    if not isinstance(body.y, Const) or body.y.value != identity or test.const not in (0, 1):
        return None
    (k,) = nest.reduce
    steps = dict(test.terms)
    axis = next((a for a in nest.axes if a in steps), None)
    if axis is None or steps not in ({axis: 1, k: -1}, {axis: -1, k: 1}):
        return None
    if extent(axis) != extent(k) or axis in indices_in(body.x):
        return None
    return Scan(axis, body.x, steps[k] == 1, test.const == 0)
