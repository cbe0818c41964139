"""Recurrences: RNN, GRU and LSTM, as loops inside of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import Call, Iterations, Results, operator
from loopwright.graph.importers.onnx.operators.activations import activation, taken
from loopwright.graph.importers.onnx.operators.control import repeated
from loopwright.graph.importers.onnx.operators.elementwise import within
from loopwright.graph.importers.onnx.operators.linear import product
from loopwright.graph.importers.onnx.operators.shapes import joined, reshaped, transposed
from loopwright.graph.importers.onnx.operators.slices import take
from loopwright.graph.importers.onnx.values import Value, define, shape_of

Activation = Callable[[Expr], Expr]
States = list[Value]
"""The hidden state, and of an LSTM its cells."""


@dataclass(frozen=True)
class _Direction:
    """The weights of one direction, and its activations. Products see of data and states what
    `seen` makes of them."""

    w: Value
    r: Value
    bias: Value | None
    peepholes: Value | None
    backward: bool
    activations: tuple[Activation, ...]
    seen: Callable[[Tensor], Tensor] | None
    columns: dict[tuple[int, int], Value] = field(default_factory=dict)

    def of_state(self, call: Call, first: int, stop: int) -> Value:
        """The columns of some gates that a state is multiplied by, one array for all steps."""
        if (first, stop) not in self.columns:
            rows = take(call, self.r, 0, np.arange(first, stop))
            self.columns[first, stop] = transposed(rows, (1, 0))
        return self.columns[first, stop]

    def product(self, call: Call, x: Value, weights: Value) -> Value:
        """The product of data, or of a state, and weights."""
        return product(call, self.seen(call.as_tensor(x)) if self.seen else x, weights)


def recurrence(call: Call, seen: Callable[[Tensor], Tensor] | None = None) -> list[Value]:
    """The results of a recurrence, whose products see of data and states what `seen` makes of
    them."""
    x = call.value(0)
    if call.get("layout", 0):
        x = transposed(x, (1, 0, 2))
    batch = shape_of(x)[1]
    hidden = shape_of(call.value(2))[-1]
    kinds = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    ways = kinds[call.get("direction", "forward")]
    state = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}[call.op]
    count = 2 if call.op == "LSTM" else 1
    made: list[Value] = []
    lasts: list[list[Value]] = [[] for _ in range(count)]
    for number, backward in enumerate(ways):
        direction = _Direction(
            _of(call, 1, number),
            _of(call, 2, number),
            _of(call, 3, number) if call.has(3) else None,
            _of(call, 7, number) if call.has(7) else None,
            backward,
            _activations(call, number),
            seen,
        )
        starts = [_start(call, 5 + n, number, batch, hidden) for n in range(count)]
        states, (out,) = _run(call, x, direction, starts, state)
        made.append(reshaped(call, out, (shape_of(x)[0], 1, batch, hidden)))
        for kept, value in zip(lasts, states, strict=True):
            kept.append(reshaped(call, value, (1, batch, hidden)))
    y, ends = joined(call, made, 1), [joined(call, last, 0) for last in lasts]
    if call.get("layout", 0):
        y = transposed(y, (2, 0, 1, 3))
        ends = [transposed(end, (1, 0, 2)) for end in ends]
    return [y, *ends][: len(call.outputs)]


operator("RNN", "GRU", "LSTM")(recurrence)


def _of(call: Call, place: int, number: int) -> Value:
    """The part of an input that is one direction's."""
    value = call.value(place)
    part = take(call, value, 0, np.array([number]))
    return reshaped(call, part, shape_of(value)[1:])


def _start(call: Call, place: int, number: int, batch: int, hidden: int) -> Value:
    if not call.has(place):
        return np.zeros((batch, hidden), call.dtype())
    value = call.value(place)
    if call.get("layout", 0):
        value = transposed(value, (1, 0, 2))
    part = take(call, value, 0, np.array([number]))
    return reshaped(call, part, (batch, hidden))


def _run(
    call: Call, x: Value, d: _Direction, starts: States, state: Callable[..., States]
) -> Results:
    """The states after all steps, and the hidden state after each, in the order of time."""
    steps, batch, width = shape_of(x)
    gates = shape_of(d.w)[0]
    flat = reshaped(call, x, (steps * batch, width))
    # What does not depend on the state: one product for all steps.
    ahead = d.product(call, flat, transposed(d.w, (1, 0)))
    ahead = _biased(call, ahead, d, gates)
    rows = [(reshaped(call, ahead, (steps, batch, gates)), d.backward)]
    lengths = call.optional(4)
    if isinstance(lengths, np.ndarray) and (lengths == steps).all():
        lengths = None
    if lengths is not None:
        rows.append((np.arange(steps, dtype=np.int32), d.backward))
    clip = call.get("clip")

    def step(states: list[Value], rows: list[Value]) -> Results:
        new = state(call, rows[0], states, d, None if clip is None else float(clip))
        if lengths is None:
            return new, new[:1]
        kept = [_while(call, n, old, lengths, rows[1]) for n, old in zip(new, states)]
        return kept, [_while(call, new[0], None, lengths, rows[1])]

    return repeated(call, Iterations(steps, starts, rows, [d.backward], step))


