"""Tables of costs in place of a machine."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.measure.device import DeviceError
from loopwright.measure.tabular import load_brute_forced

TABLE = """tile,unroll,time_ms
1,1,4.0
1,2,
2,1,2.5
4,2,1.5
"""


@pytest.fixture
def device(tmp_path):
    path = tmp_path / "small_table.csv"
    path.write_text(TABLE)
    return load_brute_forced(path)


def test_columns_become_knobs_and_the_first_line_the_default(device):
    (sketch,) = device.space.sketches
    assert [(k.name, k.choices) for k in sketch.knobs] == [
        ("tile", ((1,), (2,), (4,))),
        ("unroll", ((1,), (2,))),
    ]
    assert device.space.size == 6
    assert device.space.default.values == (("tile", (1,)), ("unroll", (1,)))
    assert device.name == "small_table"


def test_costs_are_in_seconds(device):
    config = device.space.config(tile=4, unroll=2)
    (measured,) = device.measure(device.space.workload, [config])
    assert measured.seconds == (1.5e-3,)
    assert measured.cost == device.optimum == 1.5e-3


def test_a_point_that_is_not_in_the_table_is_illegal(device):
    config = device.space.config(tile=4, unroll=1)
    (measured,) = device.measure(device.space.workload, [config])
    assert measured.failure.kind == "illegal"
    assert measured.cost == math.inf


def test_a_point_without_a_cost_has_failed(device):
    config = device.space.config(tile=1, unroll=2)
    assert device.verify(device.space.workload, config).kind == "run"


def test_legal_points_are_told_apart_without_measuring(device):
    numbers = np.array([[0, 0], [0, 1], [2, 0], [2, 1]])
    assert device.legal(0, numbers).tolist() == [True, True, False, True]


def test_two_loads_are_equal(device, tmp_path):
    again = load_brute_forced(tmp_path / "small_table.csv")
    configs = [device.space.default, device.space.config(tile=2)]
    first, second = (list(d.measure(d.space.workload, configs)) for d in (device, again))
    assert first == second


def test_gzipped_tables_are_read(device, tmp_path):
    path = tmp_path / "packed.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    assert load_brute_forced(path).optimum == device.optimum


def test_another_workload_is_refused(device):
    (i,) = lw.indices("i")
    x, y = lw.tensor("x", (9,)), lw.tensor("y")
    y[i] = x[i] + 1.0
    with pytest.raises(DeviceError, match="another workload"):
        list(device.measure(lw.workload(y), [device.space.default]))


@pytest.mark.parametrize(
    "text", ["", "a,time_ms\n", "a,time_ms\n1,2,3\n", "a,time_ms\nx,1.0\n", "a,time_ms\n1,\n"]
)
def test_what_is_no_table_is_refused(tmp_path, text):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DeviceError, match="bad"):
        load_brute_forced(path)
