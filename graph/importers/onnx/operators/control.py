"""Branches and loops: those that known values decide become what they compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import UnsupportedOperator
from loopwright.graph.importers.onnx.call import Call, NotKnown, Value, operator, shape_of
from loopwright.graph.importers.onnx.operators.shapes import joined, reshaped
from loopwright.graph.importers.onnx.operators.slices import take

_MOST = 2048
"""Iterations beyond which a loop is not unrolled."""


@operator("If", limit="where the condition is not known, both branches are computed")
def _if(call: Call) -> list[Value]:
    condition = call.value(0)
    if isinstance(condition, np.ndarray):
        chosen = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        return call.branch(call.get(chosen), [])
    # Both are computed; each element is taken from one of them.
    try:
        both = [call.branch(call.get(name), []) for name in ("then_branch", "else_branch")]
    except UnsupportedOperator as reason:  # perhaps the branch that is never taken
        raise NotKnown(0, call) from reason
    made: list[Value] = []
    for one, other in zip(*both, strict=True):
        if shape_of(one) != shape_of(other) or str(one.dtype) != str(other.dtype):
            raise NotKnown(0, call)
        flat = reshaped(call, condition, ())
        made.append(call.broadcast([flat, one, other], f.where))
    return made


@operator("Loop", limit=f"its length must be known; at most {_MOST} iterations")
def _loop(call: Call) -> list[Value]:
    body = call.get("body")
    limit = call.known(0) if call.has(0) else None
    going: Value = call.value(1) if call.has(1) else np.array(True)
    states = [call.value(n) for n in range(2, len(call.inputs))]
    count = 0
    scanned: list[list[Value]] | None = None
    while limit is None or count < int(limit.reshape(-1)[0]):
        if isinstance(going, Tensor):
            raise NotKnown(1, call)
        if not np.reshape(going, -1)[0]:
            break
        if count == _MOST:
            raise call.unsupported(f"it takes more than {_MOST} iterations")
        results = call.branch(body, [np.array(count, np.int64), going, *states])
        going, states = results[0], results[1 : 1 + len(states)]
        rest = results[1 + len(states) :]
        scanned = [[] for _ in rest] if scanned is None else scanned
        for rows, row in zip(scanned, rest):
            rows.append(row)
        count += 1
    if scanned is None:
        scanned = [[] for _ in range(len(call.outputs) - len(states))]
    return [*states, *(_stacked(call, rows, 0) for rows in scanned)]


@operator("Scan", limit=f"at most {_MOST} iterations; sequences of one length")
def _scan(call: Call) -> list[Value]:
    count = int(call.get("num_scan_inputs"))
    if call.version >= 9:
        return _scanned(call, [call.value(n) for n in range(len(call.inputs))], count)
    if call.has(0):
        raise call.unsupported("its sequences differ in length; give each to a call of its own")
    # Every sample of a batch is scanned on its own.
    inputs = [call.value(n) for n in range(1, len(call.inputs))]
    samples = [
        _scanned(call, [_sample(call, value, n) for value in inputs], count)
        for n in range(shape_of(inputs[0])[0])
    ]
    return [_stacked(call, rows, 0) for rows in zip(*samples)]


def _sample(call: Call, value: Value, place: int, axis: int = 0) -> Value:
    """What stands at one place of an axis, without that axis."""
    shape = shape_of(value)
    part = take(call, value, axis, np.array([place]), "scan")
    return reshaped(call, part, (*shape[:axis], *shape[axis + 1 :]))


def _scanned(call: Call, inputs: Sequence[Value], count: int) -> list[Value]:
    """States and sequences, the last `count` inputs, put through the body step by step."""
    states, sequences = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    axes = _list(call, "scan_input_axes", count)
    back = _list(call, "scan_input_directions" if call.version >= 9 else "directions", count)
    steps = shape_of(sequences[0])[axes[0]]
    if steps > _MOST:
        raise call.unsupported(f"it takes more than {_MOST} iterations")
    scanned: list[list[Value]] = []
    for step in range(steps):
        rows = [
            _sample(
                call,
                value,
                steps - 1 - step if reverse else step,
                call.checked_axis(axis, len(shape_of(value))),
            )
            for value, axis, reverse in zip(sequences, axes, back)
        ]
        results = call.branch(call.get("body"), [*states, *rows])
        states, rest = results[: len(states)], results[len(states) :]
        scanned = scanned or [[] for _ in rest]
        for kept, row in zip(scanned, rest):
            kept.append(row)
    outs = _list(call, "scan_output_axes", len(scanned))
    ways = _list(call, "scan_output_directions", len(scanned))
    return [
        *states,
        *(
            _stacked(call, rows[::-1] if reverse else rows, axis)
            for rows, axis, reverse in zip(scanned, outs, ways)
        ),
    ]


def _list(call: Call, name: str, count: int) -> list[int]:
    return [int(n) for n in call.get(name) or [0] * count]


def _stacked(call: Call, rows: Sequence[Value], axis: int) -> Value:
    """Values side by side along a new axis."""
    if not rows:
        raise call.unsupported("it does nothing, so that its results have no shape")
    shape = shape_of(rows[0])
    at = axis % (len(shape) + 1)
    wide = [reshaped(call, row, (*shape[:at], 1, *shape[at:])) for row in rows]
    return joined(call, wide, at)
