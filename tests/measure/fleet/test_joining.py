"""The way into a fleet, where there is none."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.dsl.errors import TargetError
from loopwright.measure.device import DeviceError
from loopwright.measure.fleet.calibration import factors, in_words
from loopwright.measure.fleet.joining import join
from loopwright.measure.fleet.station import device_key


@pytest.fixture
def workload():
    return lw.workload(lw.ops.matmul(lw.tensor("A", (8, 8)), lw.tensor("B", (8, 8))))


def test_without_ray_an_error_names_the_extra(workload, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DeviceError, match=r'pip install "loopwright\[ray\]"'):
        lw.tune(workload, fleet="auto", trials=1, records=None)
    told = CliRunner().invoke(main, ["fleet", "status"])
    assert told.exit_code == 1
    assert "loopwright[ray]" in told.output


def test_a_ray_that_does_not_know_that_the_fleet_is_on_loopback_is_told_of(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", raising=False)
    with pytest.raises(DeviceError, match="RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 in the environ"):
        join("127.0.0.1:6379")


@pytest.mark.parametrize("address", ["", "ray://", "http://host:1", "host", "ray://host:1/x"])
def test_an_address_of_another_form_is_refused(address):
    with pytest.raises(DeviceError, match='give "auto", "ray://host:port" or "host:port"'):
        join(address)


def test_a_device_and_a_fleet_are_not_given_together(workload):
    with pytest.raises(lw.LoopwrightError, match="a device and a fleet both say what measures"):
        lw.tune(workload, device="ssh://host", fleet="auto", trials=1)


def test_a_target_that_is_no_plain_data_is_refused():
    with pytest.raises(TargetError, match="give a name or a mapping of plain data"):
        device_key({"kind": object()}, None, None)


def test_a_machine_is_compared_with_the_typical_one_by_what_worked():
    inf = float("inf")
    found = factors({"a": [1.0, 2.0, inf], "b": [1.1, 2.2, inf], "c": [inf, inf, inf]})
    assert found == pytest.approx({"a": 1.0, "b": 1.1, "c": inf})
    assert in_words(found["b"]) == "10 % slower"
    assert in_words(1 / 1.25) == "25 % faster"
    assert "unable" in in_words(found["c"])
