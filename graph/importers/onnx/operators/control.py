"""Branches and loops: those that known values decide become what they compute."""

from __future__ import annotations

import operator as operators
from collections.abc import Mapping, Sequence

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.tensor import Tensor
from loopwright.graph.errors import UnsupportedOperator
from loopwright.graph.importers.onnx.call import Call, Iterations, Results, operator
from loopwright.graph.importers.onnx.known_states import known_states
from loopwright.graph.importers.onnx.operators.shapes import joined, reshaped, transposed
from loopwright.graph.importers.onnx.operators.slices import take
from loopwright.graph.importers.onnx.values import Array, Value, shape_of

MOST = 2048
"""Iterations beyond which they are not put one behind the other."""
UNLIKE = f"at most {MOST} iterations that differ in what they compute"
_FEW = 2
"""Iterations up to which they are: a loop would hardly make the library smaller, and what stands
side by side is fused. More are as fast in a loop (docs/lab/2026-11-27-recurrences.md)."""
_NUMBERED = 1 << 20
"""Iterations up to which the numbers of all are kept as an array."""


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
        raise call.not_known(0) from reason
    made: list[Value] = []
    for one, other in zip(*both, strict=True):
        if shape_of(one) != shape_of(other) or str(one.dtype) != str(other.dtype):
            raise call.not_known(0)
        flat = reshaped(call, condition, ())
        made.append(call.broadcast([flat, one, other], f.where))
    return made


@operator("Loop", limit=f"its length, or a bound of it, must be known; {UNLIKE}")
def _loop(call: Call) -> list[Value]:
    body = call.get("body")
    limit = call.known(0) if call.has(0) else None
    going: Value = call.value(1) if call.has(1) else np.array(True)
    states = [call.value(n) for n in range(2, len(call.inputs))]
    outs = len(body.output) - 1 - len(states)
    most = None if limit is None else int(limit.reshape(-1)[0])
    if (most is None or most > few(call)) and not isinstance(going, Tensor) and going.all():
        made = _as_loop(call, states, outs, most)
        if made is not None:
            return made
    scanned: list[list[Value]] = [[] for _ in range(outs)]
    count = 0
    while most is None or count < most:
        if isinstance(going, Tensor):
            if most is not None and not outs:
                return _masked(call, going, states, range(count, most))
            if not count:
                raise call.not_known(1)
            raise call.unsupported(
                "what its body computes at a call ends it: give a trip count, and no outputs "
                "besides the states"
            )
        if not np.reshape(going, -1)[0]:
            break
        if count == MOST:
            raise call.unsupported(f"it takes more than {MOST} iterations")
        going, *results = call.branch(body, [np.array(count, np.int64), going, *states])
        states = results[: len(states)]
        for kept, out in zip(scanned, results[len(states) :], strict=True):
            kept.append(out)
        count += 1
    if not count and outs:
        found = call.branch(body, [np.array(0, np.int64), np.array(True), *states])
        return [*states, *_no_rows(found[1 + len(states) :])]
    return [*states, *(stacked(call, kept) for kept in scanned)]


def _masked(call: Call, going: Value, states: Sequence[Value], numbers: range) -> list[Value]:
    """The states after iterations that change nothing once `going` is false."""

    def step(before: list[Value], row: list[Value]) -> Results:
        on, *after = call.branch(call.get("body"), [row[0], *before])
        if [shape_of(x) for x in after] != [shape_of(x) for x in before[1:]]:
            raise call.unsupported("what its body computes at a call decides shapes of its states")
        flat = reshaped(call, before[0], ())
        kept = [call.broadcast([flat, *pair], f.where) for pair in zip(after, before[1:])]
        on = call.broadcast([before[0], reshaped(call, on, shape_of(before[0]))], operators.and_)
        return [on, *kept], []

    rows: list[tuple[Value, bool]] = [(np.array(numbers, np.int64), False)]
    kept, _ = repeated(call, Iterations(len(numbers), [going, *states], rows, [], step))
    return list(kept[1:])


