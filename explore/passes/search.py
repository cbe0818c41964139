"""A search for the pass list and switches by which one program runs fastest."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.codegen.build import build_fixed
from loopwright.codegen.library.library import Library
from loopwright.codegen.passes.table import Elements, text
from loopwright.dsl.words import counted
from loopwright.dsl.workload import Workload
from loopwright.explore.budget import TuningError
from loopwright.explore.passes.lists import drawn, minimized, varied
from loopwright.explore.significance import FEWEST, SIGNIFICANT, Ratio, ratio, slower
from loopwright.measure.builder import Built
from loopwright.measure.device import Failure, TimeUpError
from loopwright.measure.pass_device import PassDevice
from loopwright.measure.timing import typical
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.target import Target

FIRST, BATCH = 4, 16
"""Lists that are built and timed before the next ones are drawn: at first, and at most later."""
FINALISTS, ROUNDS = 6, 20
"""Lists that are compared with -O3 at the end, and samples of each."""
PROCESSES = 4
"""New processes in each of which the best list must be faster; one where there is no time for all.
Where code and arrays lie may double the time of a short call, and a process keeps that."""
ONCE = 0.01
"""Seconds that a sample takes beside its call, about."""
_SWITCHES = 2
"""Switches of a list at most, drawn."""
_PARENTS = 4
"""The best lists, of which others are variations."""


@dataclass(frozen=True)
class Tried:
    """One list: its typical seconds, infinite for a failure, and why it failed. `same` tells that
    its code was known from a list before, whose seconds it has."""

    passes: str
    seconds: float
    failure: Failure | None = None
    same: bool = False


@dataclass(frozen=True)
class PassesTuned:
    """The result of `tune_passes`.

    Attributes
    ----------
    passes: the list as `lw.build` takes it; empty where none was certainly faster than -O3. After
        an interrupt, that of the least time in the search.
    speedup: the time by -O3 over that by the list, where they were compared.
    default: seconds of a call by -O3; infinite where there was no time to measure it.
    tried: all lists, in order.
    """

    workload: Workload
    target: Target
    config: Config
    passes: str
    speedup: Ratio | None
    default: float
    tried: tuple[Tried, ...] = field(repr=False)

    @functools.cached_property
    def library(self) -> Library:
        """The program, built by the list."""
        return build_fixed(self.workload, self.config, self.target, passes=self.passes or None)

    def __str__(self) -> str:
        failed = sum(t.failure is not None for t in self.tried)
        codes = sum(not t.same for t in self.tried) - failed
        counts = counted(len(self.tried), "list"), counted(codes, "different code")
        tried = f"{counts[0]} tried, {counts[1]}, {failed} failed"
        if not self.tried:
            return "-O3 is kept: there was no time to try a list: give more minutes"
        if self.passes and self.speedup is None:
            return f"the fastest list in the search, not compared with -O3: {self.passes}; {tried}"
        if self.speedup is None:
            return f"-O3 is kept: no list is certainly faster; {tried}"
        return f"{self.speedup} times as fast as by -O3, by {self.passes}; {tried}"


class PassSearch:
    """The lists that were tried for one program, and what they cost."""

    def __init__(
        self, device: PassDevice, workload: Workload, config: Config, rng: np.random.Generator
    ) -> None:
        self.device, self.workload, self.config, self.rng = device, workload, config, rng
        self.tried: list[Tried] = []
        self.costs: dict[Any, float] = {}
        self.lists: dict[Elements, float] = {}
        self.of_code: dict[Any, tuple[Elements, Built]] = {}
        (self.base,) = device.build_lists(workload, config, [""])  # what `lw.build` makes
        if self.base.failure is None:
            (timed,) = device.time_built(workload, [self.base])
            if timed.failure is None:
                self.costs[self.base.code] = typical(timed.times)
                return
            raise TuningError(f"the program by -O3 fails: {timed.failure}")
        raise TuningError(f"the program by -O3 fails: {self.base.failure}")

    def run(
        self, waiting: Sequence[Elements], until: float, progress: Callable[[str], Any] | None
    ) -> None:
        """Try lists that wait, then such as are drawn, to a time of the monotonic clock."""
        began, left = time.monotonic(), list(waiting)
        with contextlib.suppress(TimeUpError):
            while (now := time.monotonic()) < until:
                pace = (now - began) / max(len(self.tried), 1)
                fit = int((until - now) / pace) if self.tried else FIRST
                count = min(max(fit, 1), BATCH)
                batch, left = left[:count], left[count:]
                self.try_all([*batch, *self.propose(count - len(batch))])
                if progress is not None:
                    progress(self.summary())

    def propose(self, count: int) -> list[Elements]:
        """Variations of the best lists, and random ones, half of each."""
        best = sorted(self.lists, key=lambda e: self.lists[e])[:_PARENTS]
        return [
            varied(best[int(self.rng.integers(len(best)))], self.rng, _SWITCHES)
            if best and n % 2
            else drawn(self.rng, _SWITCHES)
            for n in range(count)
        ]

    def try_all(self, lists: Sequence[Elements]) -> None:
        """Build lists, and time those whose code is new."""
        new = [e for e in dict.fromkeys(lists) if e not in self.lists]
        built = self.device.build_lists(self.workload, self.config, [text(e) for e in new])
        fresh: dict[Any, tuple[Elements, Built]] = {}
        for elements, one in zip(new, built, strict=True):
            if one.failure is None and one.code not in self.costs:
                fresh.setdefault(one.code, (elements, one))
        timed = self.device.time_built(self.workload, [one for _, one in fresh.values()])
        failures: dict[Any, Failure | None] = {}
        for (code, known), sampled in zip(fresh.items(), timed, strict=False):
            failures[code] = sampled.failure
            self.costs[code] = typical(sampled.times) if sampled.times else math.inf
            if sampled.times:
                self.of_code[code] = known
        for elements, one in zip(new, built, strict=True):
            failure = one.failure or failures.get(one.code)
            if failure is None and one.code not in self.costs:
                continue  # time was up
            cost = math.inf if failure else self.costs.get(one.code, math.inf)
            first = fresh.get(one.code, ((), one))[0] == elements
            self.lists[elements] = cost
            self.tried.append(Tried(text(elements), cost, failure, not failure and not first))

    def summary(self) -> str:
        """The result so far, in a line."""
        default, best = self.costs[self.base.code], min(self.costs.values())
        tried, codes = counted(len(self.tried), "list"), counted(len(self.costs), "code")
        return f"{tried}, {codes}, best {default / best:.3f} x -O3"

    def fastest(self) -> str:
        """The list of the least time in the search, nothing for -O3."""
        code = min(self.costs, key=lambda code: self.costs[code])
        return text(self.of_code[code][0]) if code in self.of_code else ""

    def result(self, machine: Target, passes: str, speedup: Ratio | None = None) -> PassesTuned:
        """The result of the search with a list."""
        default = self.costs[self.base.code]
        tried = tuple(self.tried)
        return PassesTuned(self.workload, machine, self.config, passes, speedup, default, tried)

    def decided(self, end: float = math.inf) -> tuple[str, Ratio | None]:
        """The list that is certainly faster than -O3, minimized, with the ratio; none else. Of
        slow programs fewer samples are taken, to be done at about `end`."""
        try:
            return self._decided(end)
        except TimeUpError:
            return "", None

    def _decided(self, end: float) -> tuple[str, Ratio | None]:
        default = self.costs[self.base.code]
        ranked = sorted(self.of_code, key=lambda code: self.costs[code])
        left = [self.of_code[c] for c in ranked[:FINALISTS] if self.costs[c] < default]
        if not left:
            return "", None
        found = self._samples([one for _, one in left], (end - time.monotonic()) / 2)
        best = min(range(len(left)), key=lambda n: typical(found[n + 1]))
        elements, one = left[best]
        # The choice among several took the luckiest: what is claimed is measured anew.
        speedup = self._confirmed(one, end)
        if speedup is None or self.device.verify_built(self.workload, one) is not None:
            return "", None
        return text(self._minimized(elements, one)), speedup

    def _confirmed(self, one: Built, end: float) -> Ratio | None:
        """The ratio to -O3 where a list is certainly faster in every one of some processes."""
        whole = PROCESSES * ROUNDS * 2 * (self.costs[self.base.code] + ONCE)
        count = PROCESSES if end - time.monotonic() > whole else 1
        by_default: list[float] = []
        by_list: list[float] = []
        for left in range(count, 0, -1):
            own = self._samples([one], (end - time.monotonic()) / left, anew=True)
            if slower(*own) >= SIGNIFICANT or ratio(*own).low <= 1:
                return None
            by_default += own[0]
            by_list += own[1]
        return ratio(by_default, by_list)

    def _samples(
        self, built: Sequence[Built], left: float, anew: bool = False
    ) -> Sequence[tuple[float, ...]]:
        """Samples of -O3, then of others, side by side, in the seconds that are left; `anew` in a
        new process."""
        every = [self.base, *built]
        once = len(every) * (self.costs[self.base.code] + ONCE)
        rounds = ROUNDS if left > ROUNDS * once else max(FEWEST, int(left / once))
        return self.device.compare_built(self.workload, every, rounds, anew).samples

    def _minimized(self, elements: Elements, built: Built) -> Elements:
        """The list without what does not change the code."""

        def same(fewer: Elements) -> bool:
            (one,) = self.device.build_lists(self.workload, self.config, [text(fewer)])
            return one.failure is None and one.code == built.code

        try:
            return minimized(elements, same)
        except TimeUpError:
            return elements
