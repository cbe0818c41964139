"""Runs on another machine: bad candidates, links that break, machines that cannot go on."""

from __future__ import annotations

import os
import platform
import re
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from loopwright.dsl.oracle import tolerance
from loopwright.measure.builder import Built, Task
from loopwright.measure.device import DeviceError, Failure, TimeUpError
from loopwright.measure.lease import MachineLease
from loopwright.measure.remote import bootstrap
from loopwright.measure.remote import link as links_module
from loopwright.measure.remote import session as sessions
from loopwright.measure.remote import stream as streams
from loopwright.measure.remote.bootstrap import Program
from loopwright.measure.remote.facts import Facts
from loopwright.measure.remote.frames import HEADER_BYTES, Kind, LinkError, encode
from loopwright.measure.remote.link import Link
from loopwright.measure.runner import Data, Runner
from loopwright.measure.timing import Timing
from loopwright.schedule.target import Target
from tests.measure import faults
from tests.measure.remote import links

FAST = Timing(cap=0.0)
FAULTS = {
    "segfault": ("crash", "SIGSEGV"),
    "abort": ("crash", "SIGABRT"),
    "exit": ("crash", "status 0"),
    "hang": ("timeout", "within 1 s"),
    "greedy": ("memory", "no memory"),
    "wrong": ("wrong", r"y: 1 of 64 elements are wrong; y\[5\]"),
    "idle": ("wrong", "64 of 64"),
    "parent": ("crash", "SIGSEGV"),
    "needy": ("run", "undefined symbol: missing"),
}


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def link(folder):
    link = Link(links.loopback(folder))
    yield link
    link.close()


@pytest.fixture
def runner(link):
    return Runner(link, lease=link)


@pytest.fixture(scope="module")
def data():
    workload = faults.workload()
    return Data(Task(workload, Target()), 3, faults.expected(3), tolerance(workload), 1.0)


def test_bad_candidates_are_one_failure_each_and_others_are_measured(runner, link, data, folder):
    for name, (kind, words) in FAULTS.items():
        failure = runner.run(data, faults.built(name), FAST).failure
        assert failure is not None, name
        assert failure.kind == kind, name
        assert re.search(words, failure.message), name
    assert runner.run(data, faults.built("good"), FAST).failure is None
    assert link.breaks == 0, "the worker outlives its candidates"


def test_files_that_are_no_library_and_chatty_candidates_do_no_harm(runner, data):
    failure = runner.run(data, faults.not_ours(), FAST).failure
    assert failure.kind == "run"
    assert "cannot load" in failure.message
    assert runner.run(data, faults.built("chatty"), FAST).failure is None


def test_an_innocent_candidate_does_not_suffer_from_one_that_spoilt_the_inputs(runner, data):
    runner.run(data, faults.built("vandal"), FAST)
    assert runner.run(data, faults.built("good"), FAST).failure is None


def test_outputs_come_back_as_bytes(runner, data):
    free = replace(data, expected=())
    reply = runner.run(free, faults.built("good"), FAST, outputs=True)
    assert tuple(map(bytes, reply.message.blobs)) == data.expected


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_candidates_are_sampled_side_by_side(runner, data, cache):
    candidates = [faults.built(n) for n in ("good", "segfault", "good")]
    candidates.append(Built(b"", {}, Failure("build", "no"), 0.0))
    taken = list(runner.measure(data, candidates, Timing(cap=0.01, cache=cache)))
    assert [t.failure and t.failure.kind for t in taken] == [None, "crash", None, "build"]
    assert all(len(t.seconds) >= 3 and max(t.seconds) < 1 for t in (taken[0], taken[2]))
    compared = runner.compare(data, candidates, FAST, 4)
    assert [len(s) for s in compared.samples] == [4] * 4
    assert np.isinf(compared.samples[1]).all()


