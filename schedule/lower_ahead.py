"""Prefetching: the next panel of a large operand comes near while this one is used.

Register tiles read a panel of weights several times, the first time from far away and then from
the second-level cache. What waits for memory at first has all of the time to do so instead:

    for panel: for pass < P: for step < I:  …;  prefetch panel + 1, line (pass · I + step) · R

R, lines a step, is as small as reaches the end of the panel; behind it, its last line is asked for
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.context import LINE
from loopwright.schedule.tree import (
    Buffer,
    Column,
    Linear,
    Loop,
    Prefetch,
    Stmt,
    Var,
    ceildiv,
)

Counter = tuple[Linear, Column]
"""A number that runs from 0, and how many values it takes."""


def prefetches(
    buffer: Buffer,
    size: Column,
    panel: Linear,
    passes: Sequence[Counter],
    steps: Sequence[Counter],
    name: str,
) -> list[Stmt]:
    """The hints of one step of one pass: `buffer` is panels of `size` elements, `panel` the number
    of the one in use. None where there is one pass alone: it needs all the lines itself."""
    item = item_bytes(buffer.dtype)
    turn, turns = _number([*passes, *steps])
    _, again = _number(passes)
    lines = ceildiv(ceildiv(size * item, LINE), turns)
    several: Column = np.minimum(again - 1, 1)
    var = Var(f"{name}.ahead")
    at = (turn * lines + Linear(((var, 1),))) * (LINE // item)
    panels = Buffer(buffer.name, (buffer.size // size, size), buffer.dtype, buffer.scope)
    return [Loop(var, several * lines, "unrolled", (Prefetch(panels, (panel + 1, at)),))]


def _number(counters: Sequence[Counter]) -> Counter:
    """Several counters as one, the last one running fastest."""
    number = Linear()
    count: Column = 1
    for value, extent in counters:
        number, count = number * extent + value, count * extent
    return number, count
