"""The sizes of blocks and tiles that suit a range of sizes of a workload.

Where rows are computed in blocks of R, the last block overlaps the one before it, so N rows take
the time of ⌈N / R⌉ * R. The R that is best at the greatest size of a range may waste as much again
at others. So do long tiles along rows whose length is open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import Dim
from loopwright.dsl.workload import Workload
from loopwright.schedule.cpu.sketches import CpuSketches
from loopwright.schedule.open.family import Sized
from loopwright.schedule.program.nest import extent, lanes
from loopwright.schedule.registry import Named, derive, variants
from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.space import default_sketch
from loopwright.schedule.target import Target

_SHORT = 2
"""Vectors of a tile along an open axis."""
_TILES = 64
"""Parts of an axis of which one may be a tile."""
_PARTS = (0.8, 0.6, 0.45, 0.3)
"""Smaller sizes for which a program of some size is meant, too, as parts of it."""


def default_for_smaller(
    workload: Sized, target: Target, numerics: Numerics, sizes: Mapping[str, int]
) -> Sketch:
    """The default sketch at some sizes, with short tiles along what is open. Where its program
    computes blocks, they have as many rows as is estimated to be best at these and at smaller
    sizes together, if it is not better without blocks."""
    smaller = ({d.name: _part(d, sizes[d.name], part) for d in workload.dims} for part in _PARTS)
    every = [workload.at(**sizes), *(workload.at(**each) for each in smaller)]
    found = _default(every, target, numerics)
    try:
        derived = derive(Named(every[-1]), target, found.derivation)
    except ConfigError:  # there is no such program
        return found
    return _with_short_tiles(found, CpuSketches(derived, target).first, target)


def _default(every: Sequence[Workload], target: Target, numerics: Numerics) -> Sketch:
    """The default sketch of the first one, its blocks chosen for all."""
    greatest = every[0]
    default = default_sketch(greatest, target, numerics)
    if default.algorithm == default.derivation:
        return default
    without = default_sketch(greatest, target, numerics, frozenset(default.derivation.names))
    plain = [_cycles(w, target, without.derivation) for w in every]

    def cost(derivation: Derivation) -> float:
        own = [_cycles(w, target, derivation) for w in every]
        if own[0] is None:  # rows are those of another axis where an image has one row
            return math.inf
        return sum(math.log(x or y or 1) for x, y in zip(own, plain, strict=True))

    known = (v.derivation for w in every for v in variants(Named(w), target, numerics))
    alike = dict.fromkeys(d for d in known if d.algorithm == default.algorithm)
    best = min((*alike, without.derivation), key=cost)
    return CpuSketches(derive(Named(greatest), target, best), target).first


def _with_short_tiles(sketch: Sketch, smaller: Sketch, target: Target) -> Sketch:
    """A sketch whose default tiles along axes that are shorter at smaller sizes have two vectors,
    or as many as are a small part: the last tile computes again what the one before it has."""
    if sketch.name != smaller.name:
        return sketch
    places = {knob.name: place for place, knob in enumerate(sketch.knobs)}
    numbers = list(sketch.default)
    for nest, less, leader in zip(sketch.nests, smaller.nests, sketch.knobs_of, strict=True):
        if len(nest.tile) != 1 or extent(nest.tile[0]) == extent(less.tile[0]):
            continue
        if nest.nest.reducer is None or nest.vector in nest.nest.reduce:
            most = max(_SHORT * lanes(nest.nest, target), extent(nest.tile[0]) // _TILES)
            place = places[f"tile{leader}"]
            choices = sketch.knobs[place].choices
            fitting = [n for n in range(len(choices)) if choices[n][0] <= most]
            if choices[numbers[place]][0] > most and fitting:
                numbers[place] = max(fitting, key=choices.__getitem__)
    return replace(sketch, default=tuple(numbers))


def _part(known: Dim, size: int, part: float) -> int:
    steps = round(size * part / known.multiple)
    return max(known.low, steps * known.multiple)


def _cycles(workload: Workload, target: Target, derivation: Derivation) -> float | None:
    """The estimate of a program; None where there is no such program, and others are used."""
    try:
        return CpuSketches(derive(Named(workload), target, derivation), target).rank
    except ConfigError:
        return None
