"""Which bound a program stands at."""

from __future__ import annotations

import pytest

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.measure import machine
from loopwright.measure.bounds import Bound, bounds, standing

pytestmark = pytest.mark.usefixtures("brief")


def test_the_bounds_of_a_product_are_positive_and_the_largest_is_first():
    work = lw.workload(lw.einsum("ij,jk->ik", lw.tensor("A", (96, 96)), lw.tensor("B", (96, 96))))
    found = bounds(work, resolve("cpu", 1))
    assert {b.name for b in found} >= {"compute", "launch"}
    assert len(found) == 3
    seconds = [b.seconds for b in found]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] > 0


def test_operations_of_small_integers_have_no_bound_by_the_peak_of_floats():
    i, k = lw.indices("i k")
    A, y = lw.tensor("A", (32, 32), "int8"), lw.tensor("y")
    y[i] += A[i, k]
    found = bounds(lw.workload(y), resolve("cpu", 1))
    assert "compute" not in {b.name for b in found}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (2e-3, "stands at the L2 bound: 1.5 ms, 75% of its time"),
        (9e-3, "is far from all bounds; the nearest is L2: 1.5 ms, 17% of its time"),
        (1e-3, "stands at the L2 bound: as measured now, on a machine that is busier"),
    ],
)
def test_a_program_stands_at_the_largest_bound_if_that_is_near(seconds, said):
    found = (Bound("L2", 1.5e-3, ""), Bound("launch", 1e-6, ""))
    assert said in standing(found, seconds)


def test_a_program_of_fewer_operations_is_not_bound_by_those_of_the_direct_sum():
    found = (Bound("compute", 2e-3, ""), Bound("L2", 0.9e-3, ""), Bound("launch", 1e-6, ""))
    said = standing(found, 1e-3)
    assert said.startswith("The direct sum takes 2 ms at the peak, 200% of its time: the program ")
    assert said.endswith("The program stands at the L2 bound: 0.9 ms, 90% of its time.")


def test_the_smallest_cache_that_holds_the_data_is_named(monkeypatch):
    monkeypatch.setattr(machine, "_caches", lambda: {1: 32 << 10, 2: 1 << 20, 3: 16 << 20})
    monkeypatch.setattr(machine, "last_level_caches", lambda: [((0, 1), 16 << 20)])
    monkeypatch.setattr(machine, "one_per_core", lambda: frozenset(range(8)))
    assert [machine.cache_of(size << 10, 2) for size in (64, 65, 2048, 2049, 16384, 16385)] == [
        "L1", "L2", "L2", "L3", "L3", "memory",
    ]  # fmt: skip
    assert machine.cache_of(64 << 10, 1) == "L2"
    monkeypatch.setattr(machine, "_caches", dict)
    assert machine.cache_of(1, 1) == "memory"
