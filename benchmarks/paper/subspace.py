"""Sub-spaces small enough to be measured whole, with the structure of the space they are of."""

from __future__ import annotations

import math
import string
from dataclasses import replace

from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.sketch import Knob, Sketch
from loopwright.schedule.space import Space

SKETCHES = 6
_OF_TILE = 1.5


def subspace(space: Space, size: int) -> Space:
    """About `size` configs: a few sketches of every algorithm, and of each the knobs of the nest
    that does most of the work, thinned out; the other knobs keep their defaults.

    A larger size gives a superset, so that what was measured before stays of use.
    """
    chosen = _spread(space.sketches)
    return replace(space, sketches=tuple(thinned(s, size // len(chosen)) for s in chosen))


def _spread(sketches: tuple[Sketch, ...]) -> list[Sketch]:
    """`SKETCHES` of them, shared out evenly among algorithms, the first ones where there are more,
    and even over the list of each."""
    families: dict[Derivation, list[Sketch]] = {}
    for sketch in sketches:
        families.setdefault(sketch.algorithm, []).append(sketch)
    chosen: list[Sketch] = []
    for number, family in enumerate(families.values()):
        left = SKETCHES - len(chosen)
        count = min(len(family), math.ceil(left / (len(families) - number)))
        chosen += [family[k] for k in nested_order(len(family), 0)[:count]]
    return chosen


def thinned(sketch: Sketch, size: int) -> Sketch:
    """The sketch with at most `size` configs.

    The knobs of the main nest are widened choice by choice, always the one that has the smallest
    share of its bits, until the next would be one too many. The register tile, which matters
    most, gets more than its share.
    """
    main = max(range(len(sketch.nests)), key=lambda n: sketch.nests[n].nest.steps)
    suffix = str(sketch.knobs_of[main])
    kept = [1] * len(sketch.knobs)
    open_knobs = [
        n for n, k in enumerate(sketch.knobs) if len(k.choices) > 1 and _nest(k) == suffix
    ]
    while open_knobs:
        number = min(open_knobs, key=lambda n: _share(kept[n], sketch.knobs[n]))
        kept[number] += 1
        if math.prod(kept) > size:
            kept[number] -= 1
            break
        if kept[number] == len(sketch.knobs[number].choices):
            open_knobs.remove(number)
    places = [
        sorted(nested_order(len(knob.choices), default)[:count])
        for knob, default, count in zip(sketch.knobs, sketch.default, kept, strict=True)
    ]
    return replace(
        sketch,
        knobs=tuple(
            Knob(knob.name, tuple(knob.choices[p] for p in at))
            for knob, at in zip(sketch.knobs, places, strict=True)
        ),
        default=tuple(at.index(d) for at, d in zip(places, sketch.default, strict=True)),
    )


def _nest(knob: Knob) -> str:
    """The number of the nest whose knob it is: of "block2_1" and "unroll1" 1."""
    return knob.name.rpartition("_")[2].lstrip(string.ascii_lowercase)


def _share(kept: int, knob: Knob) -> float:
    weight = _OF_TILE if knob.name.startswith("tile") else 1.0
    return math.log(kept) / math.log(len(knob.choices)) / weight


def nested_order(count: int, first: int) -> list[int]:
    """The numbers below `count`, each as far as can be from those before it, `first` first."""
    order = [first]
    while len(order) < count:
        left = set(range(count)) - set(order)
        order.append(max(left, key=lambda n: (min(abs(n - o) for o in order), -n)))
    return order
