"""Iterations as a loop: the body is read once, for an iteration that stands for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.definitions import Definitions, Part, Repeated, read_by
from loopwright.graph.importers.onnx.call import Iterations, Results
from loopwright.graph.importers.onnx.lifted import lifted
from loopwright.graph.importers.onnx.values import Value, shape_of
from loopwright.graph.loops import Loop, Row, State

if TYPE_CHECKING:
    from loopwright.graph.importers.onnx.graph import Graph


def looped(graph: Graph, name: str, iterations: Iterations) -> Results | None:
    """The states after the last iteration, and the rows of all.

    None where one iteration does not stand for all: it decides by its number or by a state what
    to compute, a state changes its shape, or functions of TVM's are in it.
    """
    kept = graph.definitions, dict(graph.scaled), set(graph.seen), dict(graph.names)
    graph.definitions, graph.looping = [], True
    loop: Loop[Tensor] | None = None
    own: list[Definitions] = []
    outside: list[Part] = []
    try:
        loop = _loop(graph, name, iterations)
        own, outside = _split(graph.definitions, loop)
    except LoopwrightError:
        pass
    finally:
        graph.definitions, graph.looping = kept[0], False
    same = {n for n, s in enumerate(loop.states) if s.after is s.before} if loop else set()
    if loop is None or not own or same:
        graph.scaled, graph.seen, graph.names = kept[1:]
        return _with_constants(graph, name, iterations, same) if own and same else None
    graph.definitions += outside
    loop, own = lifted(loop, own)
    inside = {*(t for part in own for t in part.tensors), *_found(loop)}
    read = [r for part in own for t in part.tensors for r in read_by(t)]
    inputs = dict.fromkeys(t for t in (*loop.given(), *loop.made(), *read) if t not in inside)
    made = Repeated(name, loop, tuple(own), tuple(inputs), tuple(loop.results()))
    for t in made.tensors:
        t.operands = made.inputs
    graph.keep(made)
    return [s.last for s in loop.states], [r.whole for r in loop.writes]


def _with_constants(
    graph: Graph, name: str, iterations: Iterations, same: set[int]
) -> Results | None:
    """The same loop; some of its states stay the `same`, and are none."""
    kept = [n for n in range(len(iterations.states)) if n not in same]

    def every(states: Sequence[Value]) -> list[Value]:
        now = dict(zip(kept, states, strict=True))
        return [now.get(n, start) for n, start in enumerate(iterations.states)]

    def body(states: list[Value], rows: list[Value]) -> Results:
        after, made = iterations.body(every(states), rows)
        return [after[n] for n in kept], made

    starts = [iterations.states[n] for n in kept]
    found = looped(graph, name, replace(iterations, states=starts, body=body))
    return None if found is None else (every(found[0]), found[1])


def _loop(graph: Graph, name: str, iterations: Iterations) -> Loop[Tensor]:
    """The loop, with what its body computes recorded. Raises `LoopwrightError`."""

    def tensor(value: Value) -> Tensor:
        if 0 in shape_of(value):
            raise LoopwrightError(f"{value} has no elements")
        return value if isinstance(value, Tensor) else graph.weights.tensor(value)

    starts = [tensor(value) for value in iterations.states]
    wholes = [(tensor(value), backward) for value, backward in iterations.rows]
    befores = [Tensor(f"{name}_state", t.shape, t.dtype) for t in starts]
    reads = [Row(Tensor(f"{name}_row", shape_of(t)[1:], t.dtype), t, b) for t, b in wholes]
    states, rows = iterations.body(list(befores), [r.part for r in reads])
    afters, parts = [tensor(x) for x in states], [tensor(x) for x in rows]
    graph.record(name, [*afters, *parts])
    if [(t.shape, t.dtype) for t in afters] != [(t.shape, t.dtype) for t in starts]:
        raise LoopwrightError("a state does not keep its shape")
    lasts = [Tensor(f"{name}_last", t.shape, t.dtype) for t in starts]
    count = iterations.count
    return Loop(
        count,
        tuple(State(*each) for each in zip(befores, starts, afters, lasts, strict=True)),
        tuple(reads),
        tuple(
            Row(part, Tensor(name, (count, *shape_of(part)), part.dtype), backward)
            for part, backward in zip(parts, iterations.backward, strict=True)
        ),
    )


def _found(loop: Loop[Tensor]) -> list[Tensor]:
    """The values that an iteration begins with."""
    return [s.before for s in loop.states] + [r.part for r in loop.reads]


def _split(parts: Sequence[Part], loop: Loop[Tensor]) -> tuple[list[Definitions], list[Part]]:
    """The values that differ from one iteration to the next, and those that do not."""
    differ = set(_found(loop))
    own: list[Definitions] = []
    outside: list[Part] = []
    for part in parts:
        if not isinstance(part, Definitions):
            if differ.intersection(part.inputs):
                raise LoopwrightError(f"{part.name} is computed by functions of TVM's")
            outside.append(part)
            continue
        inside = []
        for t in part.tensors:
            if differ.intersection(read_by(t)):
                differ.add(t)
                inside.append(t)
        rest = tuple(t for t in part.tensors if t not in differ)
        if inside:
            own.append(Definitions(part.name, tuple(inside)))
        if rest:
            outside.append(Definitions(part.name, rest))
    return own, outside
