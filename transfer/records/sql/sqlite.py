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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, QueuePool, create_engine
from sqlalchemy.exc import DBAPIError

from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.sql import schema
from loopwright.transfer.records.sql.database import PATIENCE, Database

_FOREIGN = "not a SQLite file; give the path of a record store, or of a new file"
_DAMAGED = "damaged; save what can be read (`sqlite3 OLD .recover | sqlite3 NEW`), and use NEW"
_REMEDIES = {
    "not a database": _FOREIGN,
    "malformed": _DAMAGED,
    "decode": _DAMAGED,
    "locked": f"another process has kept it locked for {PATIENCE} s; wait for it, or end it",
    "unable to open": "does the folder exist, and may you read and write there?",
    "readonly": "you may not write there; copy the file to where you may, and name the copy "
    "(--records, records= in Python)",
    "disk I/O": "the disk may be full, or fail",
    "full": "the disk is full; nothing of this batch was stored",
}
"""Remedies for errors of SQLite, by a part of their text."""
_GONE = "the file was deleted or replaced while it was open; what was stored there is gone"

_MAGIC = b"SQLite format 3\0"


class SqliteDatabase(Database):
    """A file, of which every write tells whether it is still there."""

    def __init__(self, path: Path, create: bool) -> None:
        super().__init__(str(path), create)
        self._path = path
        self._file: tuple[int, int] | None = None  # that it was opened as

    def close(self) -> None:
        """Close this process's connection; the next use opens what is at the path then."""
        with self._lock:
            super().close()
            self._file = None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors become `RecordError`, with the file and what to do about it."""
        with super().explained():
            try:
                yield
            except (DBAPIError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                if isinstance(cause, sqlite3.ProgrammingError):
                    raise  # a mistake of ours
                hint = next((hint for part, hint in _REMEDIES.items() if part in str(cause)), "")
                raise RecordError(f"{hint} ({cause})" if hint else str(cause)) from error

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        self._check_file()
        with engine.connect() as connection:
            _begin(connection)
            yield connection
            connection.commit()
        self._check_file()

    def _check_file(self) -> None:
        """Raise `RecordError` where the path leads to another file by now, of which SQLite would
        not tell."""
        if _identity(self._path) != self._file:
            self.close()
            raise RecordError(_GONE)

    def _open(self) -> Engine:
        if not self._create and not self._path.exists():
            raise RecordError(
                "there is no such file; `loopwright tune` makes one, --records names another"
            )
        if not _may_be_sqlite(self._path):
            raise RecordError(_FOREIGN)
        mode = _mode(self._path)
        engine = create_engine(
            "sqlite://",
            creator=lambda: _connect(self._path, mode),
            poolclass=QueuePool,
            pool_size=1,
            hide_parameters=True,
        )
        try:
            with engine.connect() as connection:
                layout = schema.layout_of(connection)  # before a file is changed that is not ours
                if not mode:
                    _use_wal(connection)
                if layout != schema.LAYOUT:
                    _begin(connection)
                    schema.prepare(connection)
                    connection.commit()
            before, self._file = self._file, _identity(self._path)
            if before not in (None, self._file):
                raise RecordError(_GONE)
        except BaseException:
            engine.dispose()
            raise
        return engine


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        path.as_uri() + mode,
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )


def _begin(connection: Connection) -> None:
    """Begin a transaction as the only writer. SQLAlchemy has no word for that."""
    connection.rollback()  # of what it thinks that a query has begun
    connection.exec_driver_sql("BEGIN IMMEDIATE")


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


def _use_wal(connection: Connection) -> None:
    """While one process switches the mode, SQLite turns others away without waiting."""
    deadline = time.monotonic() + PATIENCE
    mode = ""
    while not mode:
        try:
            mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
        except DBAPIError as error:
            if "locked" not in str(error.orig) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.exec_driver_sql(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
