"""Guards of sums that a whole register tile has in common.

    acc[x] += where(y + r >= 1, X[y + r - 1, x], 0) * W[r]    for the x of a tile
     ↦  if y + r >= 1: acc[x] += X[y + r - 1, x] * W[r]    for the x of a tile

A test that no axis of the tile decides is made once for all of it; where it fails, zeros would be
added.
"""

from __future__ import annotations

from dataclasses import replace

from loopwright.dsl.expr import Binary, Const, Expr, IndexValue, Select
from loopwright.dsl.index import Affine
from loopwright.schedule.nest import sliding
from loopwright.schedule.sketch import NestSketch


def without_guards(sketch: NestSketch) -> tuple[tuple[Affine, ...], Expr]:
    """The body of a sum without the guards of its factors that no axis of its register tile
    decides, and for each test of theirs what is more than 0 where it holds."""
    nest, vector = sketch.nest, sketch.vector
    tile = {*sketch.tile, *sliding(nest, vector, sketch.tiled)}
    found: list[Affine] = []

    def bare(x: Expr) -> Expr:
        if isinstance(x, Binary) and x.op == "mul":
            return replace(x, x=bare(x.x), y=bare(x.y))
        if isinstance(x, Select) and isinstance(x.y, Const) and x.y.value == 0:
            tests = _tests(x.cond)
            if tests and all(set(t.indices()).isdisjoint(tile) for t in tests):
                found.extend(tests)
                return bare(x.x)
        return x

    if nest.reducer != "sum" or vector in nest.reduce:
        return (), nest.body
    body = bare(nest.body)
    return tuple(found), body


def _tests(cond: Expr) -> tuple[Affine, ...]:
    """What is more than 0 where each part of a condition holds; none if it has others."""
    if not isinstance(cond, Binary):
        return ()
    if cond.op == "and":
        first, second = _tests(cond.x), _tests(cond.y)
        return (*first, *second) if first and second else ()
    if not isinstance(cond.x, IndexValue) or not isinstance(cond.y, Const):
        return ()
    at, bound = cond.x.value, int(cond.y.value)
    rooms = {"ge": at - (bound - 1), "gt": at - bound, "lt": bound - at, "le": bound + 1 - at}
    return (rooms[cond.op],) if cond.op in rooms else ()
