"""Default schedules for a range of sizes of a workload.

A long tile along rows whose length is open computes many elements twice at smaller lengths, where
the last tile overlaps the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import le

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import Dim
from loopwright.schedule.cpu.register_tile import best_tile, best_tile_between
from loopwright.schedule.cpu.rules import default_choices, nest_knobs
from loopwright.schedule.cpu.sketches import CpuSketches
from loopwright.schedule.open.family import Sized
from loopwright.schedule.program.footprint import NestContext
from loopwright.schedule.program.nest import extent
from loopwright.schedule.program.plan import has_reuse
from loopwright.schedule.registry import Named, derive
from loopwright.schedule.sketch.sketch import Choice, NestSketch, Sketch
from loopwright.schedule.space import default_sketch
from loopwright.schedule.target import Target

_FEW = 8
"""Rows that one register tile has."""
_SHORT = 2
"""Vectors of a tile along an open axis."""
_TILES = 64
"""Parts of an axis of which one may be a tile."""
_PART = 0.3
"""The least size for which a program of some size is meant, too, as a part of it."""


def few(sizes: Mapping[str, int]) -> bool:
    """Return whether so few rows are left that reading the constants is most of the time."""
    return max(sizes.values()) <= _FEW


def default_for_smaller(
    workload: Sized, target: Target, numerics: Numerics, sizes: Mapping[str, int]
) -> Sketch:
    """The default sketch at some sizes, with short tiles along what is shorter at smaller ones."""
    found = default_sketch(workload.at(**sizes), target, numerics)
    if few(sizes) and _reads_weights(found):
        return found  # one tile of all rows goes over the weights once
    less = {d.name: _part(d, sizes[d.name]) for d in workload.dims}
    try:
        own, smaller = (
            CpuSketches(derive(Named(workload.at(**x)), target, found.derivation), target)
            for x in (sizes, less)
        )
    except ConfigError:  # there is no such program
        return found
    return _with_short_tiles(found, own.contexts, smaller.first)


def _reads_weights(sketch: Sketch) -> bool:
    """Return whether rows of data share the elements of a constant, as in products."""
    return any(
        has_reuse(each.nest) and any(r.tensor.constant for r in each.nest.reads())
        for each in sketch.nests
    )


def _with_short_tiles(sketch: Sketch, contexts: Sequence[NestContext], smaller: Sketch) -> Sketch:
    """A sketch whose default tiles are short along axes that are shorter at smaller sizes."""
    if sketch.name != smaller.name:
        return sketch
    places = {knob.name: place for place, knob in enumerate(sketch.knobs)}
    numbers = list(sketch.default)
    for number, leader in enumerate(sketch.knobs_of):
        nest, less, context = sketch.nests[number], smaller.nests[number], contexts[number]
        if number != leader or all(extent(a) == extent(b) for a, b in zip(nest.tile, less.tile)):
            continue
        knobs = {knob.name: knob for knob in nest_knobs(nest, context)}
        tile = _short(nest, less, context, knobs["tile"].choices)
        chosen = default_choices(nest, context, knobs, tile)
        own = {name: sketch.knobs[places[f"{name}{leader}"]].choices for name in chosen}
        # A nest whose speed does not matter has one choice of each.
        if all(choice in own[name] for name, choice in chosen.items()):
            for name, choice in chosen.items():
                numbers[places[f"{name}{leader}"]] = own[name].index(choice)
    return replace(sketch, default=tuple(numbers))


def _short(
    nest: NestSketch, smaller: NestSketch, context: NestContext, choices: Sequence[Choice]
) -> Choice:
    """The tile of a nest that also runs at smaller sizes. Of rows alone it has two vectors, or as
    many as are a small part: the last tile computes again what the one before it has. Tiles of
    what rows do not share, as of pools, have no more rows than there are then."""
    if has_reuse(nest.nest):
        return best_tile_between(nest, smaller, context)
    now, most = best_tile(nest, context), tuple(map(extent, nest.tile))
    if len(nest.tile) > 1 and nest.nest.reducer is not None:
        most = (*map(extent, smaller.tile[:-1]), most[-1])
    elif len(nest.tile) == 1 and (nest.nest.reducer is None or nest.vector in nest.nest.reduce):
        most = (max(_SHORT * context.lanes(nest.nest), most[0] // _TILES),)
    most = tuple(map(min, most, now))
    fitting = [c for c in choices if all(map(le, c, most))]
    return max(fitting, key=lambda c: (c[-1], c), default=now)


def _part(known: Dim, size: int) -> int:
    steps = round(size * _PART / known.multiple)
    return max(known.low, steps * known.multiple)
