"""How long a call takes, for benchmarks that compare calls of any kind."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


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
