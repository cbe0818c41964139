"""The lease of a machine: one at a time, undone with its holder, bounded, with names."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time

import pytest

from loopwright.measure import lease
from loopwright.measure.device import DeviceError, TimeUpError
from loopwright.measure.lease import MachineLease, readable


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    monkeypatch.setenv(lease.VARIABLE, str(tmp_path / "lease"))
    return tmp_path / "lease"


HOLD = """
import sys, time
from loopwright.measure.lease import MachineLease
with MachineLease():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other():
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_who_holds_a_machine_too_long_is_named(other):
    with pytest.raises(DeviceError, match=rf"held by .*process {other.pid} .*for 0.2 s"):
        MachineLease(bound=0.2).__enter__()


def test_whom_one_waits_for_is_said(other, monkeypatch, caplog):
    monkeypatch.setattr(lease, "_TELL", 0.05)
    waiting = MachineLease()
    waiting.deadline = time.monotonic() + 0.2
    with pytest.raises(TimeUpError):
        waiting.__enter__()
    assert f"process {other.pid}" in caplog.text


def test_a_lease_ends_with_its_holder(other):
    other.kill()
    with MachineLease(bound=2.0):
        pass


def test_a_lease_can_be_had_again_and_leaves_no_name(path):
    held = MachineLease()
    for _ in range(3):
        with held:
            assert f"process {os.getpid()}" in path.read_text()
    assert path.read_text() == ""
    assert path.stat().st_mode & 0o777 == 0o666


def is_free(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def failing(number):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    return fails


def test_a_full_disk_keeps_no_lease(monkeypatch):
    monkeypatch.setattr(os, "pwrite", failing(errno.ENOSPC))
    for _ in range(2):
        with MachineLease(bound=0.1):
            pass


def test_a_file_that_cannot_be_locked_is_an_error(monkeypatch, path):
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", failing(errno.ENOLCK))
        with pytest.raises(DeviceError, match=r"cannot be opened \(No locks available\)"):
            MachineLease().__enter__()
    with MachineLease(bound=0.1):
        pass


def test_a_fork_that_goes_on_has_no_lease():
    held = MachineLease()
    with held:
        copy = os.dup(held._file)
    with MachineLease(bound=0.1):
        os.close(copy)


def test_who_was_stopped_while_waiting_is_named(path):
    with open(f"{path}.next", "w") as following:
        fcntl.flock(following, fcntl.LOCK_EX)
        following.write("a stopped tuner")
        following.flush()
        with pytest.raises(DeviceError, match=r"held by a stopped tuner for 0\.1 s"):
            MachineLease(bound=0.1).__enter__()


def test_whoever_waits_comes_before_him_who_held_it_last(path):
    taken = []

    def take():
        with MachineLease():
            taken.append("other")

    thread = threading.Thread(target=take)
    with MachineLease():
        thread.start()
        with open(f"{path}.next", "w") as following:
            while is_free(following):
                time.sleep(0.01)
    with MachineLease():
        taken.append("first again")
    thread.join()
    assert taken == ["other", "first again"]


def test_a_file_that_cannot_be_opened_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv(lease.VARIABLE, str(tmp_path / "none" / "lease"))
    with pytest.raises(DeviceError, match="set LOOPWRIGHT_LEASE to a file"):
        MachineLease().__enter__()


def test_a_name_carries_no_commands_for_a_terminal():
    assert readable(b"\x1b[2Jroot\n\xff") == "[2Jroot \N{REPLACEMENT CHARACTER}"
