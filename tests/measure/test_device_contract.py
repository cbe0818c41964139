"""What every device promises, on a small workload or table."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from loopwright.dsl import ops
from loopwright.dsl.tensor import tensor
from loopwright.dsl.workload import workload
from loopwright.measure.device import Device, DeviceError, Failure, Measurement
from loopwright.measure.local import LocalDevice
from loopwright.measure.remote.device import RemoteDevice
from loopwright.measure.tabular import load_brute_forced
from loopwright.measure.timing import Timing
from loopwright.schedule.lowering import lower
from loopwright.schedule.sketch.sketch import Config
from loopwright.schedule.space import Space, space
from loopwright.schedule.tree.verifier import legal
from tests.measure.remote import links
from tests.sketches import direct
from tests.targets import ALONE

pytestmark = pytest.mark.usefixtures("brief")

TABLE = """tile,unroll,time_ms
1,1,4.0
1,2,3.0
2,1,2.5
2,2,
4,2,1.5
"""


def local(folder) -> tuple[Device, Space]:
    product = workload(ops.matmul(tensor("A", (24, 17)), tensor("B", (17, 40), constant=True)))
    device = LocalDevice("cpu", 2, timing=Timing(cap=0.02), build_workers=1)
    return device, space(product, device.target)


def remote(folder) -> tuple[Device, Space]:
    product = workload(ops.matmul(tensor("A", (24, 17)), tensor("B", (17, 40), constant=True)))
    way = links.loopback(folder)
    device = RemoteDevice(way, "cpu", 2, timing=Timing(cap=0.02), build_workers=1)
    return device, space(product, device.target)


def gpu(kind, folder) -> tuple[Device, Space]:
    product = workload(ops.matmul(tensor("A", (24, 17)), tensor("B", (17, 40), constant=True)))
    device = LocalDevice(kind, timing=Timing(cap=0.02), build_workers=1)
    return device, space(product, device.target)


def replayed(folder) -> tuple[Device, Space]:
    path = folder / "table.csv"
    path.write_text(TABLE)
    device = load_brute_forced(path)
    return device, device.space


opencl, cuda = functools.partial(gpu, "opencl"), functools.partial(gpu, "cuda")
DEVICES = [
    local,
    remote,
    replayed,
    pytest.param(opencl, marks=pytest.mark.opencl, id="opencl"),
    pytest.param(cuda, marks=pytest.mark.cuda, id="cuda"),
]


@pytest.fixture(scope="module", params=DEVICES)
def both(request, tmp_path_factory):
    device, points = request.param(tmp_path_factory.mktemp("device"))
    with device:
        yield device, points


@pytest.fixture
def device(both):
    return both[0]


@pytest.fixture
def points(both):
    return both[1]


@pytest.fixture
def configs(points):
    """Two that work: the default, and one with another choice for a knob."""
    default = points.default
    sketch = points.sketches[0]
    changes = ((k.name, choice) for k in sketch.knobs for choice in k.choices)
    others = (default.replace(sketch, **{name: choice}) for name, choice in changes)
    return [default, next(c for c in others if c != default and fits(points, c))]


def fits(points, config):
    gpu = points.target.gpu
    return gpu is None or legal(lower(points.sketches[0], points.target, config), gpu).all()


def illegal(config: Config) -> Config:
    return replace(config, sketch=direct("no such sketch"))


def test_a_device_has_a_name_a_target_and_a_fingerprint_of_text(device):
    assert device.name
    assert device.target.threads >= 1
    fingerprint = device.fingerprint()
    assert fingerprint
    assert fingerprint == device.fingerprint()
    assert all(isinstance(x, str) for pair in fingerprint.items() for x in pair)


def test_a_sound_device_passes_its_own_check(device):
    device.check()


def test_there_is_one_measurement_per_config_in_order(device, points, configs):
    asked = [*configs, configs[0]]
    measured = list(device.measure(points.workload, asked))
    assert [m.config for m in measured] == asked
    for m in measured:
        assert m.failure is None
        assert 0 < m.cost < 10
        assert min(m.seconds) <= m.cost <= max(m.seconds)
        assert m.threads == device.target.threads
        assert m.cache == "warm"
        assert m.build_seconds >= 0
        assert m.run_seconds >= 0
        assert 0 <= m.started <= time.time()


def test_nothing_is_measured_before_it_is_asked_for(device, points, configs):
    measured = device.measure(points.workload, configs)
    assert isinstance(measured, Iterator)
    assert isinstance(next(measured), Measurement)


def test_nothing_to_measure_gives_nothing(device, points):
    assert list(device.measure(points.workload, [])) == []
    assert device.compare(points.workload, [], 3).samples == ()


def test_an_illegal_config_is_a_failure_among_the_others(device, points, configs):
    asked = [configs[0], illegal(configs[0]), configs[1]]
    first, bad, last = device.measure(points.workload, asked)
    assert bad.failure.kind == "illegal"
    assert bad.failure.message
    assert bad.seconds == ()
    assert bad.cost == math.inf
    assert first.failure is None
    assert last.failure is None


def test_candidates_are_inspected_without_a_run_and_built_once(device, points, configs):
    if not device.inspects:
        with pytest.raises(DeviceError, match="tells nothing of programs before they run"):
            device.inspect(points.workload, configs)
        return
    asked = [configs[0], illegal(configs[0]), configs[1]]
    first, bad, last = device.inspect(points.workload, asked)
    assert [one.config for one in (first, bad, last)] == asked
    assert bad.failure.kind == "illegal"
    assert bad.facts == {}
    assert first.failure is None
    assert first.facts["code_bytes"] > 0
    (measured,) = device.measure(points.workload, [configs[1]])
    assert measured.build_seconds == last.build_seconds
    assert measured.facts == last.facts


def test_right_outputs_are_verified(device, points, configs):
    assert device.verify(points.workload, configs[1]) is None


def test_a_config_that_does_not_work_is_not_verified(device, points, configs):
    failure = device.verify(points.workload, illegal(configs[0]))
    assert isinstance(failure, Failure)
    assert failure.kind == "illegal"


def test_finalists_get_as_many_samples_each_as_there_are_rounds(device, points, configs):
    asked = [configs[0], illegal(configs[0]), configs[1]]
    compared = device.compare(points.workload, asked, 3)
    samples = compared.samples
    assert len(compared.sizes) == 3
    assert compared.others >= 0
    assert [len(s) for s in samples] == [3, 3, 3]
    assert samples[1] == (math.inf,) * 3
    assert all(0 < s < 10 for s in (*samples[0], *samples[2]))


def test_a_failure_survives_the_way_through_json():
    failure = Failure("crash", "it fell", "Traceback …")
    assert Failure.from_json(failure.to_json()) == failure
    assert str(failure) == "crash: it fell"
    with pytest.raises(ValueError, match="no failure is of kind"):
        Failure("bad luck", "")


def test_a_closed_device_that_is_used_says_that_it_is_closed():
    device = LocalDevice(ALONE)
    device.close()
    relu = workload(ops.relu(tensor("x", (4,))))
    with pytest.raises(DeviceError, match="the device was closed"):
        list(device.measure(relu, [space(relu, ALONE).default]))


def test_a_closed_device_can_be_closed_again(tmp_path):
    for make in (local, remote, replayed):
        device, _ = make(tmp_path)
        device.close()
        device.close()
