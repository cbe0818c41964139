"""Searches that lose their device or its processes: what was found is returned, and said."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from loopwright.dsl.errors import LoopwrightError
from loopwright.explore.budget import TuningError
from loopwright.explore.tune import tune
from loopwright.measure.device import DeviceError
from loopwright.measure.local import LocalDevice
from loopwright.measure.reference import Limits
from loopwright.measure.timing import Timing
from loopwright.measure.workers import pool, process
from loopwright.transfer.records.store import RecordStore
from tests.explore.synthetic import MadeUp, cost, matmul
from tests.explore.test_tune import run


def test_a_device_that_fails_ends_the_search_with_what_it_has(tmp_path):
    device = MadeUp(breaks_at=45)
    tuned = run(device, records=tmp_path / "r.db")
    assert tuned.end == "the device failed"
    assert len(tuned.history) == 45
    assert tuned.config == min(device.measured, key=cost)
    assert any("ends early, with what it has: the device is gone" in n for n in tuned.notes)
    assert any("the best were not compared: the device is gone" in n for n in tuned.notes)
    with RecordStore(tmp_path / "r.db") as store:
        assert len(store) == 45


def test_a_device_that_fails_before_anything_was_measured_is_an_error(tmp_path):
    with pytest.raises(DeviceError, match="the device is gone"):
        run(MadeUp(breaks_at=0))
    run(MadeUp(), records=tmp_path / "r.db", trials=8)
    with pytest.raises(DeviceError, match="the device is gone"):
        run(MadeUp(breaks_at=0), records=tmp_path / "r.db")


def test_a_device_that_fails_in_the_comparison_leaves_the_best_of_the_search():
    device = MadeUp(breaks_at=80)
    tuned = run(device)
    assert tuned.config == min(device.measured, key=cost)
    assert tuned.finalists == ()
    assert tuned.claim == "not compared with the default"


class Drifting(MadeUp):
    """Doubts what it measured first, once it has measured 30."""

    doubted = False

    def doubtful(self, workload):
        if self.doubted or len(self.measured) < 30:
            return ()
        self.doubted = True
        return self.measured[4:9]


def test_what_a_device_doubts_is_measured_again_and_counts_once(tmp_path):
    device = Drifting()
    tuned = run(device, records=tmp_path / "r.db", trials=40, strategy="random")
    assert len(device.measured) == 45
    assert len({m.config for m in tuned.history}) == len(tuned.history) == 40
    again = {m.config: m.started for m in tuned.history if m.started >= 30}
    assert again.keys() >= set(device.measured[4:9]), "the later time counts"
    assert "5 candidates of a machine that has changed: measured again" in tuned.notes


class Vandal(threading.Thread):
    """Kills and stops processes of a device, at random times, as long as it is entered."""

    def __init__(self, device, seed):
        super().__init__(daemon=True)
        self.device, self.chance, self.over = device, random.Random(seed), threading.Event()

    def run(self):
        while not self.over.wait(self.chance.uniform(0.0, 3.0)):
            sign = self.chance.choice([signal.SIGKILL, signal.SIGSTOP])
            if every := self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.chance.choice(every), sign)

    def processes(self):
        """Fork servers of the device, and their workers."""
        folder = self.device._folder.name
        servers = [p for p in children(os.getpid()) if folder in environment(p)]
        return servers + [worker for server in servers for worker in children(server)]

    def __enter__(self):
        self.start()

    def __exit__(self, *_error):
        self.over.set()
        self.join()


def children(parent):
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{parent}/task").glob("*/children")
        return [int(pid) for path in found for pid in path.read_text().split()]
    return []


def environment(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return ""


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 16))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_whose_processes_are_killed_and_stopped_ends_in_time(monkeypatch, tmp_path, seed):
    """With a result, or with an error of ours where nothing could be measured."""
    for module in (pool, process):
        monkeypatch.setattr(module, "LOOK", 0.2)
    limits = Limits(build=4.0, run=2.0, oracle=4.0, default=4.0)
    device = LocalDevice("cpu", 1, timing=Timing(cap=0.01), limits=limits, build_workers=2)
    began = time.monotonic()
    tuned = None
    with device, Vandal(device, seed), contextlib.suppress(LoopwrightError):
        tuned = tune(matmul(), device=device, trials=12, records=tmp_path / "r.db", model="random")
    assert time.monotonic() - began < 120
    if tuned is not None:
        assert tuned.seconds > 0
        with RecordStore(tmp_path / "r.db") as store:
            assert len(store) >= len(tuned.history)


def _children():
    tasks = Path("/proc/self/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


@pytest.mark.parametrize("fault", [KeyboardInterrupt, TuningError])
def test_a_search_that_ends_before_it_measures_leaves_no_process(monkeypatch, fault):
    before, begun = _children(), set()

    def search(*_):
        begun.update(_children() - before)
        raise fault

    monkeypatch.setattr("loopwright.explore.search.search", search)
    with pytest.raises(fault):
        tune(matmul(), threads=1, trials=4, records=None)
    assert len(begun) == 2  # of which workers are forked that build, and one that runs
    assert _children() == before


def test_a_python_that_cannot_be_started_is_told_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(DeviceError, match=r"cannot start .*python"):
        tune(matmul(), threads=1, trials=4, records=None)


def test_a_python_that_cannot_import_is_told_when_the_search_waits_for_it(monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no module named tvm >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(DeviceError, match=r"(?s)did not start.*no module named tvm"):
        tune(matmul(), threads=1, trials=4, records=None, strategy="random")
