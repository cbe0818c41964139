"""Which cases of a large family the fast suite runs: a share of them, in which all values occur.

    pytestmark = pytest.mark.sampled(0.25)

A test function that is so marked keeps that share of its cases, at least one. Cases are taken in
the order of a hash of their names: spread over all parameters, and the same in every run. Those go
first that have the most values that no case of the file has had. In the end each value of each
parameter that is still missing in the file gets a case, but where `every_value=False`. `--slow`
runs all, and so does a run that names tests, by `-k` or `::`.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest


def sampled(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that run: all that are not marked, and the chosen cases of those that are; none
    that is slow."""
    kept: set[pytest.Item] = set()
    files: dict[Any, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is not None:
            continue
        skipped = item.get_closest_marker("skip") is not None
        marked = item.get_closest_marker("sampled") is not None and hasattr(item, "callspec")
        if marked and not skipped:
            files[item.path].append(item)
        else:
            kept.add(item)
    return kept.union(*map(_chosen, files.values()))


def _chosen(items: list[pytest.Function]) -> set[pytest.Item]:
    """The cases of a file that run."""
    functions: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode())):
        functions[item.nodeid.partition("[")[0]].append(item)
    values = {item: _values(item) for item in items}
    seen: set[tuple[str, str]] = set()
    kept: set[pytest.Item] = set()
    for cases in functions.values():
        marker = cases[0].get_closest_marker("sampled")
        left = list(cases)
        for _ in range(max(1, math.ceil(len(cases) * marker.args[0]))):
            best = max(left, key=lambda case: len(values[case] - seen))  # of equals the first
            left.remove(best)
            kept.add(best)
            seen |= values[best]
    for case in (case for cases in functions.values() for case in cases):
        every = case.get_closest_marker("sampled").kwargs.get("every_value", True)
        if every and not values[case] <= seen:
            kept.add(case)
            seen |= values[case]
    return kept


def _values(item: pytest.Function) -> set[tuple[str, str]]:
    """Parameters of a case with their values, in words that are the same for all of its file. An
    object without a name, such as a target, is the one that it is."""

    def word(value: Any) -> str:
        if isinstance(value, str | bytes | int | float | tuple | frozenset | None):
            return repr(value)
        own = getattr(value, "__qualname__", "<lambda>")
        return str(id(value)) if "<lambda>" in own else own

    return {(name, word(value)) for name, value in item.callspec.params.items()}
