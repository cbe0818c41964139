"""How long a call takes, for benchmarks that compare calls of any kind."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loopwright.codegen.library.calls import Call
from loopwright.codegen.library.library import Library


def prepared(library: Library, arrays: Mapping[str, Any]) -> Call:
    """A call with arrays by their names, constants laid out ahead."""
    bound = library.bind(**{name: arrays[name] for name in library.signature.constants})
    return bound.prepare_call(**{p.name: arrays[p.name] for p in bound.inputs})


def least(calls: Iterable[Callable[[], object]], budget: float, rounds: int) -> list[float]:
    """The least microseconds of each call by `per_call`, in rounds by turns."""
    turns = [[per_call(call, budget) for call in calls] for _ in range(rounds)]
    return [1e6 * min(each) for each in zip(*turns)]


def per_call(call: Callable[[], object], budget: float) -> float:
    """The median seconds of a call, of at least five and of `budget` seconds, after three that are
    not counted."""
    for _ in range(3):
        call()
    taken, end = list[float](), time.perf_counter() + budget
    while time.perf_counter() < end or len(taken) < 5:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
