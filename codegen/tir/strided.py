"""Loads whose lanes stand a few elements apart, as contiguous loads and a shuffle.

TVM makes one scalar load per lane of them. A few vector loads of the same elements and one shuffle
are several times as fast.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Expr

from loopwright.codegen.tir.indices import number

MOST = 4
"""The largest step; beyond it, most of what is loaded would be thrown away."""


def strided_load(buffer: Any, base: Expr, step: int, lanes: int) -> Expr:
    """The vector buffer[base], buffer[base + step], … of `lanes` elements.

    It touches nothing outside of the first and the last of them: the last load ends with it.

        step 2, 4 lanes:  a = buffer[base …+3], b = buffer[base+3 …+6];  a0 a2 b1 b3
    """
    last = (step - 1) * (lanes - 1)  # where the last load begins
    starts = [min(number * lanes, last) for number in range(-(-(last + lanes) // lanes))]
    parts = [
        tirx.BufferLoad(buffer, [tirx.Ramp(base + number(start), number(1), lanes)])
        for start in starts
    ]
    chosen = []
    for lane in range(lanes):
        at = step * lane
        part = next(n for n, start in enumerate(starts) if start <= at < start + lanes)
        chosen.append(number(part * lanes + at - starts[part]))
    return tirx.Shuffle(parts, chosen)
