"""What is special to measuring on this machine."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.measure.builder import Builder, Built
from loopwright.measure.device import DeviceError, Failure
from loopwright.measure.local import LocalDevice
from loopwright.measure.reference import Limits
from loopwright.measure.timing import Timing
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.messages import Message
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.process import Reply
from loopwright.schedule.space import space
from tests.measure import faults

FAST = Timing(cap=0.01)


class Scripted(Builder):
    """Builds some configs as they are, others into prebuilt shared objects."""

    def __init__(self, folder):
        super().__init__(Pool(Kind("build", 4 << 30, folder), 1), 60.0)
        self.given = {}
        self.no_oracle = False

    def build(self, task, configs):
        own = super().build(task, [c for c in configs if c not in self.given])
        rest = iter(own)
        return [self.given[c] if c in self.given else next(rest) for c in configs]

    def oracle(self, task, seed, timeout, scaled=False):
        if self.no_oracle:
            return Reply(Message({}), Failure("timeout", "too slow"), 0.0)
        return super().oracle(task, seed, timeout, scaled)

    def build_with_oracle(self, task, configs, seed, timeout):
        return self.build(task, configs), self.oracle(task, seed, timeout)


@pytest.fixture(scope="module")
def _builder(tmp_path_factory):
    builder = Scripted(tmp_path_factory.mktemp("build"))
    yield builder
    Builder.close(builder)


@pytest.fixture
def builder(_builder, monkeypatch):
    """One builder for all devices, since TVM takes seconds to import."""
    monkeypatch.setattr(_builder, "given", {})
    monkeypatch.setattr(_builder, "no_oracle", False)
    monkeypatch.setattr(_builder, "close", lambda: None)
    return _builder


@pytest.fixture
def device(builder):
    with LocalDevice("cpu", 1, timing=FAST, limits=Limits(run=1.0), builder=builder) as device:
        yield device


def some(points, count):
    configs = dict.fromkeys([points.default])
    rng = np.random.default_rng(0)
    while len(configs) < count:
        configs[points.sample(rng)] = None
    return list(configs)


def test_every_kind_of_bad_candidate_is_recorded_and_the_others_are_measured(device, builder):
    workload = faults.workload()
    configs = some(space(workload, device.target), 8)
    bad = {"segfault": "crash", "hang": "timeout", "greedy": "memory", "wrong": "wrong"}
    for config, name in zip(configs[1::2], bad):
        builder.given[config] = faults.built(name)
    measured = list(device.measure(workload, configs))
    kinds = [m.failure and m.failure.kind for m in measured]
    assert kinds == [None, "crash", None, "timeout", None, "memory", None, "wrong"]
    assert all(m.run_seconds > 0 for m in measured)
    assert all(m.failure is None or m.failure.message for m in measured)


def test_a_wrong_candidate_is_not_verified(device, builder):
    workload = faults.workload()
    _, config = some(space(workload, device.target), 2)
    builder.given[config] = faults.built("wrong")
    assert device.verify(workload, config).kind == "wrong"


def test_when_the_oracle_is_too_slow_the_default_schedule_is_the_reference(
    device, builder, caplog
):
    builder.no_oracle = True
    workload = faults.workload()
    default, wrong = some(space(workload, device.target), 2)
    builder.given[wrong] = faults.built("wrong")
    with caplog.at_level(logging.WARNING):
        first, second = device.measure(workload, [default, wrong])
    assert "oracle" in caplog.text
    assert first.failure is None
    assert second.failure.kind == "wrong"
    assert device.verify(workload, default) is None


def test_an_oracle_that_was_too_slow_is_not_asked_again(device, builder, monkeypatch):
    builder.no_oracle = True
    workload = faults.workload()
    default = space(workload, device.target).default
    assert next(device.measure(workload, [default])).failure is None
    monkeypatch.setattr(builder, "oracle", None)
    assert device.verify(workload, default) is None


def _row(count):
    i = lw.indices("i")
    x, y = lw.tensor("x", (count,)), lw.tensor("y")
    y[i] = x[i] + 1.0
    return lw.workload(y)


def test_an_oracle_is_asked_once_for_each_of_many_tasks_that_have_their_turns(device, builder):
    asked = []
    builder.oracle = lambda task, *args: asked.append(task) or Builder.oracle(builder, task, *args)
    try:
        for workload in [*map(_row, range(8, 18))] * 2:
            default = space(workload, device.target).default
            assert next(device.measure(workload, [default])).failure is None
    finally:
        del builder.oracle
    assert len(asked) == 10


def test_an_oracle_that_was_too_slow_is_not_asked_again_for_what_was_forgotten(
    device, builder, monkeypatch
):
    monkeypatch.setattr("loopwright.measure.reference._KEPT", 0)
    builder.no_oracle = True
    one, other = _row(8), _row(9)
    for workload in (one, other):
        default = space(workload, device.target).default
        assert next(device.measure(workload, [default])).failure is None
    monkeypatch.setattr(builder, "oracle", None)
    assert next(device.measure(one, [space(one, device.target).default])).failure is None


def test_quotients_by_sums_that_almost_vanish_are_right(device):
    i, k = lw.indices("i k")
    X, S, Y = lw.tensor("X", (1024, 512)), lw.tensor("S"), lw.tensor("Y")
    S[i] += X[i, k]
    Y[i, k] = X[i, k] / S[i]
    workload = lw.workload(Y)
    default = space(workload, device.target).default
    assert next(device.measure(workload, [default])).failure is None


def test_with_neither_oracle_nor_default_there_is_nothing_to_compare_with(device, builder):
    builder.no_oracle = True
    workload = faults.workload()
    default = space(workload, device.target).default
    builder.given[default] = faults.built("segfault")
    with pytest.raises(DeviceError, match="nothing to compare"):
        next(device.measure(workload, [default]))


def test_a_slow_default_schedule_raises_the_limit(device, builder):
    workload = faults.workload()
    default = space(workload, device.target).default
    builder.given[default] = faults.built("slow")
    (measured,) = device.measure(workload, [default])
    assert measured.failure is None
    assert measured.cost > 1.0


def test_code_that_calls_what_only_the_compiler_has_is_linked_with_it(
    device, builder, monkeypatch
):
    plain = builder.build
    needy = faults.built("needy")  # as 16-bit floats are on some processors

    def build(task, configs):
        return plain(task, configs) if task.complete else [needy for _ in configs]

    monkeypatch.setattr(builder, "build", build)
    workload = faults.workload()
    (measured,) = device.measure(workload, [space(workload, device.target).default])
    assert measured.failure is None


def test_a_broken_toolchain_is_an_error_at_once(builder, monkeypatch):
    broken = Built(b"", {}, Failure("build", "no C compiler found"), 0.0)
    monkeypatch.setattr(builder, "build", lambda task, configs: [broken for _ in configs])
    words = pytest.raises(DeviceError, match=r"(?s)cannot build and run.*no C compiler found")
    with LocalDevice("cpu", 1, builder=builder) as device, words:
        device.check()


def test_many_workloads_take_turns(device):
    sums = []
    for n in (3, 5, 3, 7, 5):
        product = lw.workload(ops.matmul(lw.tensor("A", (n, 4)), lw.tensor("B", (4, n))))
        sums += device.measure(product, [space(product, device.target).default])
    assert [m.failure for m in sums] == [None] * 5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_small_types_run_without_tvm(device, dtype):
    i, k = lw.indices("i k")
    x, y = lw.tensor("x", (5, 9), dtype), lw.tensor("y")
    y[i] += x[i, k] * x[i, k]
    workload = lw.workload(y)
    (measured,) = device.measure(workload, [space(workload, device.target).default])
    assert measured.failure is None, measured.failure


def test_cold_caches_are_recorded(builder):
    workload = faults.workload()
    cold = replace(FAST, cache="cold")
    with LocalDevice("cpu", 1, timing=cold, builder=builder) as device:
        (measured,) = device.measure(workload, [space(workload, device.target).default])
    assert measured.failure is None
    assert measured.cache == "cold"


def test_a_closed_device_leaves_no_process_and_no_file(builder):
    workload = faults.workload()
    device = LocalDevice("cpu", 1, timing=FAST, builder=builder)
    list(device.measure(workload, [space(workload, device.target).default]))
    worker = device._runner._pool.workers[0]
    folder = Path(device._folder.name)
    assert os.path.exists(f"/proc/{worker.pid}")
    assert folder.is_dir()
    device.close()
    assert not os.path.exists(f"/proc/{worker.pid}")
    assert not folder.exists()


def test_nothing_is_left_in_the_folder_of_a_device_that_measured(builder):
    workload = faults.workload()
    with LocalDevice("cpu", 1, timing=FAST, builder=builder) as device:
        configs = some(space(workload, device.target), 5)
        builder.given[configs[2]] = faults.built("segfault")
        list(device.measure(workload, configs))
        assert list(Path(device._folder.name).iterdir()) == []


def test_work_that_is_too_large_for_memory_is_refused_by_its_size_before_anything_runs():
    i = lw.indices("i")
    x, y = lw.tensor("x", (1 << 40,)), lw.tensor("y")
    y[i] = x[i] + 1.0
    with (
        LocalDevice(memory=1 << 30) as device,
        pytest.raises(DeviceError, match=r"y is too large.*17,592,186,044,416 b.*1,073,741,824"),
    ):
        lw.tune(y, device=device, records=None, trials=5)


def test_code_that_was_measured_is_not_built_again_to_be_compared(builder, monkeypatch):
    with LocalDevice(timing=FAST, builder=builder) as device:
        work = faults.workload()
        configs = [space(work, device.target).default]
        list(device.measure(work, configs))
        monkeypatch.setattr(builder, "build", None)
        assert len(device.compare(work, configs, 3).samples[0]) == 3
