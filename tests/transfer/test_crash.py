"""Several writers, forks, and `kill -9`."""

import multiprocessing
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import delete

from loopwright.transfer.records.sql import tables
from loopwright.transfer.records.sql.sqlite import SqliteDatabase
from loopwright.transfer.records.store import RecordError, RecordStore
from tests import interpreter
from tests.transfer.examples import config, record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tuning.db"


def database(store):
    return store._stored.database


def python(program, *args):
    """Start another interpreter on a program or a file."""
    first = ["-c", program] if " " in program else [program]
    return subprocess.Popen(
        [sys.executable, *first, *map(str, args)],
        cwd=ROOT,
        env=interpreter.environment(OPENBLAS_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        text=True,
    )


def output(process):
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out


def kill_writers(folder, rounds, seed):
    return int(output(python("tests/transfer/killer.py", folder, rounds, seed)))


def test_killed_writers_lose_nothing_that_was_reported(tmp_path):
    assert kill_writers(tmp_path, rounds=25, seed=1) > 25


@pytest.mark.slow
def test_many_killed_writers_lose_nothing_that_was_reported(tmp_path):
    assert kill_writers(tmp_path, rounds=2000, seed=2) > 2000


ADD = """
import sys
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import record
with RecordStore(sys.argv[1]) as store:
    for n in range(100):
        store.add([record(n, session=sys.argv[2]), record(n)])
"""


def test_processes_write_at_once(path):
    for writer in [python(ADD, path, name) for name in "abc"]:
        output(writer)
    with RecordStore(path) as store:
        assert len(store) == 4 * 100  # those of no session were the same
        for name in "abc":
            assert [r.config for r in store.query(session=name)] == [config(n) for n in range(100)]


def test_a_reader_does_not_block_a_writer_nor_wait_for_it(path):
    with RecordStore(path) as store, RecordStore(path) as other:
        store.add([record(0)])

        def work(connection):
            connection.execute(delete(tables.records))
            assert len(other) == 1  # at once, and not what is not committed

        database(store).write(work)
        reading = sqlite3.connect(path).execute("SELECT * FROM texts")
        reading.fetchone()  # a reader in the middle of its work
        store.add([record(1)])
        assert len(store) == 1
        reading.connection.close()


def test_a_writer_that_never_ends_is_named_in_the_end(path, monkeypatch):
    monkeypatch.setattr("loopwright.transfer.records.sql.sqlite.PATIENCE", 0.1)
    with RecordStore(path) as store, RecordStore(path) as other:
        store.add([record(0)])

        def work(connection):
            with pytest.raises(RecordError, match="another process has kept it locked"):
                other.add([record(1)])

        database(store).write(work)
        assert other.add([record(1)]) == (2,)


@pytest.fixture
def interruptible():
    """SIGINT raises `KeyboardInterrupt`, in a job in the background too, which ignores it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_another_writes_leaves_the_store_usable(path):
    with RecordStore(path) as store, RecordStore(path) as other:
        store.add([record(0)])
        begun, statements = threading.Event(), queue.SimpleQueue()

        def write():
            def work(connection):
                begun.set()
                assert statements.get() == "BEGIN IMMEDIATE"
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)

            database(other).write(work)

        writer = threading.Thread(target=write)
        writer.start()
        begun.wait()
        # `put` is no Python code, which the interrupt would end in place of the statement.
        with database(store)._opened().connect() as connection:
            connection.connection.driver_connection.set_trace_callback(statements.put)
        with pytest.raises(KeyboardInterrupt):
            store.add([record(1)])
        writer.join()
        assert store.add([record(1)]) == (2,)


def test_threads_share_a_store(path):
    with RecordStore(path) as store:
        threads = [
            threading.Thread(target=lambda name=name: [
                store.add([record(n, session=name)]) for n in range(25)
            ])
            for name in "abcd"
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store) == 100


FORK = """
import os, sys, threading
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import record
store = RecordStore(sys.argv[1])
store.add([record(0, session="parent")])
stop = threading.Event()
def busy():
    n = 1
    while not stop.is_set() or n < 20:
        store.add([record(n, session="parent")])
        n += 1
thread = threading.Thread(target=busy)
thread.start()
children = []
for child in range(8):
    pid = os.fork()
    if pid == 0:
        for n in range(10):
            store.add([record(n, session=f"child {child}")])
        os._exit(0)
    children.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in children]
stop.set()
thread.join()
store.close()
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_store_goes_on_in_both_after_a_fork(path):
    """Forked while another thread writes: neither a lock nor a connection is shared."""
    assert output(python(FORK, path)) == f"{[0] * 8}\n"
    with RecordStore(path) as store:
        for child in range(8):
            assert len(list(store.query(session=f"child {child}"))) == 10
        parents = [r.config for r in store.query(session="parent")]
        assert parents == [config(n) for n in range(len(parents))]


def add_in_child(store_path):
    with RecordStore(store_path) as store:
        return store.add([record(1)])


def test_a_spawned_worker_writes_too(path):
    with RecordStore(path) as store:
        store.add([record(0)])
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(add_in_child, (path,)) == (2,)
        assert len(store) == 2


def test_a_batch_that_fails_halfway_leaves_nothing(path):
    with RecordStore(path) as store:
        store.add([record(0)])

        def work(connection):
            connection.execute(delete(tables.records))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            database(store).write(work)
        assert len(store) == 1


def test_importing_the_store_takes_no_compiler():
    program = "import sys; import loopwright.transfer.records.store; print(*sys.modules)"
    assert not {"tvm", "sqlalchemy"} & set(output(python(program)).split())


def test_a_store_that_may_only_be_read_says_by_which_option_another_is_named(tmp_path):
    database = SqliteDatabase(tmp_path / "r.db", create=True)
    message = r"you may not write there; .* \(--records, records= in Python\)"
    with pytest.raises(RecordError, match=message), database.explained():
        raise sqlite3.OperationalError("attempt to write a readonly database")
