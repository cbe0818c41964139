"""Prefetching: the next panel of a large operand comes near while this one is used.

Register tiles read a panel of weights several times, the first time from far away and then from
the second-level cache. What waits for memory at first has all of the time to do so instead:

    for panel: for pass < P: for step < I:
      …;  prefetch panel + 1, line ⌊pass · L / P⌋ + ⌊step · ⌈L / P⌉ / I⌋

Its L lines are asked for evenly, since memory is slow: where a pass has more steps than lines,
some of them again. Behind the end, that is the last line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.program.footprint import LINE
from loopwright.schedule.tree import grammar as g

_MOST = 46340  # of a counter, whose square fits 32 bits

Counter = tuple[g.Linear, g.Column]
"""A number that runs from 0, and how many values it takes."""


def prefetches(
    buffer: g.Buffer,
    size: g.Column,
    panel: g.Linear,
    passes: Sequence[Counter],
    steps: Sequence[Counter],
    name: str,
) -> list[g.Stmt]:
    """The hints of one step of one pass: `buffer` is panels of `size` elements, `panel` the number
    of the one in use. None where there is one pass alone: it needs all the lines itself."""
    item = item_bytes(buffer.dtype)
    time, times = _number(passes)
    step, count = _number(steps)
    lines = g.ceildiv(size * item, LINE)
    each = g.ceildiv(lines, times)
    fits = np.minimum(_MOST // np.maximum(times, count), 1)
    several = np.minimum(times - 1, fits) * g.ceildiv(each, count)
    var = g.Var(f"{name}.ahead")
    past = _part(time, times, lines) + _part(step, count, each)
    at = (past + g.Linear(((var, 1),))) * (LINE // item)
    panels = g.Buffer(buffer.name, (buffer.size // size, size), buffer.dtype, buffer.scope)
    return [g.Loop(var, several, "unrolled", (g.Prefetch(panels, (panel + 1, at)),))]


def _part(number: g.Linear, count: g.Column, whole: g.Column) -> g.Linear:
    """⌊number · whole / count⌋, by no larger products than count²."""
    rest = g.Quotient(number * (whole % count), count)
    return number * (whole // count) + g.Linear(((rest, 1),))


def _number(counters: Sequence[Counter]) -> Counter:
    """Several counters as one, the last one running fastest."""
    number = g.Linear()
    count: g.Column = 1
    for value, extent in counters:
        number, count = number * extent + value, count * extent
    return number, count