def test_code_and_inputs_are_shipped_once(runner, data, monkeypatch):
    shipped = []
    written = streams.Stream.write

    def counted(stream, pieces):
        for piece in (pieces := list(pieces)):
            shipped.append(memoryview(piece).nbytes)
        written(stream, pieces)

    monkeypatch.setattr(streams.Stream, "write", counted)
    for _ in range(3):
        assert runner.run(data, faults.built("good"), FAST).failure is None
    assert shipped.count(len(faults.shared_object("good"))) == 1
    assert shipped.count(4 * faults.N) == 1


def kill_under_a_call(monkeypatch, folder):
    """Kill the worker shortly after it was asked for a call, once."""
    ask, armed = sessions.Session.ask, [True]

    def killing(session, kind, *words, **options):
        if kind is Kind.CALL and armed:
            armed.clear()
            threading.Timer(0.1, links.kill, [folder]).start()
        return ask(session, kind, *words, **options)

    monkeypatch.setattr(sessions.Session, "ask", killing)


def test_a_killed_worker_is_no_failed_trial(runner, link, data, folder, monkeypatch):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    links.kill(folder)  # while idle: nothing was lost
    assert runner.run(data, faults.built("good"), FAST).failure is None
    kill_under_a_call(monkeypatch, folder)
    slow = replace(data, timeout=10.0)
    assert runner.run(slow, faults.built("slow"), FAST).failure is None
    assert link.breaks == 2


def test_links_that_break_three_times_under_a_candidate_are_not_its_failure(
    runner, link, data, monkeypatch
):
    ask, left = sessions.Session.ask, [1, 2, 3]

    def breaking(session, kind, *words, **options):
        if kind is Kind.CALL and left:
            raise LinkError(f"made up, number {left.pop()}")
        return ask(session, kind, *words, **options)

    assert runner.run(data, faults.built("good"), FAST).failure is None
    monkeypatch.setattr(sessions.Session, "ask", breaking)
    (one,) = runner.measure(data, [faults.built("good")], FAST)
    assert one.failure is None
    assert link.breaks == 3


@pytest.mark.parametrize("other", [False, True], ids=["of the lease", "of the data"])
def test_an_answer_that_was_not_waited_for_is_no_answer_of_the_next_question(
    runner, link, data, monkeypatch, other
):
    assert runner.run(data, faults.built("good"), FAST).failure is None

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sessions.Session, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner.run(replace(data) if other else data, faults.built("good"), FAST)
    assert runner.run(data, faults.built("good"), FAST).failure is None
    assert link.breaks == 0


def test_another_machine_under_the_same_name_is_refused(runner, data, folder, monkeypatch):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    read = Facts.read
    monkeypatch.setattr(Facts, "read", staticmethod(lambda text: read(f"{text}\nhost other\n")))
    links.kill(folder)
    with pytest.raises(DeviceError, match="is not the machine any more that it was"):
        runner.run(data, faults.built("good"), FAST)


def test_what_is_on_its_way_is_no_time_of_a_run(runner, data, monkeypatch):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    ask = sessions.Session.ask

    def far(*words, **options):
        time.sleep(0.2)  # six times, which is more than the time of a run
        return ask(*words, **options)

    monkeypatch.setattr(sessions.Session, "ask", far)
    assert runner.run(data, faults.built("good"), FAST).failure is None


def test_a_slow_link_is_said_once(runner, data, monkeypatch, caplog):
    answered = sessions.Session._answered

    def far(*words):
        time.sleep(0.03)
        return answered(*words)

    monkeypatch.setattr(sessions, "_SLOW", 0.02)
    monkeypatch.setattr(sessions.Session, "_answered", far)
    assert runner.run(data, faults.built("good"), FAST).failure is None
    assert [r.message.split(":")[0] for r in caplog.records] == ["the link to loopback is slow"]


def test_a_break_when_all_is_done_ends_nothing(link, runner, data, folder):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    with link:
        link._recent = [link._answers] * 3
        links.kill(folder)


def test_a_worker_ends_with_its_tuner_and_leaves_nothing(link, runner, data, folder):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    number = links.worker(folder)
    link.close()
    assert links.gone(number)
    assert not links.workers(folder)


