"""Iterations of a body: a loop of the network, or one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.graph.importers.onnx.call import Call, Iterations, Results, Value, shape_of
from loopwright.graph.importers.onnx.operators.shapes import joined, reshaped
from loopwright.graph.importers.onnx.operators.slices import take

MOST = 2048
"""Iterations beyond which they are not put one behind the other."""
UNLIKE = f"at most {MOST} iterations that differ in what they compute"
_FEW = 2
"""Iterations up to which they are: a loop of them saves little, and steps of two iterations that
stand side by side are fused."""


def loop(call: Call, iterations: Iterations) -> Results | None:
    """Iterations as a loop; None for few, and where one iteration does not stand for all."""
    return call.loop(iterations) if iterations.count > _FEW else None


def repeated(call: Call, iterations: Iterations) -> Results:
    """Iterations as a loop, or else one behind the other."""
    return loop(call, iterations) or _unrolled(call, iterations)


def _unrolled(call: Call, iterations: Iterations) -> Results:
    count, states = iterations.count, list(iterations.states)
    if count > MOST:
        raise call.unsupported(f"it takes more than {MOST} iterations")
    made: list[list[Value]] = [[] for _ in iterations.backward]
    for number in range(count):
        rows = [
            row(call, value, count - 1 - number if backward else number)
            for value, backward in iterations.rows
        ]
        states, outs = iterations.body(states, rows)
        for kept, out in zip(made, outs, strict=True):
            kept.append(out)
    ways = zip(made, iterations.backward)
    return states, [stacked(call, x[::-1] if backward else x) for x, backward in ways]


def row(call: Call, value: Value, place: int) -> Value:
    """What stands at one place of the first axis, without that axis."""
    part = take(call, value, 0, np.array([place]), "row")
    return reshaped(call, part, shape_of(value)[1:])


def stacked(call: Call, rows: Sequence[Value]) -> Value:
    """Values side by side along a new first axis."""
    if not rows:
        raise call.unsupported("it does nothing, so that its results have no shape")
    return joined(call, [reshaped(call, x, (1, *shape_of(x))) for x in rows], 0)
