"""Times of the programs of a library of open sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.codegen.open.library import OpenLibrary
from loopwright.dsl.oracle import random_inputs
from loopwright.dsl.workload import Workload
from loopwright.measure.lease import MachineLease
from loopwright.measure.timing import Repeatable, Timer, Timing, in_rounds, typical

_NEAR = 1.25  # times the least: programs that are slower at a size are not measured again there
_ROUNDS = 3
_TIMING = Timing(cap=0.004, shortest=5e-4, retries=1)


def program_seconds(
    library: OpenLibrary,
    workload: Workload,
    sizes: Sequence[Mapping[str, int]],
    rng: np.random.Generator,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds of a call of every program (rows) at every size (columns), on random data; infinite
    where a program is not right for a size. Programs that are much slower than the best at a size
    are measured less well there."""
    programs = library.origin.extra["programs"]
    seconds = np.full((len(programs), len(sizes)), math.inf)
    for n, each in enumerate(sizes):
        able = [
            k
            for k, p in enumerate(programs)
            if all(low <= each[name] <= high for name, (low, high) in p["takes"].items())
        ]
        fixed = workload.at(**each)
        data = dict(zip((t.name for t in fixed.inputs), random_inputs(fixed, rng), strict=True))
        calls = []
        for k in able:
            one = library._at(each, k)
            one = one.bind(**{name: data[name] for name in library.signature.constants})
            calls.append(one.prepare_call(*(data[p.name] for p in one.inputs)))
        if able:
            with MachineLease():
                seconds[able, n] = _seconds(calls)
    return seconds


def _seconds(calls: Sequence[Repeatable]) -> list[float]:
    """Seconds of each of some calls, beside each other."""
    timers = [Timer(call, _TIMING) for call in calls]
    found = [timer.least for timer in timers]
    near = [t for t in timers if t.least < _NEAR * min(found)]
    for timer, samples in zip(near, in_rounds(near, _ROUNDS, _TIMING), strict=True):
        found[timers.index(timer)] = typical(samples)
    return found
