"""Entries of a plan, of fixed sizes or open ones: their order, and which arrays each needs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.codegen.library import plan
from loopwright.graph.compile.loops import Parts, needed
from loopwright.graph.compile.memory_plan import Lifetime
from loopwright.graph.loops import Loop
from loopwright.graph.network import Network, Value


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a plan: a step by its number in the network, or a copy, -1, which has no kernel.
    `values` are its arguments, or source and target; those outside of the network have a place.
    `loop` is what repeats it, if anything."""

    step: int
    kernel: Any
    values: tuple[Value | plan.Place, ...]
    loop: Loop[Value] | None = None


def step_entries(
    network: Network,
    live: Container[int],
    parts: Parts,
    arguments: Callable[[int], tuple[Any, tuple[Value | plan.Place, ...]]],
) -> Iterator[Entry]:
    """The live steps in order, each with its kernel and its arguments, and the copies of loops."""
    steps = network.steps
    for loop, numbers in itertools.groupby(range(len(steps)), lambda n: steps[n].loop):
        if loop is not None:
            yield from (Entry(-1, None, copy) for copy in parts.starts[loop])
        yield from (Entry(n, *arguments(n), loop) for n in numbers if n in live)
        if loop is not None:
            yield from (Entry(-1, None, copy, loop) for copy in parts.copies[loop])


def bordered(
    network: Network,
    parts: Parts,
    entries: Iterable[Entry],
    fits: Callable[[Value, Value], bool],
    staged: Container[Value] = (),
) -> tuple[list[Entry], dict[Value, plan.Place]]:
    """The entries between copies of inputs and outputs, and the places in the caller's arrays.

    `staged` inputs are copied. An output is written where it belongs, once, if an array that some
    step makes `fits` it; the others are copied.
    """
    before, after = [], []
    places: dict[Value, plan.Place] = {}
    for number, value in enumerate(network.inputs, plan.ARGUMENTS):
        if value in staged:
            before.append(Entry(-1, None, (plan.Place(number), value)))
        else:
            places[value] = plan.Place(number)
    made = {v for step in network.steps for v in step.outs if parts.of(v).root is v}
    made |= {r.whole for loop in network.loops for r in loop.writes}
    for number, value in enumerate(network.outputs, plan.ARGUMENTS + len(network.inputs)):
        root = parts.of(value).root
        if root in made and root not in places and fits(root, value):
            places[root] = plan.Place(number)
        else:
            after.append(Entry(-1, None, (value, plan.Place(number))))
    return [*before, *entries, *after], places


def lifetimes(
    network: Network, parts: Parts, entries: Sequence[Entry], places: Container[Value]
) -> tuple[list[Value], dict[Value, Lifetime]]:
    """Arrays that entries touch and that have no place: the constants, and the other arrays with
    the entries that need them."""
    uses: dict[Value, list[int]] = {}
    spans: dict[Loop[Value], tuple[int, int]] = {}
    for number, entry in enumerate(entries):
        if entry.loop is not None:
            spans[entry.loop] = spans.get(entry.loop, (number, 0))[0], number
        for v in entry.values:
            if isinstance(v, Value):
                uses.setdefault(parts.of(v).root, []).append(number)
    looped = [(*span, network.made_in(loop)) for loop, span in spans.items()]
    left = {v: ends for v, ends in needed(uses, looped).items() if v not in places}
    return [v for v in left if v.data is not None], {
        v: Lifetime(v.number, v.nbytes, *ends) for v, ends in left.items() if v.data is None
    }


def placed(
    parts: Parts, places: Mapping[Value, plan.Place], value: Value | plan.Place
) -> plan.Place:
    """The place of a value, which may be a part of an array that has one."""
    if isinstance(value, plan.Place):
        return value
    part = parts.of(value)
    root = places[part.root]
    offset = part.offset + root.offset
    return plan.Place(root.space, offset, part.stride, part.several, root.slot)


def planned(
    entries: Iterable[Entry], parts: Parts, places: Mapping[Value, plan.Place]
) -> Iterator[plan.Planned]:
    """The entries as a plan has them, with the places of all that they touch."""

    def one(entry: Entry) -> plan.PlannedCall | plan.PlannedCopy:
        where = tuple(placed(parts, places, value) for value in entry.values)
        if entry.kernel is not None:
            return plan.PlannedCall(entry.kernel, where)
        source, target = where
        size = next(parts.nbytes(v) for v in entry.values if isinstance(v, Value))
        return plan.PlannedCopy(source, target, size)

    for loop, body in itertools.groupby(entries, lambda entry: entry.loop):
        if loop is None:
            yield from map(one, body)
        else:
            yield plan.PlannedLoop(parts.count(loop), tuple(map(one, body)))
