"""Times of the programs of a library of open sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.codegen.open.library import OpenLibrary
from loopwright.dsl.oracle import random_inputs
from loopwright.dsl.workload import Workload
from loopwright.measure.lease import MachineLease
from loopwright.measure.timing import Repeatable, Timer, Timing, in_rounds, typical

_NEAR = 1.25  # times the least: programs that are slower at a size are not measured again there
_ROUNDS = 3
_FEWEST = 4  # sizes that are measured, however late it is
_TIMING = Timing(cap=0.004, shortest=5e-4, retries=1)


def program_seconds(
    libraries: Sequence[OpenLibrary],
    workload: Workload,
    sizes: Sequence[Mapping[str, int]],
    rng: np.random.Generator,
    late: Callable[[], bool] = lambda: False,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds of a call of every program of some libraries (rows) at every size (columns), on
    random data; infinite where a program is not right for a size. Programs that are much slower
    than the best at a size are measured less well there. When it is `late`, the sizes that are
    left are not measured, but for the first few."""
    every = [(lib, k) for lib in libraries for k in range(len(lib.origin.extra["programs"]))]
    columns: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    for each in sizes:
        if len(columns) >= _FEWEST and late():
            break
        columns.append(_at_size(every, workload.at(**each), each, rng))
    return np.stack(columns, axis=1)


def _at_size(
    every: Sequence[tuple[OpenLibrary, int]],
    fixed: Workload,
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    seconds = np.full(len(every), math.inf)
    data = dict(zip((t.name for t in fixed.inputs), random_inputs(fixed, rng), strict=True))
    able, calls = [], []
    for row, (library, k) in enumerate(every):
        takes = library.origin.extra["programs"][k]["takes"]
        if all(low <= sizes[name] <= high for name, (low, high) in takes.items()):
            one = library._at(sizes, k)
            one = one.bind(**{name: data[name] for name in library.signature.constants})
            able.append(row)
            calls.append(one.prepare_call(*(data[p.name] for p in one.inputs)))
    if able:
        with MachineLease():
            seconds[able] = _seconds(calls)
    return seconds


def _seconds(calls: Sequence[Repeatable]) -> list[float]:
    """Seconds of each of some calls, beside each other."""
    for call in calls:
        call.repeat(1)  # the first one makes the pages of its result, and may be all that is timed
    timers = [Timer(call, _TIMING) for call in calls]
    bound = _NEAR * min(timer.least for timer in timers)
    for k, timer in enumerate(timers):
        if timer.least >= bound:  # slow, or a stall at the first call, after which no other comes
            timers[k] = min(timer, Timer(calls[k], _TIMING), key=lambda t: t.least)
    found = [timer.least for timer in timers]
    near = [t for t in timers if t.least < _NEAR * min(found)]
    for timer, samples in zip(near, in_rounds(near, _ROUNDS, _TIMING), strict=True):
        found[timers.index(timer)] = typical(samples)
    return found
