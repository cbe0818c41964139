"""Tables of a space's knobs, so that choices of thousands of points are compared by look-up."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.schedule.sketch.sketch import Choice, Knob, Sketch

Table = np.ndarray[Any, np.dtype[np.int64]]

NEAR = 4
"""Choices that count as near to another."""


@dataclass(frozen=True, eq=False)
class KnobTables:
    """Tables of the knobs of S sketches, K of them (at least 1) in the longest.

    Sketches share most of their knobs, so tables are by *kind*: a name and a list of choices.
    Kind 0 is the padding of sketches with fewer than K knobs, and has one choice.

    Attributes
    ----------
    kind, name: of knob k of sketch s, by number; shape (S, K). Padding has the name `names`.
    counts: choices of knob k of sketch s; shape (S, K).
    default: the default choice of knob k of sketch s; shape (S, K).
    names: how many names there are.
    value: a number for the value of a choice, the same wherever a knob of that name has that
        value; shape (kinds, choices).
    near: the choices nearest in value to each choice, without itself; shape (kinds, choices,
        NEAR).
    nearest: the choice nearest to each value of the kind's name; shape (kinds, values).
    known: the values of each name, in the order of their numbers.
    """

    kind: Table
    name: Table
    counts: Table
    default: Table
    names: int
    value: Table
    near: Table
    nearest: Table
    known: tuple[tuple[Choice, ...], ...]

    @functools.cached_property
    def apart(self) -> tuple[np.ndarray[Any, Any], ...]:
        """How far two values are apart, for the sketch and for each name, see `_apart`; the last
        value, or -1, is that of sketches without the knob."""
        return (1.0 - np.eye(1 + len(self.kind)), *map(_apart, self.known))

    @staticmethod
    def of(sketches: tuple[Sketch, ...]) -> KnobTables:
        """Make the tables of a space's sketches."""
        width = max(1, *(len(s.knobs) for s in sketches))
        kinds = list(dict.fromkeys(k for s in sketches for k in s.knobs))
        names = list(dict.fromkeys(k.name for k in kinds))
        shape = (len(sketches), width)
        kind, counts = np.zeros(shape, np.int64), np.ones(shape, np.int64)
        name, default = np.full(shape, len(names), np.int64), np.zeros(shape, np.int64)
        numbers = {k: 1 + i for i, k in enumerate(kinds)}
        for s, sketch in enumerate(sketches):
            used = slice(0, len(sketch.knobs))
            kind[s, used] = [numbers[k] for k in sketch.knobs]
            name[s, used] = [names.index(k.name) for k in sketch.knobs]
            counts[s, used] = [len(k.choices) for k in sketch.knobs]
            default[s, used] = sketch.default
        values: dict[str, dict[Choice, int]] = {n: {} for n in names}
        for knob in kinds:
            known = values[knob.name]
            for choice in knob.choices:
                known.setdefault(choice, len(known))
        tables, listed = _by_kind(kinds, values), tuple(map(tuple, values.values()))
        return KnobTables(kind, name, counts, default, len(names), *tables, listed)


def _by_kind(
    kinds: list[Knob], values: dict[str, dict[Choice, int]]
) -> tuple[Table, Table, Table]:
    most = max((len(k.choices) for k in kinds), default=1)
    value = np.zeros((1 + len(kinds), most), np.int64)
    near = np.zeros((1 + len(kinds), most, NEAR), np.int64)
    nearest = np.zeros((1 + len(kinds), max(map(len, values.values()), default=1)), np.int64)
    for number, knob in enumerate(kinds, 1):
        known, count = values[knob.name], len(knob.choices)
        value[number, :count] = [known[c] for c in knob.choices]
        apart = _distances(tuple(known), knob.choices)
        nearest[number, : len(known)] = np.argmin(apart, axis=1)
        ranked = np.argsort(apart[value[number, :count]], axis=1, kind="stable")[:, 1 : 1 + NEAR]
        if count > 1:  # fewer than NEAR neighbours repeat
            near[number, :count] = ranked[:, np.arange(NEAR) % ranked.shape[1]]
    return value, near, nearest


def _distances(some: tuple[Choice, ...], others: tuple[Choice, ...]) -> np.ndarray[Any, Any]:
    """Distance of choices in powers of two, summed over their numbers."""
    width = max(map(len, (*some, *others)))
    a, b = _powers(some, width), _powers(others, width)
    apart: np.ndarray[Any, Any] = np.abs(a[:, None] - b[None]).sum(axis=2)
    return apart


def _apart(choices: tuple[Choice, ...]) -> np.ndarray[Any, Any]:
    """Distance of values, by three things of equal weight: whether they differ, how far they are
    apart, and how far the powers of two are that divide them, the latter two relative to the
    farthest. With a row and column of ones for a knob that is not there."""
    divisors = tuple(tuple(n & -n for n in choice) for choice in choices)
    whole = np.ones((len(choices) + 1,) * 2)
    whole[-1, -1] = 0.0
    parts = [1.0 - np.eye(len(choices)), _distances(choices, choices)]
    parts.append(_distances(divisors, divisors))
    whole[:-1, :-1] = sum(0.5 * part / (part.max(initial=0.0) or 1.0) for part in parts)
    return whole


def _powers(choices: tuple[Choice, ...], width: int) -> np.ndarray[Any, Any]:
    """Powers of two, aligned at the last number: there is the vector axis."""
    rows = [(0,) * (width - len(choice)) + choice for choice in choices]
    return np.log2(1.0 + np.abs(np.array(rows, np.float64)))
