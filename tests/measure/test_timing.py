"""Adaptive timing, on calls whose times are made up."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.measure.open_programs import _seconds
from loopwright.measure.timing import Timer, Timing, in_rounds, spread, typical


class Scripted:
    """A call that takes given seconds, and keeps a given number of cores at work."""

    def __init__(self, seconds, cores=(1.0,)):
        self.seconds, self.cores = itertools.cycle(seconds), itertools.cycle(cores)
        self.calls = 0
        self.elapsed = 0.0

    def repeat(self, times):
        self.calls += times
        elapsed = times * next(self.seconds)
        self.elapsed += elapsed
        return elapsed, elapsed * next(self.cores)


def test_equal_samples_are_few():
    call = Scripted([2e-3])
    assert Timer(call, Timing()).run() == (2e-3,) * 6


def test_short_calls_are_repeated_until_a_sample_is_long_enough():
    call = Scripted([1e-6])
    seconds = Timer(call, Timing(shortest=1e-3)).run()
    assert seconds == pytest.approx([1e-6] * 6)
    assert call.calls >= 6 * 1000
    assert call.elapsed < 0.02


def test_a_call_that_takes_no_time_is_timed_all_the_same():
    assert all(s > 0 for s in Timer(Scripted([0.0]), Timing()).run())


def test_noisy_samples_are_taken_until_the_cap():
    call = Scripted([2e-3, 2.6e-3])
    timing = Timing(cap=0.1)
    seconds = Timer(call, timing).run()
    assert 0.1 <= sum(seconds) < 0.11


def test_a_call_longer_than_the_cap_is_run_once():
    call = Scripted([0.5])
    assert Timer(call, Timing(cap=0.1)).run() == (0.5,)
    assert call.calls == 1


def test_samples_whose_threads_shared_a_core_are_thrown_away():
    call = Scripted([4e-3, 2e-3, 2e-3], [1.0, 2.0, 1.9])
    assert set(Timer(call, Timing(cap=1.0)).run()) == {2e-3}


def test_a_serial_call_on_many_threads_is_not_taken_for_a_disturbed_one():
    call = Scripted([2e-3], [1.0])
    assert len(Timer(call, Timing()).run()) == 6


def test_samples_on_a_busy_machine_are_retried_a_bounded_number_of_times():
    call = Scripted([2e-3], [0.3, 0.4, 0.5])
    timing = Timing(cap=10.0, retries=7)
    assert Timer(call, timing).run() == (2e-3,)
    assert call.calls < 14


def test_one_sample_is_the_first_undisturbed_one_after_a_call_that_warms_the_caches():
    call = Scripted([1e-3] * 4 + [5e-3, 9e-3, 1e-3], [2.0] * 5 + [0.5, 2.0])
    assert Timer(call, Timing()).sample()[0] == 1e-3
    assert call.calls == 7


class Stalling(Scripted):
    """A call of a microsecond; some repeats of it stall for some seconds."""

    def __init__(self, *stalled, seconds=3e-3):
        super().__init__([1e-6])
        self.stalled, self.asked, self.stall = stalled, [], seconds

    def repeat(self, times):
        elapsed, cpu = super().repeat(times)
        self.asked.append(times)
        stall = self.stall if len(self.asked) - 1 in self.stalled else 0.0
        return elapsed + stall, cpu + stall


@pytest.mark.parametrize("stalled", [(), (0,), (1,), (2,), (3,), (4,), (3, 4), (5, 6)])
def test_a_stall_while_calls_are_counted_does_not_change_how_many_fill_a_sample(stalled):
    call = Stalling(*stalled)
    timer = Timer(call, Timing())
    assert timer.least == pytest.approx(1e-6)
    timer.sample(5e-3)
    assert call.asked[-1] == 5000


def test_a_count_that_was_too_low_is_found_out_and_the_sample_taken_again():
    call = Stalling(*range(4))  # all that decide how many calls fill a sample
    timer = Timer(call, Timing())
    assert timer.least > 2e-6
    seconds, spent = timer.sample()
    assert seconds == pytest.approx(1e-6)
    assert spent == pytest.approx(1e-3)


def test_a_sample_that_stalled_is_taken_again_a_bounded_number_of_times():
    call = Stalling(*range(8, 10))
    assert Timer(call, Timing(retries=2)).sample()[0] == pytest.approx(1e-6)
    call = Stalling(*range(7, 100))
    assert Timer(call, Timing(retries=2)).sample()[0] == pytest.approx(4e-6)
    assert len(call.asked) < 12


def test_calls_that_are_compared_take_samples_of_equal_length():
    calls = [Scripted([seconds]) for seconds in (1e-6, 7e-6, 30e-6, 3e-3)]
    timers = [Timer(call, Timing()) for call in calls]
    before = [call.elapsed for call in calls]
    samples = in_rounds(timers, 4, Timing())
    assert [s[0] for s in samples] == pytest.approx([1e-6, 7e-6, 30e-6, 3e-3])
    taken = [(c.elapsed - b) / 4 - s[0] for c, b, s in zip(calls, before, samples)]
    assert taken == pytest.approx([3e-3] * 4, rel=0.01)  # but for the call that warms the caches


def test_the_cost_is_a_sample_with_a_quarter_of_them_below():
    assert typical([5.0]) == 5.0
    assert typical([4.0, 1.0, 3.0, 2.0, 5.0]) == 2.0
    assert typical([1.0] * 30 + [9.0] * 70) == 1.0


@given(st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1), min_size=1))
def test_the_cost_of_all_samples_is_not_below_the_least_of_their_parts(parts):
    assert typical([s for part in parts for s in part]) >= min(map(typical, parts))


def test_with_cold_caches_everything_is_flushed_before_every_call():
    log = []

    class Call(Scripted):
        def repeat(self, times):
            log.append(times)
            return super().repeat(times)

    timer = Timer(Call([2e-3]), Timing(cache="cold"), lambda: log.append("flush"))
    assert len(timer.run()) == 6
    assert log == ["flush", 1] * 7


def test_caches_are_warm_or_cold():
    with pytest.raises(ValueError, match="lukewarm"):
        Timing(cache="lukewarm")


def test_the_interval_is_that_of_the_sign_test():
    # 95 % of ten samples: from the second to the ninth (1 - 22/1024 = 97.9 %).
    samples = tuple(float(n) for n in range(1, 11))
    assert spread(samples, 0.95) == pytest.approx((9 - 2) / 2 / 5.5)
    assert spread(samples[:5], 0.95) == math.inf
    assert spread((), 0.95) == math.inf


def test_a_long_stall_at_the_first_call_of_a_program_of_open_sizes_is_no_verdict_on_it():
    found = _seconds([Stalling(0, seconds=1.0), Scripted([3e-6]), Scripted([1e-3])])
    assert found == pytest.approx([1e-6, 3e-6, 1e-3])


def test_the_first_call_of_a_long_program_of_open_sizes_is_no_sample():
    cold = [Scripted([first, *[10e-3] * 100]) for first in (11e-3, 13e-3, 20e-3)]
    assert _seconds(cold) == pytest.approx([10e-3] * 3)


def test_the_interval_encloses_the_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        samples = np.sort(rng.exponential(size=20) + 1)
        half = spread(tuple(samples), 0.95) * np.median(samples)
        low, high = samples[5], samples[14]  # the ranks for n = 20
        assert half == pytest.approx((high - low) / 2)
        hits += low <= 1 + math.log(2) <= high
    assert hits / 2000 >= 0.94


@given(st.lists(st.floats(1e-9, 1e3), min_size=6), st.floats(0.5, 0.99))
def test_the_spread_is_never_negative(samples, confidence):
    assert spread(tuple(samples), confidence) >= 0
