"""The measured peak of this machine."""

from __future__ import annotations

import pytest

from loopwright.codegen.target import resolve
from loopwright.measure.roofline import Roofline, reader, roofline


def test_the_peak_is_measured_once_and_plausible():
    target = resolve("cpu", 1)
    found = roofline(target)
    assert found is roofline(target)
    assert found.threads == 1
    # From a slow core that has no vectors to a fast one with two units of 512 bits.
    assert 1e9 < found.flops < 1e12
    assert 1e8 < found.bandwidth < 1e12


def test_arrays_of_any_size_are_read_at_a_plausible_speed():
    target = resolve("cpu", 1)
    for size in (100_000, 3_000_001):
        seconds, _ = reader(size, target).repeat(10)
        assert 1e8 < 10 * size / seconds < 2e12


def test_the_roofline_is_the_slower_of_the_two():
    machine = Roofline(flops=100e9, bandwidth=10e9, threads=1)
    assert machine.seconds(flops=200e9, moved=1e9) == pytest.approx(2.0)
    assert machine.seconds(flops=1e9, moved=30e9) == pytest.approx(3.0)