def test_what_a_killed_worker_left_goes_with_the_next_one(link, runner, data, folder):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    first = links.worker(folder)
    os.kill(first, signal.SIGKILL)
    assert runner.run(data, faults.built("good"), FAST).failure is None
    assert links.worker(folder) != first


def test_a_worker_that_was_stopped_and_given_up_is_ended_by_the_next_one(link, folder):
    link.start()
    first = links.worker(folder)
    os.kill(first, signal.SIGSTOP)
    other = Link(links.loopback(folder))
    other.start()
    assert links.gone(first)
    other.close()


def test_folders_of_workers_of_other_machines_stay(link, folder):
    left = folder / "loopwright" / "loopwright-run-1-0"
    here, elsewhere = (left.with_name(f"{left.name}@{n}") for n in (platform.node(), "elsewhere"))
    here.mkdir(parents=True)
    elsewhere.mkdir()
    link.start()
    assert not here.exists()
    assert elsewhere.exists()


def test_files_that_were_removed_there_are_shipped_again(link, runner, data, folder):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    for path in (folder / "loopwright").glob("loopwright-run-*/*"):
        path.unlink()
    taken = list(runner.measure(data, [faults.built("good")] * 3, FAST))
    assert [one.failure for one in taken] == [None] * 3


def test_a_break_under_the_first_candidate_of_a_worker_is_not_its_failure(
    runner, link, data, folder, monkeypatch
):
    kill_under_a_call(monkeypatch, folder)
    slow = replace(data, timeout=10.0)
    assert runner.run(slow, faults.built("slow"), FAST).failure is None
    assert link.breaks == 1


@pytest.mark.parametrize("passed", [20, 3000])
def test_a_link_that_drops_again_and_again_ends_the_device_soon(
    link, runner, folder, data, monkeypatch, passed
):
    monkeypatch.setattr(links_module, "_PAUSE", 0.001)
    assert runner.run(data, faults.built("good"), FAST).failure is None
    monkeypatch.setattr(link, "_route", links.dropping(folder, passed))
    links.kill(folder)
    candidates = [faults.built("good")] * 9
    measured = runner.measure(data, candidates, Timing(cap=1.0, relative=0.0))
    with pytest.raises(DeviceError, match=r"broke 4 times .*try: echo 'uname -a'"):
        list(measured)


def test_a_stalled_link_is_given_up(link, runner, data, folder, monkeypatch):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    broke = link._broke

    def patient_again(error):
        monkeypatch.setattr(sessions, "STALL", 60.0)  # a slow machine may start no worker in 0.3 s
        broke(error)

    monkeypatch.setattr(sessions, "STALL", 0.3)
    monkeypatch.setattr(link, "_broke", patient_again)
    stopped = links.worker(folder)
    links.kill(folder, signal.SIGSTOP)
    assert runner.run(data, faults.built("good"), FAST).failure is None
    assert link.breaks == 1
    assert links.gone(stopped), "it is ended with its stream"


def test_time_that_is_up_ends_a_run_there(runner, link, data):
    runner.until(time.monotonic() + 1.5)
    long = replace(data, timeout=60.0)
    began = time.monotonic()
    with pytest.raises(TimeUpError):
        runner.run(long, faults.built("hang"), FAST)
    assert time.monotonic() - began < 20
    runner.until(float("inf"))
    assert runner.run(data, faults.built("good"), FAST).failure is None
    assert link.breaks == 0


def test_whoever_holds_the_machine_is_named_and_waited_for_a_bounded_time(
    link, runner, data, monkeypatch
):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    with MachineLease():
        monkeypatch.setattr(sessions, "BOUND", 0.2)
        with pytest.raises(DeviceError, match=rf"held by .*process {os.getpid()} .* for 0.2 s"):
            runner.run(data, faults.built("good"), FAST)
        monkeypatch.setattr(sessions, "BOUND", 60.0)
        runner.until(time.monotonic() + 0.2)
        with pytest.raises(TimeUpError, match="while others measured on loopback"):
            runner.run(data, faults.built("good"), FAST)
        runner.until(float("inf"))
    assert runner.run(data, faults.built("good"), FAST).failure is None
    assert link.breaks == 0


