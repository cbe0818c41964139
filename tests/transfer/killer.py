"""Kills processes that write to a store, at random moments, and looks for what they lost.

    python killer.py FOLDER ROUNDS SEED

One process forks all the writers, as starting an interpreter would take far longer than they live,
and so would loading SQLAlchemy and Alembic.
"""

import os
import random
import select
import signal
import sqlite3
import sys
import time
from pathlib import Path

import alembic.command  # noqa: F401 - for all writers

from loopwright.transfer.records.sql import stored  # noqa: F401
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import failed, record
from tests.transfer.test_schema import write

WRITERS = 2
OLD = [record(n) for n in range(50)]


def write_until_killed(path, writer, pipe):
    """Add batches of one to three records, and report each once `add` has returned."""
    number = 0
    store = RecordStore(path)
    while True:
        batch = [
            record(number + n, session=f"{os.getpid()}") if writer else failed(number + n)
            for n in range(1 + number % 3)
        ]
        ids = store.add(batch)
        os.write(pipe, "".join(f"{i}\n" for i in ids).encode())
        number += len(batch)


def start(path, writer):
    """A writer's process and the pipe of its reports."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            write_until_killed(path, writer, into)
        finally:
            os._exit(1)
    os.close(into)
    return pid, out


def reported(pipe):
    """The ids that a dead writer had reported; an unfinished line is no report."""
    text = b""
    while part := os.read(pipe, 1 << 16):
        text += part
    os.close(pipe)
    return [int(line) for line in text.split(b"\n")[:-1]]


def play(path, rng):
    """Start writers, kill each at a random moment; what they reported."""
    running = [start(path, writer) for writer in range(WRITERS)]
    if rng.random() < 0.5:  # else they may not even have opened the file
        select.select([pipe for _, pipe in running], [], [], 10)
    ids = []
    for pid, pipe in running:
        time.sleep(rng.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        ids += reported(pipe)
    return ids


def check(path, ids, former):
    """Everything reported is there and whole; what was there before still is."""
    with RecordStore(path) as store:
        found = {r.id: r for r in store}
        assert set(ids) <= found.keys(), f"lost {set(ids) - found.keys()}"
        assert former.items() <= found.items(), "an older record changed"
        assert store.add([record(10_000)])
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    return found


def main(folder, rounds, seed):
    rng = random.Random(seed)
    total, former, path = 0, {}, folder / "0.db"
    for number in range(rounds):
        if number % 4 == 0:  # sometimes killed while the file is made, or brought up to date
            path, former = folder / f"{number}.db", {}
            if number % 8 == 0:
                write(path, number // 8 % 3, OLD)
                former = dict(enumerate(OLD, 1))
        ids = play(path, rng)
        former = check(path, ids, former)
        total += len(ids)
    print(total)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
