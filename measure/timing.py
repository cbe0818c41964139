"""Timing of a call: samples until their median is known well enough.

A sample is the mean of as many calls as fill a millisecond (of one call, with cold caches).
Samples are taken until the confidence interval of their median is narrow, or the time is up.

*Calibration.* How many calls fill a sample follows from the least that a call has taken so far. A
stall makes a call longer and never shorter, so that it does not fix this number for good.

*Equal lengths.* Candidates that are compared take samples of equal seconds, not of equal calls.
What a sample costs once (cold caches, threads that wake) and what disturbs it in proportion to its
length are then equal shares of every candidate's time, and cancel in a ratio.

*Turns.* Noise comes in waves that are longer than a candidate's samples, and what falls into one
looks slow. So candidates that are to be compared are sampled in rounds, and a wave slows one
sample of each of them. What they cost is the lower quartile of their samples (`typical`), for
other programs only ever add to the time, and on a busy machine they do so more often than not.

*Disturbed samples.* Threads that share a core with each other, or with another program, make a
sample that says nothing of the call. CPU time over elapsed time is the number of cores that were
at work: no call that is let alone keeps less than one busy, nor fewer than the same call did
before. A sample that falls short of that is thrown away and taken again, a bounded number of
times. So is one that differs from the others by what no program explains: its calls took much
longer than the least so far, or were too few to fill it.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

_ENOUGH = 0.9  # share of the cores at work that a sample must have had
_APART = 1.5  # times what is usual: a sample that is longer, or shorter, was disturbed
_REPEATS = 3  # of a number of calls, the least of which must fill a sample
_MOST_CALLS = 1 << 24


class Repeatable(Protocol):
    """Call that can be timed; see `codegen.library.calls.Call`."""

    def repeat(self, times: int, /) -> tuple[float, float]:
        """Call it `times` times: elapsed seconds, and CPU seconds of the whole process."""


@dataclass(frozen=True)
class Timing:
    """Precision of a measurement.

    Attributes
    ----------
    relative: half the width of the median's confidence interval, over the median, at which
        sampling stops.
    confidence: of that interval.
    cap: seconds spent on undisturbed samples after which it stops anyway; flushes count, so
        cold caches want more.
    shortest: seconds that a sample lasts at least.
    cache: "warm", or "cold": everything is flushed out of the caches before every call.
    retries: samples that are thrown away at most because they were disturbed; where candidates
        are sampled in rounds, of each sample, and no more than two.
    """

    relative: float = 0.02
    confidence: float = 0.95
    cap: float = 0.04
    shortest: float = 1e-3
    cache: str = "warm"
    retries: int = 20

    def __post_init__(self) -> None:
        if self.cache not in ("warm", "cold"):
            raise ValueError(f'cache is {self.cache!r}; it must be "warm" or "cold"')

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


ZERO_SHOT_TIMING = Timing(relative=0.03, cap=0.02)
"""Precision of measurements when there is no time."""


@dataclass(frozen=True)
class Sample:
    """`seconds` of one call; `spent` seconds in all, flush included; `cores` at work."""

    seconds: float
    spent: float
    cores: float


class Timer:
    """Times one call, again and again.

    Attributes
    ----------
    first: the first sample, of one call.
    least: seconds of a call, the least of all samples that were long enough to tell; those of the
        first one where none was.
    """

    def __init__(
        self,
        call: Repeatable,
        timing: Timing,
        flush: Callable[[], None] | None = None,
        warm_up: Callable[[], object] | None = None,
    ) -> None:
        """`flush` empties the caches; it is needed for cold ones only. `warm_up` comes before a
        sample with warm ones; by default it is a call. Runs the call a few times, to warm it up
        and to learn how often it fits into a sample."""
        self._call, self._timing = call, timing
        self._warm_up = warm_up or functools.partial(call.repeat, 1)
        self._flush = flush if timing.cache == "cold" else None
        self._cores = 1.0
        self.least = math.inf
        self.first = self._take(1)
        if self._flush is None and self.first.seconds < timing.cap:
            self._calibrate()
        elif math.isinf(self.least):
            self.least = self.first.seconds

    def _calibrate(self) -> None:
        """Find a number of calls of which the least of several repeats fills a sample."""
        times, shortest = 1, self._timing.shortest
        while True:
            least = math.inf
            for _ in range(_REPEATS):
                least = min(least, self._take(times).spent)
                if least < shortest:
                    break
            else:
                return
            if times >= _MOST_CALLS:
                self.least = least / times
                return
            wanted = 1.2 * times * shortest / least
            times = min(math.ceil(wanted), 16 * times, _MOST_CALLS)

    def _fitting(self, length: float) -> int:
        """Number of calls that comes nearest to `length` seconds."""
        if self._flush is not None or self.least >= length:
            return 1
        return min(round(length / self.least), _MOST_CALLS)

    def _take(self, times: int) -> Sample:
        flushing = self._flush_caches()
        elapsed, cpu = self._call.repeat(times)
        elapsed = max(elapsed, 1e-9)
        seconds, cores = elapsed / times, math.inf
        # A shorter one has too few ticks, and the waking of threads weighs too much.
        if elapsed * _APART >= self._timing.shortest:
            cores = cpu / elapsed
            self._cores = max(self._cores, cores)
            self.least = min(self.least, seconds)
        return Sample(seconds, flushing + elapsed, cores)

    def _flush_caches(self) -> float:
        """Seconds that it took."""
        if self._flush is None:
            return 0.0
        start = time.perf_counter()
        self._flush()
        return time.perf_counter() - start

    def _undisturbed(self, sample: Sample) -> bool:
        return sample.cores >= _ENOUGH * self._cores and sample.seconds <= _APART * self.least

    def sample(self, length: float = 0.0) -> tuple[float, float]:
        """Seconds of one call, and all that the sample took, which is about `length` seconds, or
        the shortest that is allowed: the first one that was not disturbed, else the least
        disturbed one.

        With warm caches a call that is not timed comes first, since others ran meanwhile; but for
        calls longer than the cap.
        """
        if self._flush is None and self.least < self._timing.cap:
            self._warm_up()
        length = max(length, self._timing.shortest)
        taken = []
        for _ in range(1 + self._timing.retries):
            times = self._fitting(length)
            taken.append(self._take(times))
            if self._flush is None and taken[-1].spent * _APART < length and times < _MOST_CALLS:
                self._calibrate()  # a call takes less than was thought
            elif self._undisturbed(taken[-1]):
                break
        else:
            taken.sort(key=lambda s: s.seconds, reverse=True)
        return taken[-1].seconds, taken[-1].spent

    def run(self) -> tuple[float, ...]:
        """Seconds of one call, sample by sample, as many as it takes, where nothing is compared.

        A call longer than the cap is not repeated: its first run is the sample.
        """
        timing = self._timing
        if self.first.seconds >= timing.cap:
            return (self.first.seconds,)
        taken: list[Sample] = []
        while True:
            taken.append(self._take(self._fitting(timing.shortest)))
            good = [s for s in taken if self._undisturbed(s)]
            seconds = tuple(s.seconds for s in good)
            lost = len(taken) - len(good)
            if lost > timing.retries or sum(s.spent for s in taken) > 3 * timing.cap:
                return seconds or (min(s.seconds for s in taken),)
            if spread(seconds, timing.confidence) <= timing.relative:
                return seconds
            if sum(s.spent for s in good) >= timing.cap:
                return seconds


def common_length(least: Iterable[float], timing: Timing) -> float:
    """Seconds of the samples of calls that are compared, by the least of each: a call of the
    slowest, but not so long that disturbances even out anyway."""
    return min(max(least), timing.cap)


def in_rounds(timers: Sequence[Timer], rounds: int, timing: Timing) -> list[tuple[float, ...]]:
    """`rounds` samples in seconds of each call, of equal length, taken side by side."""
    length = common_length((timer.least for timer in timers), timing)
    taken: list[list[float]] = [[] for _ in timers]
    order = list(zip(timers, taken))
    for _ in range(rounds):
        for timer, seconds in order:
            seconds.append(timer.sample(length)[0])
        order.reverse()
    return [tuple(seconds) for seconds in taken]


def typical(seconds: Sequence[float]) -> float:
    """Typical seconds of a call: the lower quartile of its samples, one of them. There is one
    sample at least. That of several lots together is never below the least of theirs."""
    return sorted(seconds)[(len(seconds) - 1) // 4]


def spread(seconds: Sequence[float], confidence: float) -> float:
    """Half the width of the confidence interval of the median, over the median.

    The interval lies between two of the samples in order, whatever their distribution: a
    sample is below the median as often as a coin falls on one side. Infinite where there are
    too few samples: for 95 %, less than 6.
    """
    rank = _rank(len(seconds), confidence)
    if rank < 1:
        return math.inf
    ordered = sorted(seconds)
    return (ordered[-rank] - ordered[rank - 1]) / 2 / statistics.median(ordered)


@functools.cache
def _rank(samples: int, confidence: float) -> int:
    """The largest r so that the r-th smallest and the r-th largest of the samples enclose the
    median with the confidence; 0 if there is none."""
    tail, rank = 0.0, 0
    while rank < samples:
        tail += math.comb(samples, rank) / 2**samples
        if 2 * tail > 1 - confidence:
            break
        rank += 1
    return rank
