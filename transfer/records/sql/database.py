"""A database shared by threads and processes, which may fork."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Select

from loopwright.transfer.records.record import RecordError

_T = TypeVar("_T")

PATIENCE = 60
"""Seconds to wait for the lock of another writer; a transaction of ours takes milliseconds."""


class Database(ABC):
    """A connection per process, opened when first needed; threads take turns, with one writer."""

    def __init__(self, shown: str, create: bool) -> None:
        """`shown` names the database in messages; `create` makes missing tables."""
        self._shown, self._create = shown, create
        self._engine: Engine | None = None
        self._lock = threading.RLock()
        _OPEN.add(self)

    def read(self, query: Select[Any]) -> list[Any]:
        """All rows of a query: tuples, each with its `_mapping`."""

        def rows(engine: Engine) -> list[Any]:
            with engine.connect() as connection:
                return list(connection.execute(query))

        return self._done(rows)

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """Do some work in a transaction, which is undone if it raises. It may be done again
        where the database went away meanwhile, so it must leave the same twice as once."""

        def whole(engine: Engine) -> _T:
            with self._transaction(engine) as connection:
                return work(connection)

        return self._done(whole)

    def close(self) -> None:
        """Close this process's connection; the next use opens another."""
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection for a moment; the next use expects the same database."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors become `RecordError`, with the database and what to do about it."""
        try:
            yield
        except RecordError as error:
            raise RecordError(f"{self._shown}: {error}") from error

    def _done(self, work: Callable[[Engine], _T]) -> _T:
        with self._lock, self.explained():
            return work(self._opened())

    def _opened(self) -> Engine:
        if self._engine is None:
            self._engine = self._open()
        return self._engine

    @abstractmethod
    def _open(self) -> Engine:
        """An engine with one connection, to a database of today's layout."""

    @abstractmethod
    def _transaction(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction of the only writer."""


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
