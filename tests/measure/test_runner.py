"""Candidates that crash, hang, eat memory or lie, run in a worker process."""

from __future__ import annotations

import errno
import gc
import itertools
import math
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from loopwright.dsl.oracle import tolerance
from loopwright.measure.builder import Built, Task
from loopwright.measure.device import DeviceError, Failure, TimeUpError
from loopwright.measure.runner import Data, Runner, Sampled
from loopwright.measure.timing import Timing
from loopwright.measure.workers import fork_server
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.messages import CandidateError, Decoder, Message
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.process import Job
from loopwright.measure.workers.worker import answer
from loopwright.schedule.target import Target
from tests import interpreter
from tests.measure import faults

FAST = Timing(cap=0.0)
FAULTS = {
    "segfault": ("crash", "SIGSEGV"),
    "abort": ("crash", "SIGABRT"),
    "exit": ("crash", "status 0"),
    "hang": ("timeout", "within 1.5 s"),
    "greedy": ("memory", "no memory"),
    "wrong": ("wrong", r"y: 1 of 64 elements are wrong; y\[5\]"),
    "idle": ("wrong", "64 of 64"),
}


@pytest.fixture(autouse=True)
def interruptible():
    """A shell starts jobs in the background with interrupts ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    pool = Pool(Kind("run", 2 << 30, folder), 1)
    yield pool
    pool.close()


@pytest.fixture
def runner(pool):
    return Runner(pool)


@pytest.fixture(scope="module")
def data():
    workload = faults.workload()
    return Data(Task(workload, Target()), 3, faults.expected(3), tolerance(workload), 1.5)


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_candidate_is_one_failure_and_the_next_one_is_measured(runner, data, name):
    kind, words = FAULTS[name]
    reply = runner.run(data, faults.built(name), FAST)
    assert reply.failure.kind == kind
    assert re.search(words, reply.failure.message)
    assert runner.run(data, faults.built("good"), FAST).failure is None


def test_a_crash_shows_what_the_worker_said_last(runner, data):
    failure = runner.run(data, faults.built("segfault"), FAST).failure
    assert "Segmentation fault" in failure.traceback
    assert "timing.py" in failure.traceback


def test_a_file_that_is_no_library_is_a_failure(runner, data):
    failure = runner.run(data, faults.not_ours(), FAST).failure
    assert failure.kind == "run"
    assert "cannot load" in failure.message
    assert "Traceback" in failure.traceback


def test_garbage_on_the_standard_output_does_no_harm(runner, data):
    for _ in range(3):
        reply = runner.run(data, faults.built("chatty"), FAST)
        assert reply.failure is None
        assert reply.message.header["seconds"]


def test_an_innocent_candidate_does_not_suffer_from_one_that_spoilt_the_inputs(runner, data):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    runner.run(data, faults.built("vandal"), FAST)
    assert runner.run(data, faults.built("good"), FAST).failure is None


def test_without_expected_outputs_nothing_is_checked_and_outputs_can_be_had(runner, data):
    free = Data(data.task, data.seed, (), (0.0, 0.0), 5.0)
    reply = runner.run(free, faults.built("good"), FAST, outputs=True)
    assert reply.message.blobs == data.expected


def test_finalists_are_sampled_in_turns_and_failing_ones_are_infinite(runner, data):
    candidates = [faults.built(n) for n in ("good", "segfault", "good")]
    candidates.append(Built(b"", {}, Failure("build", "no"), 0.0))
    compared = runner.compare(data, candidates, FAST, 4)
    first, second, third, fourth = compared.samples
    assert len(first) == len(third) == 4
    assert all(0 < s < 1 for s in (*first, *third))
    assert second == fourth == (math.inf,) * 4
    assert compared.sizes[0] == len(candidates[0].code) > compared.sizes[3] == 0
    assert compared.others >= 0


def test_candidates_are_measured_side_by_side_and_bad_ones_fail_alone(runner, data):
    candidates = [faults.built(n) for n in ("good", "segfault", "wrong", "good")]
    candidates.append(Built(b"", {}, Failure("build", "no"), 0.0))
    taken = list(runner.measure(data, candidates, Timing(cap=0.01)))
    kinds = [one.failure and one.failure.kind for one in taken]
    assert kinds == [None, "crash", "wrong", None, "build"]
    assert all(len(one.seconds) >= 6 and max(one.seconds) < 1 for one in (taken[0], taken[3]))
    assert not any(one.times for one in (taken[1], taken[2], taken[4]))
    assert all(one.started > 1.7e9 for one in taken)


def test_an_idle_worker_that_was_killed_is_replaced_where_it_gets_other_data(runner, pool, data):
    assert runner.run(data, faults.built("good"), FAST).failure is None
    os.kill(pool.workers[0].pid, signal.SIGKILL)
    other = Data(data.task, data.seed, data.expected, data.tolerance, data.timeout)
    assert runner.run(other, faults.built("good"), FAST).failure is None
    assert runner.run(other, faults.built("good"), FAST).failure is None


def test_a_fault_of_the_machine_is_no_failure_of_a_candidate():
    def full(message):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "kernel.so")

    def wrapped(message):
        try:
            full(message)
        except OSError as error:
            raise CandidateError("build", "no folder can be made") from error

    def linked(message):
        raise CandidateError("build", f"ld: final link failed: {os.strerror(errno.ENOSPC)}")

    def own(message):
        raise FileNotFoundError(errno.ENOENT, "of the candidate's own")

    operations = {"full": full, "wrapped": wrapped, "linked": linked, "own": own}
    for name in ("full", "wrapped", "linked"):
        assert "fault" in answer(operations, Message({"do": name})).header
    failure = Failure.from_json(answer(operations, Message({"do": "own"})).header["failure"])
    assert failure.kind == "run"


def test_a_fault_of_the_machine_ends_what_is_under_way(runner, data, monkeypatch):
    monkeypatch.setattr(
        Decoder, "next", lambda self: Message({"fault": "the disk is full", "pid": 1})
    )
    with pytest.raises(DeviceError, match="cannot go on: the disk is full"):
        runner.run(data, faults.built("good"), FAST)


def test_a_worker_starts_under_limits_that_are_there_already(tmp_path):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    command = [sys.executable, "-m", "loopwright.measure.workers.worker", "run", str(1 << 40)]
    done = subprocess.run(
        command, preexec_fn=limited, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_candidate_that_takes_longer_than_its_time_runs_once(runner, data):
    (one,) = runner.measure(data, [faults.built("good")], FAST)
    assert one.seconds == []
    assert one.times == (one.first,)


def test_what_was_loaded_before_an_interrupt_is_not_taken_for_something_else(
    runner, data, monkeypatch
):
    monkeypatch.setattr(Sampled, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.compare(data, [faults.built("good")], FAST, 2)
    monkeypatch.undo()
    (one,) = runner.measure(data, [faults.built("wrong")], FAST)
    assert one.failure.kind == "wrong"


def interrupted(*_):
    raise KeyboardInterrupt


def test_inputs_that_do_not_fit_are_an_error_of_the_device(runner):
    import loopwright as lw

    (i,) = lw.indices("i")
    x, y = lw.tensor("x", (1 << 29,)), lw.tensor("y")
    y[i] = x[i]
    data = Data(Task(lw.workload(y), Target()), 0, (), (0.0, 0.0), 5.0)
    with pytest.raises(DeviceError, match="inputs of this workload cannot be made"):
        runner.run(data, faults.built("good"), FAST)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_hundreds_of_measurements_leak_neither_memory_nor_files(runner, data):
    def measure(times):
        for _ in range(times):
            assert runner.run(data, faults.built("good"), FAST).failure is None
        gc.collect()

    measure(100)
    before, files = resident(), open_files()
    measure(400)
    assert resident() - before < 1 << 20
    assert open_files() == files


def test_killed_workers_leave_neither_zombies_nor_files(pool, runner, data):
    runner.run(data, faults.built("good"), FAST)
    files = open_files()
    processes = [pool.workers[0].pid]
    for _ in range(2):
        runner.run(data, faults.built("segfault"), FAST)
        runner.run(data, faults.built("good"), FAST)
        processes.append(pool.workers[0].pid)
    gc.collect()
    assert open_files() == files
    assert len(set(processes)) == 3
    pool.close()
    assert not any(os.path.exists(f"/proc/{process}") for process in processes)


def test_an_interrupt_ends_the_busy_worker_and_leaves_the_pool_usable(
    pool, runner, data, monkeypatch
):
    slow = Data(data.task, data.seed, data.expected, data.tolerance, 60.0)
    runner.run(slow, faults.built("good"), FAST)
    worker = pool.workers[0]
    main, send, timers = threading.main_thread().ident, worker.send, []

    def sent(job):  # the last job is what hangs
        for timer in timers:
            timer.cancel()
        timers.append(threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT]))
        send(job)
        timers[-1].start()

    monkeypatch.setattr(worker, "send", sent)
    with pytest.raises(KeyboardInterrupt):
        runner.run(slow, faults.built("hang"), FAST)
    assert not worker.alive
    assert pool.workers == []
    assert runner.run(slow, faults.built("good"), FAST).failure is None


def test_jobs_are_shared_out_and_answered_in_order(tmp_path, data):
    pool = Pool(Kind("run", 2 << 30, tmp_path), 2)
    try:
        jobs = [Job(Message({"do": f"unknown {n}"}), 5.0) for n in range(7)]
        messages = [reply.failure.message for reply in pool.map(jobs)]
        assert [m.split("'")[1] for m in messages] == [f"unknown {n}" for n in range(7)]
        assert len(pool.workers) == 2
        assert sum(w.answers for w in pool.workers) == 7
        assert 1 <= len(pool.map(jobs, until_failure=True)) <= 2
    finally:
        pool.close()


def test_workers_that_cannot_start_are_an_error_with_the_last_words(tmp_path, monkeypatch):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no module named tvm >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    pool = Pool(Kind("run", 2 << 30, tmp_path), 1)
    pool.start()
    with pytest.raises(DeviceError, match=r"(?s)did not start.*no module named tvm"):
        pool.map([])
    assert pool.workers == []
    pool.close()


def test_workers_import_what_the_program_would(tmp_path, monkeypatch):
    (tmp_path / "loopwright").mkdir()
    (tmp_path / "loopwright/__init__.py").write_text("raise ImportError('of another folder')")
    monkeypatch.syspath_prepend(tmp_path)
    pool = Pool(Kind("run", 2 << 30, tmp_path), 1)
    with pytest.raises(DeviceError, match=r"(?s)did not start.*of another folder"):
        pool.map([Job(Message({}), 5.0)])
    pool.close()


def test_workers_take_no_module_of_the_present_folder_for_pythons_own(tmp_path, monkeypatch):
    (tmp_path / "resource.py").write_text("raise ImportError('of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m` has it
    pool = Pool(Kind("run", 2 << 30, tmp_path), 1)
    pool.map([])
    pool.start()
    pool.map([])
    assert [w.answers for w in pool.workers] == [0]
    pool.close()


def test_workers_look_for_no_module_in_the_present_folder(tmp_path, monkeypatch):
    """TVM asks for a module `cuda`. A worker that ran a script of that name would start others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend("")
    assert {"", str(tmp_path)}.isdisjoint(fork_server._path())


