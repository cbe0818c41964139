"""Placement of a network's steps on two devices, as a shortest path.

The nodes are the steps in their order, each with the devices on which every live value lies. An
edge runs the next step on one device, after it moved there what it reads. Its length is the time
of both. Values stay where they are, so that the shortest path is the best placement in this order.

Of each step `_STATES` are kept, those with the shortest paths; with no more, the result is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.graph.network import Network, Value

CPU, GPU = "cpu", "gpu"
_STATES = 256

Seconds = dict[str, float]
"""Seconds of a unit by device; a device that cannot run it is left out."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Work that runs on one device: a step, or all steps of a loop. It `reads` values from
    elsewhere, constants left out, and `makes` others."""

    steps: tuple[int, ...]
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]


@dataclass(frozen=True)
class Move:
    """A value that is copied to a device before a unit, or behind the last one."""

    value: Value
    to: str
    before: int
    seconds: float


@dataclass(frozen=True)
class Path:
    """A placement: the device of every unit, what is moved, and the predicted seconds."""

    devices: tuple[str, ...]
    moves: tuple[Move, ...]
    spent: Seconds

    @property
    def total(self) -> float:
        """Predicted seconds of a call."""
        return sum(self.spent.values()) + sum(m.seconds for m in self.moves)


@dataclass(frozen=True)
class Problem:
    """The problem of a placement: `seconds` of every unit, and `moving`, those of copying so many
    bytes to a device."""

    units: tuple[Unit, ...]
    seconds: tuple[Seconds, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    moving: Callable[[int, str], float]

    def along(self, devices: Sequence[str]) -> Path:
        """The path of given devices."""
        there = {(v, CPU) for v in self.inputs}
        moves: list[Move] = []

        def bring(values: Sequence[Value], device: str, before: int) -> None:
            for v in dict.fromkeys(values):
                if v.data is None and (v, device) not in there:
                    moves.append(Move(v, device, before, self.moving(v.nbytes, device)))
                    there.add((v, device))

        spent = {CPU: 0.0, GPU: 0.0}
        for k, (unit, device) in enumerate(zip(self.units, devices, strict=True)):
            bring(unit.reads, device, k)
            there |= {(v, device) for v in unit.makes}
            spent[device] += self.seconds[k][device]
        bring(self.outputs, CPU, len(self.units))
        return Path(tuple(devices), tuple(moves), spent)

    def shortest(self) -> Path:
        """The path of least predicted time; the processor on a tie."""
        last = {v: k for k, unit in enumerate(self.units) for v in unit.reads}
        last |= dict.fromkeys(self.outputs, len(self.units))
        # By state: the length of the shortest path there, and its devices from the last one on.
        states: dict[frozenset[Any], tuple[float, Any]] = {
            frozenset((v, CPU) for v in self.inputs if v in last): (0.0, None)
        }
        for k, unit in enumerate(self.units):
            found: dict[frozenset[Any], tuple[float, Any]] = {}
            for state, (length, before) in states.items():
                for device, seconds in self.seconds[k].items():
                    missing = {v for v in unit.reads if (v, device) not in state}
                    total = length + seconds
                    total += sum(self.moving(v.nbytes, device) for v in missing)
                    there = state | {(v, device) for v in (*missing, *unit.makes)}
                    left = frozenset(pair for pair in there if last.get(pair[0], -1) > k)
                    if left not in found or total < found[left][0]:
                        found[left] = total, (device, before)
            best = sorted(found.items(), key=lambda item: item[1][0])[:_STATES]
            states = dict(best)

        def whole(item: tuple[frozenset[Any], tuple[float, Any]]) -> float:
            state, (length, _) = item
            left = {v for v in self.outputs if v.data is None and (v, CPU) not in state}
            return length + sum(self.moving(v.nbytes, CPU) for v in left)

        _, (_, chain) = min(states.items(), key=whole)
        devices = []
        while chain is not None:
            device, chain = chain
            devices.append(device)
        return self.along(devices[::-1])


def units_of(network: Network) -> tuple[Unit, ...]:
    """The units of a network, in order."""
    found = []
    steps = network.steps
    for loop, some in itertools.groupby(range(len(steps)), lambda n: steps[n].loop):
        numbers = tuple(some)
        for part in [(n,) for n in numbers] if loop is None else [numbers]:
            read = [v for n in part for v in steps[n].args]
            made = [v for n in part for v in steps[n].outs]
            inside = set(made)
            if loop is not None:
                read += loop.given()
                inside |= set(loop.values()) - set(loop.given())
                made = loop.results()
            reads = [v for v in dict.fromkeys(read) if v.data is None and v not in inside]
            found.append(Unit(part, tuple(reads), tuple(dict.fromkeys(made))))
    return tuple(found)
