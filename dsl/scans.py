"""Scans: sums, products and extremes of all elements up to each one, told from their notation.

    Y[r, i] = sum over k of where(k <= i, X[r, k], 0)
     ↦  for i: acc += X[r, i];  Y[r, i] = acc

The notation says n terms for each of n elements. A loop that keeps its running result takes one
step for each, whatever n is.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.dsl.dtypes import identity
from loopwright.dsl.expr import ORDERS, Binary, Const, Expr, Select
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.ranges import gap, indices_in


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


def scan_of(
    axes: tuple[Index, ...], reduce: tuple[Index, ...], reducer: str | None, body: Expr
) -> Scan | None:
    """The running result that a reduction computes, indices with their extents; or None."""
    if reducer is None or reducer in ORDERS or len(reduce) != 1:
        return None
    if not isinstance(body, Select) or (test := _room(body.cond)) is None:
        return None
    if not isinstance(body.y, Const) or body.y.value != identity(reducer, body.dtype):
        return None
    (k,) = reduce
    steps = dict(test.terms)
    axis = next((a for a in axes if a in steps), None)
    if axis is None or test.const not in (0, 1):
        return None
    if steps not in ({axis: 1, k: -1}, {axis: -1, k: 1}):
        return None
    if axis.extent != k.extent or axis in indices_in(body.x):
        return None
    return Scan(axis, body.x, steps[k] == 1, test.const == 0)


def _room(test: Expr) -> Affine | None:
    """An expression above 0 where a comparison of indices holds; None of any other test."""
    between = gap(test)
    if between is None or not isinstance(test, Binary):
        return None
    rooms = {"gt": between, "ge": between + 1, "lt": -between, "le": 1 - between}
    return rooms.get(test.op)
