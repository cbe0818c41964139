"""What is known of this machine."""

from __future__ import annotations

from loopwright.measure import machine


def test_the_fingerprint_is_text_and_steady():
    found = machine.fingerprint()
    assert found == machine.fingerprint()
    assert all(isinstance(value, str) for value in found.values())
    assert found["processor"]
    assert found["loopwright"]
    assert found["apache-tvm"]


def test_the_processors_of_cores_are_among_those_that_are_usable():
    assert machine.one_per_core()
    assert machine.one_per_core() <= machine.processors()


def test_sizes_are_plausible():
    assert machine.last_level_bytes() >= 1 << 18
    assert machine.memory_bytes() > 1 << 28
