"""Default schedules for a range of sizes of a workload.

A long tile along rows whose length is open computes many elements twice at smaller lengths, where
the last tile overlaps the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import le

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import Dim
from loopwright.schedule.cpu.register_tile import best_tile_between
from loopwright.schedule.cpu.rules import default_choices, nest_knobs
from loopwright.schedule.cpu.sketches import CpuSketches
from loopwright.schedule.open.family import Sized
from loopwright.schedule.program.nest import extent, lanes
from loopwright.schedule.program.plan import has_reuse
from loopwright.schedule.registry import Named, derive
from loopwright.schedule.sketch.sketch import Choice, NestSketch, Sketch
from loopwright.schedule.space import default_sketch
from loopwright.schedule.target import Target

_SHORT = 2
"""Vectors of a tile along an open axis."""
_TILES = 64
"""Parts of an axis of which one may be a tile."""
_PART = 0.3
"""The least size for which a program of some size is meant, too, as a part of it."""


def default_for_smaller(
    workload: Sized, target: Target, numerics: Numerics, sizes: Mapping[str, int]
) -> Sketch:
    """The default sketch at some sizes, with short tiles along what is shorter at smaller ones."""
    found = default_sketch(workload.at(**sizes), target, numerics)
    smaller = {d.name: _part(d, sizes[d.name]) for d in workload.dims}
    try:
        derived = derive(Named(workload.at(**smaller)), target, found.derivation)
    except ConfigError:  # there is no such program
        return found
    own = derive(Named(workload.at(**sizes)), target, found.derivation)
    return _with_short_tiles(
        found, CpuSketches(own, target), CpuSketches(derived, target).first, target
    )


def _with_short_tiles(sketch: Sketch, own: CpuSketches, smaller: Sketch, target: Target) -> Sketch:
    """A sketch whose default tiles are short along axes that are shorter at smaller sizes."""
    if sketch.name != smaller.name:
        return sketch
    places = {knob.name: place for place, knob in enumerate(sketch.knobs)}
    numbers = list(sketch.default)
    for number, (nest, less, leader) in enumerate(
        zip(sketch.nests, smaller.nests, sketch.knobs_of, strict=True)
    ):
        changed = any(extent(a) != extent(b) for a, b in zip(nest.tile, less.tile))
        if changed and leader == number and len(nest.tile) > 1 and has_reuse(nest.nest):
            context = own.contexts[number]
            knobs = {knob.name: knob for knob in nest_knobs(nest, context)}
            tile = best_tile_between(nest, less, context)
            for name, choice in default_choices(nest, context, knobs, tile).items():
                place = places[f"{name}{leader}"]
                numbers[place] = sketch.knobs[place].choices.index(choice)
            continue
        most = _most(nest, less, target)
        if any(extent(a) != extent(b) for a, b in zip(nest.tile, less.tile)) and most:
            place = places[f"tile{leader}"]
            choices = sketch.knobs[place].choices
            now = choices[numbers[place]]
            most = tuple(map(min, most, now))
            fitting = [n for n, c in enumerate(choices) if all(map(le, c, most))]
            if now != most and fitting:
                numbers[place] = max(fitting, key=lambda n: (choices[n][-1], choices[n]))
    return replace(sketch, default=tuple(numbers))


def _most(nest: NestSketch, smaller: NestSketch, target: Target) -> Choice:
    """The greatest tile of a nest that also runs at smaller sizes. Of rows alone it has two
    vectors, or as many as are a small part: the last tile computes again what the one before it
    has. Tiles of what rows do not share, as of pools, have no more rows than there are then."""
    if len(nest.tile) == 1 and (nest.nest.reducer is None or nest.vector in nest.nest.reduce):
        return (max(_SHORT * lanes(nest.nest, target), extent(nest.tile[0]) // _TILES),)
    if len(nest.tile) > 1 and nest.nest.reducer is not None and not has_reuse(nest.nest):
        *rows, _ = map(extent, smaller.tile)
        return (*rows, extent(nest.tile[-1]))
    return ()


def _part(known: Dim, size: int) -> int:
    steps = round(size * _PART / known.multiple)
    return max(known.low, steps * known.multiple)
