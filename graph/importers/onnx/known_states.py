"""States of a `Loop` that follow from known values alone, as a counter does, and its condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.graph.importers.onnx.call import Call
from loopwright.graph.importers.onnx.protos import inner_graphs
from loopwright.graph.importers.onnx.values import Array, Value


@dataclass(frozen=True, eq=False)
class Known:
    """Facts of a loop that are known before it runs, states by their numbers: its `count` of
    iterations, those that stay the `same`, `rows` of others before each iteration, and the `last`
    of all."""

    count: int
    same: dict[int, Array]
    rows: dict[int, Array]
    last: dict[int, Array]


def known_states(
    call: Call, body: Any, states: Sequence[Value], limit: int | None, most: int
) -> Known | None:
    """The known states of a loop; None where its condition is not known, or it is too long."""
    chosen = {n for n, x in enumerate(states) if isinstance(x, np.ndarray)}
    while (found := _closed(body, chosen, len(states))) is not None:
        chosen = found
        part = type(body)()
        part.CopyFrom(body)
        del part.output[:]
        numbers = sorted(chosen)
        part.output.extend(body.output[n] for n in (0, *(1 + n for n in numbers)))
        first = call.branch(part, [np.array(0), np.array(True), *states])
        left = {n for n, x in zip(numbers, first[1:]) if isinstance(x, np.ndarray)}
        if left == chosen:
            return _followed(call, part, numbers, list(states), limit, most)
        chosen = left
    return None


def _closed(body: Any, chosen: set[int], count: int) -> set[int] | None:
    """The states that follow from each other alone; None unless the condition does, too."""
    names = [v.name for v in body.input][2:]
    while True:
        others = {names[n] for n in range(count) if n not in chosen}
        left = {n for n in chosen if not others & _sources(body, body.output[1 + n].name)}
        if left == chosen:
            return None if others & _sources(body, body.output[0].name) else chosen
        chosen = left


def _sources(graph: Any, name: str) -> set[str]:
    """The names that an output follows from and that no node of the graph gives."""
    wanted = {name}
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.difference_update(node.output)
            wanted.update(node.input)
            if inner_graphs(node):
                wanted.update(v.name for v in graph.input)
    return wanted


def _followed(
    call: Call, part: Any, numbers: list[int], states: list[Value], limit: int | None, most: int
) -> Known | None:
    rows: dict[int, list[Array]] = {n: [] for n in numbers}
    going, count = True, 0
    while going and (limit is None or count < limit):
        if count == most:
            return None
        for n in numbers:
            rows[n].append(np.asarray(states[n]))
        on, *new = call.branch(part, [np.array(count), np.array(True), *states])
        if not isinstance(on, np.ndarray):
            return None
        states = [*states]
        for n, x in zip(numbers, new):
            if not isinstance(x, np.ndarray) or x.shape != np.shape(states[n]):
                return None
            states[n] = x
        going, count = bool(on.all()), count + 1
    last = {n: np.asarray(states[n]) for n in numbers}
    same = {n: x for n, x in last.items() if all(np.array_equal(x, y) for y in rows[n])}
    stacked = {n: np.stack(values) for n, values in rows.items() if n not in same}
    return Known(count, same, stacked, last)
