"""Predicates of sums: terms that are 0 where a test fails are left out, and not added as zeros.

    acc[x] += where(y + r >= 1, X[y + r - 1, x], 0) * W[r]    for the x of a tile
     ↦  if y + r >= 1: acc[x] += X[y + r - 1, x] * W[r]    for the x of a tile

A test that no axis of the register tile decides is made once for all of it. Where one does, with
the taps of a window, these are written out: the compiler then knows which places of the tile meet
which taps, but for tiles that may stand at an edge or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopwright.dsl.expr import Binary, Cast, Const, Expr, IndexValue, Select
from loopwright.dsl.index import Affine, Index
from loopwright.dsl.traversal import walk
from loopwright.schedule.program.heuristics import PROGRAM
from loopwright.schedule.program.nest import Nest, extent, sliding


@dataclass(frozen=True)
class Predicates:
    """The body of a sum without predicates, and tests, each by what is more than 0 where terms
    count: those that all of a register tile shares (`whole`), and those of its `places`, with
    their `taps`."""

    whole: tuple[Affine, ...]
    places: tuple[Affine, ...]
    taps: frozenset[Index]
    body: Expr


def predicates(nest: Nest, vector: Index | None, tiled: tuple[Index, ...]) -> Predicates:
    """The predicates of the factors of a sum's terms that its vectors have in common."""
    tile, lanes = set(tiled), {vector, *sliding(nest, vector, tiled)}
    whole: list[Affine] = []
    places: list[Affine] = []

    def kind(test: Affine) -> list[Affine] | None:
        used = set(test.indices())
        if used.isdisjoint(tile | lanes):
            return whole
        taps = math.prod(map(extent, _taps(nest, [*places, test])))
        return places if used.isdisjoint(lanes) and 1 < taps <= PROGRAM.written_out_taps else None

    def bare(x: Expr) -> Expr:
        if isinstance(x, Binary) and x.op == "mul" and not nest.keeps_zeros:
            return replace(x, x=bare(x.x), y=bare(x.y))
        if isinstance(x, Cast):
            return replace(x, x=bare(x.x))
        if isinstance(x, Select) and isinstance(x.y, Const) and x.y.value == 0:
            tests = _tests(x.cond)
            kinds = [found for test in tests if (found := kind(test)) is not None]
            if tests and len(kinds) == len(tests):
                for test, found in zip(tests, kinds, strict=True):
                    found.append(test)
                return bare(x.x)
        return x

    if nest.reducer != "sum" or vector in nest.reduce:
        return Predicates((), (), frozenset(), nest.body)
    body = bare(nest.body)
    return Predicates(tuple(whole), tuple(places), _taps(nest, places), body)


def tested(nest: Nest) -> frozenset[Index]:
    """The axes of a sum that tests of its predicates depend on; none of another nest."""
    if nest.reducer != "sum":
        return frozenset()
    conditions = (x.cond for x in walk(nest.body) if isinstance(x, Select))
    tests = (test for cond in conditions for test in _tests(cond))
    return frozenset(i for test in tests for i in test.indices() if i in nest.axes)


def _taps(nest: Nest, places: list[Affine]) -> frozenset[Index]:
    """The reduction axes that tests depend on."""
    return frozenset(i for test in places for i in test.indices() if i in nest.reduce)


def share(nest: Nest, tests: tuple[Affine, ...]) -> float:
    """The share of the steps of a nest in which all of these are more than 0; those over the same
    axes are counted together, those with divisions, or over very many places, not at all."""
    alike: dict[frozenset[Index], list[Affine]] = {}
    for test in tests:
        alike.setdefault(frozenset(test.indices()), []).append(test)
    result = 1.0
    for used, same in alike.items():
        axes = [i for i in nest.extents if i in used]
        plain = all(isinstance(atom, Index) for test in same for atom, _ in test.terms)
        few = math.prod(map(extent, axes)) <= PROGRAM.counted_places
        if plain and few and len(axes) == len(used):
            at: dict[object, Any] = dict(zip(axes, np.indices([extent(i) for i in axes])))
            held = [t.const + sum(c * at[i] for i, c in t.terms) > 0 for t in same]
            result *= float(np.mean(np.logical_and.reduce(held)))
    return result


def _tests(cond: Expr) -> tuple[Affine, ...]:
    """Terms that are more than 0 where each part of a condition holds; none if it has others."""
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
