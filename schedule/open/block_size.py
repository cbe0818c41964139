"""The sizes of blocks that suit a range of sizes of a workload.

Where rows are computed in blocks of R, the last block overlaps the one before it, so N rows take
the time of ⌈N / R⌉ * R. The R that is best at the greatest size of a range may waste as much again
at others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.dsl.size import Dim
from loopwright.dsl.workload import Workload
from loopwright.schedule.cpu.sketches import CpuSketches
from loopwright.schedule.open.family import Sized
from loopwright.schedule.registry import Named, derive, variants
from loopwright.schedule.sketch.naming import Derivation
from loopwright.schedule.sketch.sketch import Sketch
from loopwright.schedule.space import default_sketch
from loopwright.schedule.target import Target

_PARTS = (0.8, 0.6, 0.45, 0.3)
"""Smaller sizes for which a program of some size is meant, too, as parts of it."""


def default_for_smaller(
    workload: Sized, target: Target, numerics: Numerics, sizes: Mapping[str, int]
) -> Sketch:
    """The default sketch at some sizes; where its program computes blocks, of as many rows as is
    estimated to be best at these and at smaller sizes together, if not without blocks."""
    greatest = workload.at(**sizes)
    default = default_sketch(greatest, target, numerics)
    if default.algorithm == default.derivation:
        return default
    smaller = ({d.name: _part(d, sizes[d.name], part) for d in workload.dims} for part in _PARTS)
    every = [greatest, *(workload.at(**each) for each in smaller)]
    without = default_sketch(greatest, target, numerics, frozenset(default.derivation.names))
    plain = [_cycles(w, target, without.derivation) for w in every]

    def cost(derivation: Derivation) -> float:
        own = (_cycles(w, target, derivation) for w in every)
        return sum(math.log(x or y or 1) for x, y in zip(own, plain, strict=True))

    known = (v.derivation for w in every for v in variants(Named(w), target, numerics))
    alike = dict.fromkeys(d for d in known if d.algorithm == default.algorithm)
    best = min((*alike, without.derivation), key=cost)
    return CpuSketches(derive(Named(greatest), target, best), target).first


def _part(known: Dim, size: int, part: float) -> int:
    steps = round(size * part / known.multiple)
    return max(known.low, steps * known.multiple)


def _cycles(workload: Workload, target: Target, derivation: Derivation) -> float | None:
    """The estimate of a program; None where there is no such program, and others are used."""
    try:
        return CpuSketches(derive(Named(workload), target, derivation), target).rank
    except ConfigError:
        return None