def _as_loop(
    call: Call, states: Sequence[Value], outs: int, most: int | None
) -> list[Value] | None:
    """The result of a `Loop` that begins, as a loop of the network: where its condition is always
    true, or follows from states that are known, which then are rows of an array."""
    body = call.get("body")

    def made(
        count: int, same: Mapping[int, Array], rows: Mapping[int, Array], known: bool
    ) -> Results | None:
        own = [n for n in range(len(states)) if n not in rows and n not in same]

        def step(before: list[Value], row: list[Value]) -> Results:
            now = {**dict(zip(own, before)), **dict(zip(rows, row[1:])), **same}
            on, *results = call.branch(
                body, [row[0], np.array(True), *(now[n] for n in range(len(states)))]
            )
            if not known and (isinstance(on, Tensor) or not on.all()):
                raise call.not_known(1)
            return [results[n] for n in own], results[len(states) :]

        read = [(x, False) for x in (np.arange(count, dtype=np.int64), *rows.values())]
        starts = [states[n] for n in own]
        return loop(call, Iterations(count, starts, read, [False] * outs, step))

    if most is not None and most <= _NUMBERED and (found := made(most, {}, {}, known=False)):
        return [*found[0], *found[1]]
    known = known_states(call, body, states, most, MOST)
    if known is None:
        return None
    if (found := made(known.count, known.same, known.rows, known=True)) is None:
        return None
    lasts = iter(found[0])
    ends = [known.last[n] if n in known.last else next(lasts) for n in range(len(states))]
    return [*ends, *found[1]]


@operator("Scan", limit=f"sequences of one length; {UNLIKE}")
def _scan(call: Call) -> list[Value]:
    count = int(call.get("num_scan_inputs"))
    if call.version >= 9:
        return _scanned(call, [call.value(n) for n in range(len(call.inputs))], count)
    if call.has(0):
        raise call.unsupported("its sequences differ in length; give each to a call of its own")
    # Every sample of a batch is scanned on its own.
    inputs = [call.value(n) for n in range(1, len(call.inputs))]
    samples = [
        _scanned(call, [row(call, value, n) for value in inputs], count)
        for n in range(shape_of(inputs[0])[0])
    ]
    return [stacked(call, rows) for rows in zip(*samples)]


def _scanned(call: Call, inputs: Sequence[Value], count: int) -> list[Value]:
    """States and sequences, the last `count` inputs, put through the body step by step."""
    body = call.get("body")
    states, sequences = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    axes = call.numbers("scan_input_axes", count)
    back = call.numbers("scan_input_directions" if call.version >= 9 else "directions", count)
    rows = []
    for value, axis, backward in zip(sequences, axes, back):
        at = call.checked_axis(axis, len(shape_of(value)))
        rest = [d for d in range(len(shape_of(value))) if d != at]
        rows.append((transposed(value, (at, *rest)), bool(backward)))
    lengths = sorted({shape_of(value)[0] for value, _ in rows})
    if len(lengths) > 1:
        raise call.unsupported(f"its sequences have {lengths} rows; they have as many each")

    def step(states: list[Value], rows: list[Value]) -> Results:
        results = call.branch(body, [*states, *rows])
        return results[: len(states)], results[len(states) :]

    outs = len(body.output) - len(states)
    ways = [bool(n) for n in call.numbers("scan_output_directions", outs)]
    last, made = repeated(call, Iterations(lengths[0], states, rows, ways, step))
    return [*last, *map(_placed, [call] * outs, made, call.numbers("scan_output_axes", outs))]


def _placed(call: Call, value: Value, axis: int) -> Value:
    """The first axis in another place."""
    order = list(range(1, len(shape_of(value))))
    order.insert(call.checked_axis(axis, len(order) + 1), 0)
    return transposed(value, order)


def few(call: Call) -> int:
    """Iterations up to which they are put one behind the other. In a model of open axes any number
    is a loop, for at other sizes there are more."""
    return 0 if call.open else _FEW


def loop(call: Call, iterations: Iterations) -> Results | None:
    """Iterations as a loop; None for few, and where one iteration does not stand for all."""
    return call.loop(iterations) if iterations.count > few(call) else None


def repeated(call: Call, iterations: Iterations) -> Results:
    """Iterations as a loop, or else one behind the other."""
    return loop(call, iterations) or _unrolled(call, iterations)


def _unrolled(call: Call, iterations: Iterations) -> Results:
    count, states = iterations.count, list(iterations.states)
    if count > MOST:
        raise call.unsupported(f"it takes more than {MOST} iterations")
    if not count and iterations.backward:
        none: list[Value] = [np.zeros(shape_of(x)[1:], str(x.dtype)) for x, _ in iterations.rows]
        return states, _no_rows(iterations.body(states, none)[1])
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


def _no_rows(parts: Sequence[Value]) -> list[Value]:
    """What iterations give that are none, by the parts that one would have given."""
    return [np.zeros((0, *shape_of(x)), str(x.dtype)) for x in parts]


def row(call: Call, value: Value, place: int) -> Value:
    """The part at one place of the first axis, without that axis."""
    part = take(call, value, 0, np.array([place]), "row")
    return reshaped(call, part, shape_of(value)[1:])


def stacked(call: Call, rows: Sequence[Value]) -> Value:
    """Values side by side along a new first axis."""
    if not rows:
        raise call.unsupported("it does nothing, so that its results have no shape")
    return joined(call, [reshaped(call, x, (1, *shape_of(x))) for x in rows], 0)
