"""Subscripts of loops of one iteration, and means of one element, as where there are more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.schedule.open.family import Share

_MOST_WAYS = 64
"""Subscripts that are tried in place of one."""
_MOST_PLACES = 1 << 16
"""Values of its indices at which one is compared."""


def as_of_many(form: Any, greatest: Any, *others: Any) -> Any:
    """A workload, as `to_numbered_json` has it, whose subscripts are written as those of the
    greatest sizes are, where they are equal. A factor of 1 is a reciprocal where it is one there.
    `others` are forms at other sizes, by which numbers are told apart that are equal there.

    `x[0, j] ↦ x[i, j]`  where `i` counts one row here, and more there.
    `where(i < 1, x[0], y[i - 1]) ↦ where(i < 1, x[i], y[i - 1])`  where `i < 5` takes `x[i]`.
    `x[i, 0] ↦ x[i // 1, i % 1]`  where it is `x[i // 3, i % 3]` there.
    `1.0 ↦ 1 / 1`  where it is `1 / 16` there.
    """
    alike = [f for f in others if len(f["tensors"]) == len(greatest["tensors"])]
    pairs = [*zip(form["tensors"], zip(*(f["tensors"] for f in (greatest, *alike))))]
    shapes = [(own["shape"], *(t["shape"] for t in there)) for own, there in pairs]
    tensors = [
        _tensor(own, there, shapes) if "body" in own and "body" in there[0] else own
        for own, there in pairs
    ]
    return {**form, "tensors": tensors + form["tensors"][len(tensors) :]}


def _tensor(own: Any, there: Sequence[Any], shapes: list[tuple[Any, ...]]) -> Any:
    if own["body"] == there[0]["body"]:
        return own
    extents = dict((*own["axes"], *own["reduce"]))
    bodies = [t.get("body") for t in there]
    return {**own, "body": _Rewriting(extents, shapes).part(own["body"], bodies)}


Where = tuple[tuple[Any, bool], ...]
"""Tests around a part, each with whether it holds there."""


@dataclass(frozen=True)
class _Rewriting:
    """Writes the body of a definition as at the greatest sizes. `shapes` are those of all tensors,
    here, there and at other sizes."""

    extents: Mapping[str, int]
    shapes: list[tuple[Any, ...]]

    def part(self, own: Any, there: Sequence[Any], where: Where = ()) -> Any:
        """A part of the body, by what stands at the greatest sizes and at others, None where that
        is unlike, where tests hold or do not."""
        greatest = there[0]
        if own == 1 and isinstance(own, float) and isinstance(greatest, float):
            share = Share.taken(greatest)
            return Share(1, True) if share is not None and share.inverse else own
        if _is_subscript(own) and _is_subscript(greatest):
            return self._subscript(own, there, where)
        if isinstance(own, list) and isinstance(greatest, list) and len(own) == len(greatest):
            inside = [where] * len(own)
            if own[:1] == ["where"] == greatest[:1]:
                inside[2:] = ((*where, (own[1], holds)) for holds in (True, False))
            same = [t if isinstance(t, list) and len(t) == len(own) else None for t in there]
            return [
                self.part(x, [t and t[k] for t in same], tests)
                for k, (x, tests) in enumerate(zip(own, inside))
            ]
        if isinstance(own, dict) and isinstance(greatest, dict) and own.keys() == greatest.keys():
            keyed = [t if isinstance(t, dict) and t.keys() == own.keys() else None for t in there]
            return {
                key: self.part(x, [t and t[key] for t in keyed], where) for key, x in own.items()
            }
        return own

    def _subscript(self, own: Any, there: Sequence[Any], where: Where) -> Any:
        greatest = there[0]
        if _written_alike(own, greatest):
            return own
        tests = [(test, holds) for test, holds in where if _is_bound(test)]
        bound = (name for test, _ in tests for name in _names(test[1][1]))
        names = sorted({*_names(own), *_names(greatest), *bound})
        extents = [self.extents.get(name, 0) for name in names]
        if not 0 < math.prod(extents) <= _MOST_PLACES:  # an index of another definition is none
            return own
        places = dict(zip(names, np.ogrid[tuple(slice(n) for n in extents)]))
        here = _values(own, places)
        read = np.True_
        for test, holds in tests:
            read = read & ((_values(test[1][1], places) < test[2][1]) == holds)
        alike = {
            k: _of_numbers(t)
            for k, t in enumerate(there)
            if _is_subscript(t) and _written_alike(t, greatest)
        }
        ways = itertools.product(
            *(self._numbers(dict(zip(alike, ns))) for ns in zip(*alike.values()))
        )
        for way in itertools.islice(ways, _MOST_WAYS):
            made = _with(greatest, iter(way))
            if ((_values(made, places) == here) | ~read).all():
                return made
        return own

    def _numbers(self, numbers: Mapping[int, int]) -> list[int]:
        """What a number of the greatest sizes, the first of some, may be here: the product of
        some extents of a tensor, the fewest first, if it is that wherever it is known."""
        number = numbers[0]
        if number < 0:
            return [-n for n in self._numbers({k: -n for k, n in numbers.items()})]
        if number <= 1:
            return [number]
        found = dict[int, int]()
        for own, *there in self.shapes:
            if any(len(shape) != len(own) for shape in there):
                continue
            for count in range(1, len(own) + 1):
                for axes in itertools.combinations(range(len(own)), count):
                    if all(math.prod(there[k][a] for a in axes) == n for k, n in numbers.items()):
                        made = math.prod(own[a] for a in axes)
                        found[made] = min(count, found.get(made, count))
        return [*sorted(found, key=lambda n: found[n]), *([] if number in found else [number])]


def _is_subscript(x: Any) -> bool:
    """Return whether this is `[[[atom, coefficient], …], constant]`."""
    if not (isinstance(x, list) and len(x) == 2 and isinstance(x[0], list)):
        return False
    return isinstance(x[1], int) and all(isinstance(t, list) and len(t) == 2 for t in x[0])


def _is_bound(test: Any) -> bool:
    """Return whether a test is `["lt", ["index", subscript], ["const", number, …]]`."""
    if not (isinstance(test, list) and test[0] == "lt"):
        return False
    return bool(test[1][0] == "index" and test[2][0] == "const")


def _written_alike(own: Any, greatest: Any) -> bool:
    """Return whether two subscripts differ in numbers alone."""
    if len(own[0]) != len(greatest[0]):
        return False
    for (atom, _), (other, _) in zip(own[0], greatest[0]):
        if isinstance(atom, str) or isinstance(other, str):
            if atom != other:
                return False
        elif atom[1] != other[1] or not _written_alike(atom[0], other[0]):
            return False
    return True


def _names(x: Any) -> Iterator[str]:
    for atom, _ in x[0]:
        if isinstance(atom, str):
            yield atom
        else:
            yield from _names(atom[0])


def _of_numbers(x: Any) -> Iterator[int]:
    """Coefficients, divisors and constants of a subscript, in the order in which `_with` takes
    others."""
    for atom, coefficient in x[0]:
        if not isinstance(atom, str):
            yield from _of_numbers(atom[0])
            yield atom[2]
        yield coefficient
    yield x[1]


def _with(x: Any, numbers: Iterator[int]) -> Any:
    """A subscript with other numbers."""
    terms = []
    for atom, _ in x[0]:
        made = atom
        if not isinstance(atom, str):
            value = _with(atom[0], numbers)
            made = [value, atom[1], next(numbers)]
        terms.append([made, next(numbers)])
    return [terms, next(numbers)]


def _values(x: Any, places: Mapping[str, Any]) -> Any:
    """A subscript at all places."""
    total = x[1]
    for atom, coefficient in x[0]:
        if isinstance(atom, str):
            value = places[atom]
        else:
            inner = _values(atom[0], places)
            value = inner // atom[2] if atom[1] == "//" else inner % atom[2]
        total = total + value * coefficient
    return np.asarray(total)
