"""Processes that are killed or stopped from outside: the work goes on, within seconds."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from loopwright.measure.device import DeviceError
from loopwright.measure.workers import fork_server, pool, process
from loopwright.measure.workers.fork_server import ForkServer, Kind
from loopwright.measure.workers.messages import Message
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.process import LOOK, Job

JOB = Job(Message({"do": "nothing"}), 60.0)


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch):
    monkeypatch.setattr(pool, "LOOK", 0.1)
    monkeypatch.setattr(process, "LOOK", 0.1)


@pytest.fixture
def workers(tmp_path):
    made = Pool(Kind("run", 2 << 30, tmp_path), 2)
    yield made
    made.close()


def hurt_the_first(monkeypatch, sign, count=1):
    """Send a signal to the first fork servers as soon as they are there."""
    hurt = []

    class Hurt(ForkServer):
        def __init__(self, kind):
            super().__init__(kind)
            if len(hurt) < count:
                os.kill(self.pid, sign)
                hurt.append(self.pid)

    monkeypatch.setattr(pool, "ForkServer", Hurt)
    return hurt


def is_gone(pid):
    """Whether a process has ended, at the latest in a while; nobody may have asked how."""
    for _ in range(100):  # whoever adopts it takes a moment
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.05)
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_fork_server_lost_before_its_first_worker_is_replaced(
    workers, monkeypatch, caplog, sign
):
    hurt = hurt_the_first(monkeypatch, sign)
    with caplog.at_level(logging.WARNING):
        workers.start(2)
        workers.map([])
    assert len(workers.workers) == 2
    assert len([r for r in caplog.records if "another process is started" in r.message]) == 1
    assert not os.path.exists(f"/proc/{hurt[0]}")


def test_fork_servers_lost_again_and_again_are_an_error(workers, monkeypatch):
    hurt = hurt_the_first(monkeypatch, signal.SIGKILL, count=99)
    workers.start(2)
    with pytest.raises(DeviceError, match="a worker did not start"):
        workers.map([])
    assert len(hurt) == 4
    assert workers.workers == []


def test_a_fork_server_stopped_after_its_workers_began_is_replaced_when_needed(workers):
    workers.start(2)
    workers.map([])
    os.kill(workers._fork_server.pid, signal.SIGSTOP)
    os.kill(workers.workers[0].pid, signal.SIGKILL)
    replies = workers.map([JOB] * 4)
    assert {r.failure.kind for r in replies} <= {"run", "crash"}
    assert len(workers.workers) == 2
    assert all(r.failure.kind == "run" for r in workers.map([JOB] * 4))


def test_a_worker_that_is_stopped_is_ended_long_before_its_time_is_up(workers):
    workers.start(1)
    workers.map([])
    worker = workers.workers[0]
    os.kill(worker.pid, signal.SIGSTOP)
    began = time.monotonic()
    (reply,) = workers.map([JOB])
    assert "stopped" in reply.failure.message
    assert time.monotonic() - began < JOB.timeout / 2
    assert not worker.alive


@pytest.fixture
def stops_early(tmp_path, monkeypatch):
    """File in which the first worker writes its number before it stops: its limits come from a
    module of ours, and are set before it tells its number."""
    told = tmp_path / "told"
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "resource.py").write_text(f"""
import os, signal
from pathlib import Path

RLIMIT_AS, RLIMIT_FSIZE, RLIMIT_CORE, RLIM_INFINITY = range(4)
getrlimit = lambda limit: (3, 3)

def setrlimit(limit, value):
    told = Path({str(told)!r})
    if not told.exists():
        told.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
""")
    monkeypatch.syspath_prepend(tmp_path / "early")
    return told


@pytest.mark.parametrize("killed", [False, True])
def test_a_worker_that_is_stopped_before_it_began_is_replaced_within_seconds(
    workers, stops_early, killed
):
    """Also where its fork server was killed meanwhile, whose socket it may still hold."""
    workers.start(1)
    while not stops_early.exists() or not stops_early.read_text():
        time.sleep(0.01)
    stopped = int(stops_early.read_text())
    if killed:
        os.kill(workers._fork_server.pid, signal.SIGKILL)
    began = time.monotonic()
    workers.map([])
    assert time.monotonic() - began < process._START / 2
    assert [w.alive for w in workers.workers] == [True]
    if killed:  # whoever has adopted it keeps it
        os.kill(stopped, signal.SIGKILL)
    else:
        assert is_gone(stopped)


def test_a_worker_that_goes_on_is_kept(workers, monkeypatch):
    """As where a whole group of processes is stopped, and continued after a while."""
    workers.start(1)
    workers.map([])
    worker = workers.workers[0]
    looks = iter([True, False, True, False])
    monkeypatch.setattr(process, "is_stopped", lambda _: next(looks, False))
    os.kill(worker.pid, signal.SIGSTOP)
    timer = threading.Timer(0.6, os.kill, [worker.pid, signal.SIGCONT])
    timer.start()
    (reply,) = workers.map([JOB])
    timer.join()
    assert reply.failure.kind == "run"
    assert worker.alive


def test_a_stopped_worker_does_not_outlive_the_pool_though_its_fork_server_was_killed(workers):
    workers.start(1)
    workers.map([])
    worker, server = workers.workers[0].pid, workers._fork_server.pid
    os.kill(worker, signal.SIGSTOP)
    os.kill(server, signal.SIGKILL)
    workers._fork_server._process.wait()
    workers.close()
    assert is_gone(worker)


def test_a_process_that_is_stopped_is_told_from_others():
    assert not fork_server.is_stopped(os.getpid())
    assert not fork_server.is_stopped(1 << 30)
    assert LOOK < 5 < process._START
    assert sys.platform == "linux"