def _biased(call: Call, ahead: Value, d: _Direction, gates: int) -> Value:
    """The sums that are known ahead, with those biases that belong to no product of the state."""
    if d.bias is None:
        return ahead
    own = take(call, d.bias, 0, np.arange(gates))
    other = take(call, d.bias, 0, np.arange(gates, 2 * gates))
    if call.op == "GRU" and call.get("linear_before_reset", 0):
        kept = 2 * (gates // 3)  # the last gate's bias is inside of what is reset
        mask = (np.arange(gates) < kept).astype(str(d.w.dtype))
        other = call.broadcast([other, mask], lambda a, m: a * m)
    return call.broadcast([ahead, own, other], lambda a, b, c: a + b + c)


def _while(call: Call, new: Value, old: Value | None, lengths: Value, step: Value) -> Value:
    """The new state as long as a sequence has steps, then the old one, or zero."""

    def body(b: Index, k: Index) -> Expr:
        going = f.cast(call.read(lengths, (b,)), "int32") > call.read(step, ())
        return f.where(going, call.read(new, (b, k)), 0 if old is None else call.read(old, (b, k)))

    return define("state", shape_of(new), body)


def _gates(call: Call, now: Value, h: Value, d: _Direction) -> Tensor:
    """The sums of all gates."""
    state = d.product(call, h, d.of_state(call, 0, shape_of(now)[-1]))
    return call.broadcast([now, state], lambda a, b: a + b)


def _clipped(x: Expr, clip: float | None) -> Expr:
    return x if clip is None else within(x, -clip, clip)


def _rnn(call: Call, now: Value, states: States, d: _Direction, clip: float | None) -> States:
    sums = _gates(call, now, states[0], d)
    return [define("h", shape_of(sums), lambda *i: d.activations[0](_clipped(sums[i], clip)))]


def _gru(call: Call, now: Value, states: States, d: _Direction, clip: float | None) -> States:
    (h,) = states
    batch, width = shape_of(h)
    inner, outer = d.activations
    if call.get("linear_before_reset", 0):
        held = call.as_tensor(d.product(call, h, d.of_state(call, 0, 3 * width)))
        ahead, bias = call.as_tensor(now), None if d.bias is None else call.as_tensor(d.bias)

        def after(b: Index, k: Index) -> Expr:
            z = inner(_clipped(ahead[b, k] + held[b, k], clip))
            r = inner(_clipped(ahead[b, k + width] + held[b, k + width], clip))
            last = held[b, k + 2 * width]
            if bias is not None:
                last = last + bias[k + 5 * width]
            n = outer(_clipped(ahead[b, k + 2 * width] + r * last, clip))
            return n - z * n + z * call.read(h, (b, k))

        return [define("h", (batch, width), after)]
    gates = call.as_tensor(d.product(call, h, d.of_state(call, 0, 2 * width)))

    def gate(shift: int) -> Callable[[Index, Index], Expr]:
        return lambda b, k: inner(
            _clipped(call.read(now, (b, k + shift)) + gates[b, k + shift], clip)
        )

    reset = define("reset", (batch, width), lambda b, k: gate(width)(b, k) * call.read(h, (b, k)))
    held = call.as_tensor(d.product(call, reset, d.of_state(call, 2 * width, 3 * width)))

    def body(b: Index, k: Index) -> Expr:
        z = gate(0)(b, k)
        n = outer(_clipped(call.read(now, (b, k + 2 * width)) + held[b, k], clip))
        return n - z * n + z * call.read(h, (b, k))

    return [define("h", (batch, width), body)]


def _lstm(call: Call, now: Value, states: States, d: _Direction, clip: float | None) -> States:
    h, c = states
    batch, width = shape_of(h)
    sums = _gates(call, now, h, d)
    inner, cell, outer = d.activations
    coupled = bool(call.get("input_forget", 0))

    def gate(number: int, b: Index, k: Index, seen: Expr | None = None) -> Expr:
        x = sums[b, k + number * width]
        if d.peepholes is not None and seen is not None:
            x = x + call.as_tensor(d.peepholes)[k + number * width] * seen
        return _clipped(x, clip)

    def cells(b: Index, k: Index) -> Expr:
        before = call.read(c, (b, k))
        i = inner(gate(0, b, k, before))
        forget = 1 - i if coupled else inner(gate(2, b, k, before))
        return forget * before + i * cell(gate(3, b, k))

    new_c = define("c", (batch, width), cells)

    def body(b: Index, k: Index) -> Expr:
        return inner(gate(1, b, k, new_c[b, k])) * outer(new_c[b, k])

    return [define("h", (batch, width), body), new_c]


_ACTIVATIONS = (
    *("Tanh", "Sigmoid", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh"),
    *("HardSigmoid", "Elu", "Softsign", "Softplus"),
)
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def _activations(call: Call, number: int) -> tuple[Activation, ...]:
    """The functions of a direction. Those of all directions take their numbers in turn, and only
    those that have some, as in onnxruntime."""
    count = len(_DEFAULTS[call.op])
    names = [str(n) for n in call.get("activations") or []]
    names = names[: (number + 1) * count]
    if len(names) <= number * count:
        names = _DEFAULTS[call.op] * (number + 1)
    left = [iter(call.get(f"activation_{each}") or []) for each in ("alpha", "beta")]
    found = []
    for name in names:
        rule = _rule(call, name)
        found.append(activation(rule, *(next(each, None) for each in left[: taken(rule)])))
    return tuple(found[number * count :])


def _rule(call: Call, name: str) -> str:
    for rule in _ACTIVATIONS:
        if name.lower() == rule.lower():
            return rule
    raise call.unsupported(f"its activation is {name!r}; it may be {', '.join(_ACTIVATIONS)}")