def test_a_lease_ends_with_its_worker(link, runner, data, folder):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    with link:
        with pytest.raises(DeviceError, match="was held by"):
            MachineLease(bound=0.1).__enter__()
        links.kill(folder)
        with MachineLease(bound=5.0):
            pass


def test_a_login_banner_is_skipped(folder, data):
    banner = "for i in 1 2 3; do printf 'Welcome to %s\\n' 'a board, user!'; done; exec sh"
    link = Link(links.loopback(folder, banner))
    try:
        assert Runner(link, lease=link).run(data, faults.built("good"), FAST).failure is None
    finally:
        link.close()


def refused(folder, script, prefix=()):
    with pytest.raises(DeviceError) as error:
        Link(links.loopback(folder, script, prefix)).start()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unreachable_machine_is_one_line_with_the_command_to_try(folder):
    said = refused(folder, "echo 'ssh: no route to host' >&2; exit 255")
    assert "cannot be reached" in said
    assert "status 255: ssh: no route to host" in said
    assert "try: echo 'uname -a' | env" in said


def test_a_machine_that_talks_without_end_is_refused(folder):
    assert "more than 64 KiB" in refused(folder, "yes hello")


def test_a_machine_of_another_kind_is_refused(folder):
    uname = folder / "uname"
    uname.write_text("#!/bin/sh\ncase $1 in -m) echo riscv64;; *) echo Linux;; esac\n")
    uname.chmod(0o755)
    said = refused(folder, f"PATH={folder}:$PATH exec sh")
    assert "Linux on riscv64" in said
    uname.write_text("#!/bin/sh\ncase $1 in -m) echo aarch64;; -o) echo Android;; esac\n")
    assert "is Android on aarch64" in refused(folder, f"PATH={folder}:$PATH exec sh")
    assert "x86_64 and aarch64" in said


def test_a_full_disk_is_said_and_nothing_of_the_worker_is_run_as_commands(folder, monkeypatch):
    command = f"\ntouch {folder}/ran\n".encode()
    program = Program(command * (48_000 // len(command)), "0" * 64)
    monkeypatch.setattr(bootstrap, "worker_program", lambda _: program)
    said = refused(folder, "ulimit -f 10; exec sh")
    assert "could not be kept there" in said
    assert not (folder / "ran").exists()


def test_a_disk_that_is_full_later_ends_the_device(folder, data):
    link = Link(links.loopback(folder, "ulimit -f 160; exec sh"))
    large = Built(bytes(1 << 20), faults.SIGNATURE.to_json(), None, 0.0)
    try:
        runner = Runner(link, lease=link)
        assert runner.run(data, faults.built("good"), FAST).failure is None
        with pytest.raises(DeviceError, match=r"loopback cannot go on: .*File too large"):
            runner.run(data, large, FAST)
    finally:
        link.close()


def stand_in(folder, frame):
    """Words that start a program which says one frame, in place of the worker."""
    said = folder / "said"
    said.write_bytes(frame)
    return ("sh", "-c", f"cat {said}; sleep 1")


def test_another_version_of_the_protocol_is_refused(folder):
    facts = stand_in(folder, encode(Kind.FACTS, b"", value=7))
    assert "speaks version 7 of the protocol" in refused(folder, "exec sh", facts)


def test_a_frame_that_is_too_long_is_refused_by_its_header(folder):
    head = encode(Kind.FACTS, b"", value=1)
    long = bytearray(encode(Kind.FACTS, bytes(2 << 20), value=1)[:HEADER_BYTES])
    assert len(head) == len(long)
    said = refused(folder, "exec sh", stand_in(folder, bytes(long)))
    assert "a frame of 2,097,152 bytes came where 1,048,576 are allowed" in said