def test_workers_start_while_other_work_is_done_and_none_twice(tmp_path):
    pool = Pool(Kind("run", 2 << 30, tmp_path), 2)
    try:
        pool.start(2)
        begun = list(pool.workers)
        assert [w.answers for w in begun] == [-1, -1]  # nobody waited
        pool.start(64)
        replies = pool.map([Job(Message({"do": "nothing"}), 60.0)] * 3)
        assert len(replies) == 3
        assert pool.workers == begun
    finally:
        pool.close()


def test_workers_are_forked_from_one_process_and_from_another_if_that_is_lost(tmp_path):
    pool = Pool(Kind("run", 2 << 30, tmp_path), 2)
    try:
        pool.start(2)
        pool.map([])
        (fork_server,) = {parent_of(w.pid) for w in pool.workers}
        assert fork_server != os.getpid()
        os.kill(fork_server, signal.SIGKILL)
        for worker in pool.workers:
            os.kill(worker.pid, signal.SIGKILL)
        pool.map([Job(Message({"do": "nothing"}), 5.0)] * 4)
        (other,) = {parent_of(w.pid) for w in pool.workers}
        assert other not in (fork_server, os.getpid())
    finally:
        pool.close()


def test_what_a_crashed_candidate_started_ends_with_it(pool, runner, data):
    pool.start()
    pool.map([])
    worker = pool.workers[0].pid
    assert runner.run(data, faults.built("parent"), FAST).failure.kind == "crash"
    started = [int(p.name) for p in Path("/proc").glob("[0-9]*")]
    started = [pid for pid in started if group_of(pid) == worker]
    for _ in range(100):  # whoever adopts it takes a moment
        if not any(map(running, started)):
            return
        threading.Event().wait(0.05)
    pytest.fail("what the candidate started goes on")


