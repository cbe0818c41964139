"""One SQLite file shared by threads and processes, that survives `kill -9` and `fork`.

In WAL mode a commit is an append to a log beside the file: readers never block writers, and a
process killed while it appends leaves an unfinished tail, which the next one drops. A commit has
reached the operating system when it returns, so a kill loses none, with `synchronous=NORMAL`
too; that spares the disk a flush per record, at the price that a power cut may lose (never
damage) the last moments. Without WAL (file systems that cannot share memory) it is FULL.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.schema import migrate, schema_of

PATIENCE = 60.0
"""Seconds to wait for the lock of another writer; a transaction of ours takes milliseconds."""

_FOREIGN = "not a SQLite file; give the path of a record store, or of a new file"
_DAMAGED = "damaged; save what can be read (`sqlite3 OLD .recover | sqlite3 NEW`), and use NEW"
_REMEDIES = {
    "not a database": _FOREIGN,
    "malformed": _DAMAGED,
    "decode": _DAMAGED,
    "locked": f"another process has kept it locked for {PATIENCE:.0f} s; wait for it, or end it",
    "unable to open": "does the folder exist, and may you read and write there?",
    "readonly": "you may not write there; copy the file to where you may, and name the copy "
    "(--records, records= in Python)",
    "full": "the disk is full; nothing of this batch was stored",
}
"""Remedies for errors of SQLite, by a part of their text."""
_GONE = "the file was deleted or replaced while it was open; what was stored there is gone"

_MAGIC = b"SQLite format 3\0"


class Database:
    """A connection per process, opened when first needed; threads take turns, briefly."""

    def __init__(self, path: str | os.PathLike[str], create: bool) -> None:
        self.path = Path(path).absolute()
        self._create = create
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # that it was opened as
        self._lock = threading.RLock()
        _OPEN.add(self)

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._lock, self.explained():
            return self._opened().execute(sql, values).fetchall()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed when the block ends, undone if it raises. `RecordError` where
        the file is not there any more, or another one is; the next use opens that, or a new one.
        """
        with self._lock, self.explained():
            connection = self._opened()
            self._check_file()
            try:
                connection.execute("BEGIN IMMEDIATE")  # a signal may come as soon as it has begun
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._check_file()

    def close(self) -> None:
        """Close this process's connection; the next use opens another."""
        with self._lock:
            self.disconnect()
            self._file = None

    def disconnect(self) -> None:
        """Close the connection for a moment; the next use expects the same file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _check_file(self) -> None:
        """Raise `RecordError` where the path leads to another file by now, of which SQLite would
        not tell."""
        if _identity(self.path) != self._file:
            self.close()
            raise RecordError(_GONE)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        if not self._create and not self.path.exists():
            raise RecordError(
                "there is no such file; `loopwright tune` makes one, --records names another"
            )
        if not _may_be_sqlite(self.path):
            raise RecordError(_FOREIGN)
        mode = _mode(self.path)
        connection = sqlite3.connect(
            self.path.as_uri() + mode,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            schema_of(connection)  # before anything is changed in a file that is not ours
            if not mode:
                _use_wal(connection)
            migrate(connection)
            before, self._file = self._file, _identity(self.path)
            if before not in (None, self._file):
                raise RecordError(_GONE)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors become `RecordError`, with the file and what to do about it."""
        try:
            yield
        except RecordError as error:
            raise RecordError(f"{self.path}: {error}") from error
        except sqlite3.ProgrammingError:
            raise  # a mistake of ours
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            hint = next((hint for part, hint in _REMEDIES.items() if part in str(error)), "")
            text = f"{hint} ({error})" if hint else str(error)
            raise RecordError(f"{self.path}: {text}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    """Numbers by which the system knows a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _may_be_sqlite(path: Path) -> bool:
    """SQLite itself takes a file of a few bytes for an empty database, and overwrites it."""
    if not path.is_file():
        return True
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) in (b"", _MAGIC)


def _mode(path: Path) -> str:
    """Mode in which SQLite opens a file: for reading only where it may not be written.

    In a folder that may not be written either (of a package, say) there is no place for a log,
    and unless a writer's is there already, the file does not change.
    """
    if os.access(path.parent, os.W_OK):
        return "?mode=ro" if path.exists() and not os.access(path, os.W_OK) else ""
    log = path.with_name(f"{path.name}-wal")
    return "?mode=ro" if log.exists() else "?mode=ro&immutable=1"


def _use_wal(connection: sqlite3.Connection) -> None:
    """While one process switches the mode, SQLite turns others away without waiting."""
    deadline = time.monotonic() + PATIENCE
    mode = ""
    while not mode:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")


# A connection must not live across a fork: two processes would believe to hold the same locks.
# So every one is closed before, by the thread that forks, and opened again when next needed.
_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()
_FORK = threading.Lock()
_PAUSED: list[Database] = []


def _before_fork() -> None:
    _FORK.acquire()
    for database in list(_OPEN):
        database._lock.acquire()
        _PAUSED.append(database)
        database.disconnect()


def _after_fork() -> None:
    while _PAUSED:
        _PAUSED.pop()._lock.release()
    _FORK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
