"""Budgets are wall time: all that a search does counts, and its parts sum to what passed."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest

from loopwright.costmodel.models.gbt import GBTModel
from loopwright.explore.finalize import LEAST, OF_BUDGET
from loopwright.explore.stopwatch import Stopwatch
from loopwright.explore.strategies.annealing import Schedule
from loopwright.explore.tune import tune
from loopwright.measure.device import TimeUpError, never
from tests.explore.synthetic import MadeUp, matmul, matmul_space

QUICK = Schedule(chains=64, steps=2)


def run(device, **options):
    """A search with few chains and a small model, unless told otherwise."""
    model = GBTModel(rounds=10)
    settings = {"trials": 80, "records": None, "schedule": QUICK, "model": model, **options}
    return tune(matmul(), device=device, **settings)


@pytest.fixture
def clock(monkeypatch):
    """The clock of a search, which goes on where a device says so."""
    now = SimpleNamespace(seconds=0.0)
    made_up = SimpleNamespace(monotonic=lambda: now.seconds)
    monkeypatch.setattr("loopwright.explore.stopwatch.time", made_up)
    return now


class InLots(MadeUp):
    """Measures so many candidates at once, in a second."""

    def __init__(self, clock, size):
        super().__init__()
        self.clock, self.size = clock, size

    def measure(self, workload, configs, stop=never):
        for start in range(0, len(configs), self.size):
            if start and stop():
                return
            lot = list(super().measure(workload, configs[start : start + self.size]))
            self.clock.seconds += 1
            yield from lot


def test_minutes_end_a_search_which_keeps_what_its_comparison_may_take(clock):
    tuned = run(InLots(clock, 1), trials=None, minutes=1, strategy="random")
    assert 60 - OF_BUDGET * 60 < len(tuned.history) < 60
    assert "1 minute" in tuned.end
    assert tuned.finalists


def test_what_was_spent_sums_to_what_passed(monkeypatch):
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))  # a second at every look
    monkeypatch.setattr("loopwright.explore.stopwatch.time", clock)
    tuned = run(MadeUp())
    assert {"starting", "choosing", "learning", "comparing"} <= set(tuned.spent)
    assert sum(tuned.spent.values()) == pytest.approx(next(ticks), abs=2)


def test_a_part_within_another_takes_its_seconds_from_it():
    now = SimpleNamespace(seconds=0.0)
    watch = Stopwatch(lambda: now.seconds)
    now.seconds = 1.0
    with watch.part("outer"):
        now.seconds = 3.0
        with watch.part("inner"):
            now.seconds = 7.0
        now.seconds = 12.0
    watch.move(100.0, "outer", "moved")
    assert watch.spent() == {"other": 1.0, "inner": 4.0, "outer": 0.0, "moved": 7.0}
    assert str(watch) == "12.0 s: moved 7.0 s (58%), inner 4.0 s (33%), other 1.0 s (8%)"


class Timed(MadeUp):
    """A comparison takes what its samples say, `factor` times those of the search; time is up at
    the deadline."""

    def __init__(self, clock, factor=1.0):
        super().__init__()
        self.clock, self.factor, self.deadline = clock, factor, math.inf

    def until(self, deadline):
        self.deadline = deadline

    def measure(self, workload, configs, stop=never):
        for one in super().measure(workload, configs, stop):
            self.clock.seconds += 1
            yield one

    def compare(self, workload, configs, rounds):
        found = super().compare(workload, configs, rounds)
        self.clock.seconds += self.factor * sum(map(sum, found.samples))
        if self.clock.seconds > self.deadline:
            self.clock.seconds = self.deadline
            raise TimeUpError("time was up")
        return found


@pytest.mark.parametrize("factor", [1.0, 10.0, 1e5])
def test_a_budget_of_minutes_includes_the_comparison(clock, factor):
    tuned = run(Timed(clock, factor), trials=None, minutes=0.5, strategy="random")
    assert sum(tuned.spent.values()) == clock.seconds <= 30
    assert bool(tuned.finalists) == (factor < 1e5)
    if not tuned.finalists:
        assert any("not compared" in note for note in tuned.notes)
        assert tuned.speedup is None


def test_a_comparison_after_a_short_search_is_short():
    class Counting(MadeUp):
        sampled = 0.0

        def compare(self, workload, configs, rounds):
            found = super().compare(workload, configs, rounds)
            self.sampled += sum(map(sum, found.samples))
            return found

    device = Counting()
    assert run(device, trials=5).finalists
    assert device.sampled < LEAST


def _too_slow(device, clock):
    """Make a device that has no time for a call."""

    def measure(workload, configs, stop=never):
        raise TimeUpError("time was up")

    device.measure = measure


def _late(device, clock):
    """Make a device whose start takes 40 seconds."""

    def check():
        clock.seconds += 40

    device.check = check


@pytest.mark.parametrize("make", [_too_slow, _late])
def test_a_search_without_time_for_one_candidate_ends_with_the_default_and_says_so(make, clock):
    device = MadeUp()
    make(device, clock)
    tuned = run(device, trials=None, minutes=0.5)
    assert tuned.config == matmul_space().default
    assert tuned.record is None
    assert "time was up before anything was measured" in str(tuned)
    assert any("within 0.5 minutes" in n and "give more minutes" in n for n in tuned.notes)


def test_a_new_best_that_there_is_no_time_to_check_is_told():
    class Hurried(MadeUp):
        def verify(self, workload, config):
            raise TimeUpError("time was up")

    tuned = run(Hurried(), trials=8)
    assert any("not checked on fresh data" in note for note in tuned.notes)


def test_what_was_measured_when_the_time_is_up_is_kept(clock):
    device = InLots(clock, 8)
    tuned = run(device, trials=None, minutes=0.5 / 60, strategy="random")
    assert len(tuned.history) == len(device.measured) == 8