def test_an_answer_that_nobody_waited_for_is_not_taken_for_another(pool, runner, data):
    pool.start()
    pool.map([])
    pool._fork_server._socket.send(b"status 1")  # as if Ctrl-C had come before the answer
    assert "SIGSEGV" in runner.run(data, faults.built("segfault"), FAST).failure.message


def test_a_limit_under_which_nothing_can_start_is_an_error(tmp_path):
    pool = Pool(Kind("run", 1 << 20, tmp_path), 1)
    pool.start()
    with pytest.raises(DeviceError, match=r"(?s)did not start.*MemoryError"):
        pool.map([])
    pool.close()


def group_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


_PARENT = """
import sys
from pathlib import Path
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.process import Job
from loopwright.measure.runner import Runner
from loopwright.measure.timing import Timing
from loopwright.measure.workers.worker import answer
from tests.measure import faults, test_runner

pool = Pool(Kind("run", 2 << 30, Path(sys.argv[1])), 1)
task = test_runner.Task(faults.workload(), test_runner.Target())
data = test_runner.Data(task, 0, (), (0.0, 0.0), 60.0)
runner = Runner(pool)
runner.run(data, faults.built("good"), Timing(cap=0.0))
print(pool.workers[0].pid, flush=True)
runner.run(data, faults.built("hang"), Timing(cap=0.0))
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent_however_it_ends(tmp_path, end):
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=interpreter.environment(),
    )
    with parent:
        worker = int(parent.stdout.readline())
        parent.send_signal(end)
        parent.wait(20)
    for _ in range(100):
        if not running(worker):
            return
        threading.Event().wait(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # whoever adopted it may not have noticed yet


def test_a_worker_that_runs_does_not_import_tvm():
    code = (
        "import sys; from loopwright.measure.workers import worker, worker_run\n"
        "assert not {'tvm', 'tvm_ffi', 'scipy', 'xgboost', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_at_the_deadline_what_runs_is_ended_and_what_has_a_time_is_kept(runner, data):
    slow = replace(data, timeout=60.0)
    good, hang = faults.built("good"), faults.built("hang")
    assert runner.run(slow, good, FAST).failure is None  # the worker has started
    runner.until(time.monotonic() + 2)
    try:
        found = list(runner.measure(slow, [good, good, hang, good], FAST))
        assert [one.failure for one in found] == [None, None]
        with pytest.raises(TimeUpError):
            runner.run(slow, good, FAST)
        with pytest.raises(TimeUpError):
            runner.compare(slow, [good], FAST, 5)
    finally:
        runner.until(math.inf)
    assert runner.run(data, good, FAST).failure is None


def test_candidates_that_are_not_begun_with_in_time_are_left_out(runner, data):
    asked = itertools.count()
    good = [faults.built("good")] * 6
    found = list(runner.measure(data, good, FAST, lambda: next(asked) >= 3))
    assert len(found) == 4
    assert all(one.times for one in found)
