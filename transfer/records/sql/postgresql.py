"""A PostgreSQL database that many machines share, and that may be away for a moment.

The tables are in a schema of their own, `loopwright`, so that the database may have others'.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, func, inspect, select
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.schema import CreateSchema

from loopwright.packages import optional
from loopwright.transfer.records.location import Server
from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.sql import schema
from loopwright.transfer.records.sql.database import PATIENCE, Database

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

SCHEMA = "loopwright"

OUTAGE = 20.0
"""Seconds to wait for a database that was there before: a restart takes less."""

_WRITERS = 0x6C6F6F70  # the number of our advisory lock: "loop"
_LIBPQ = {
    # Every wait has a bound: for a server that does not answer, and for one that went silent.
    "connect_timeout": "10",
    "tcp_user_timeout": "20000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "application_name": "loopwright",
    "client_encoding": "utf8",
}
_OPTIONS = (
    f"-c search_path={SCHEMA} -c lock_timeout={PATIENCE}s "
    f"-c idle_in_transaction_session_timeout={PATIENCE // 2}s"  # before the others give up
)
_LOST = frozenset({None, "57P01", "57P02", "57P03", "25P03"})
"""States of an operational error after which another connection may serve: the server ended, is
about to end or to start, or it did not answer at all."""
_REMEDIES = {
    "55P03": f"another writer has kept the store locked for {PATIENCE} s; wait for it, or end it",
    "53100": "the server's disk is full; nothing of this batch was stored",
    "42501": "your user may not do that there; ask the owner for USAGE and CREATE, or use another",
    "25006": "the server takes no writes now (a standby, say); name the one that does",
}
"""Remedies for errors of PostgreSQL, by their SQLSTATE."""
_GONE = "the store was dropped while it was in use; what was stored there is gone"


class PostgresDatabase(Database):
    """A database on a server; a short outage is waited for, once it has been reached."""

    def __init__(self, server: Server, create: bool) -> None:
        super().__init__(str(server), create)
        self._server = server
        self._reached = False

    def close(self) -> None:
        """Close this process's connection; the next use takes the database as it finds it."""
        with self._lock:
            super().close()
            self._reached = False

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors become `RecordError`, with the database and what to do about it."""
        with super().explained():
            try:
                yield
            except DBAPIError as error:
                text = " ".join(self._server.hide(str(error.orig)).split())
                hint = _REMEDIES.get(_state(error) or "", "")
                raise RecordError(f"{hint} ({text})" if hint else text) from error

    def _done(self, work: Callable[[Engine], _T]) -> _T:
        with self._lock, self.explained():
            end, pause = None, 0.05
            while True:
                try:
                    return work(self._opened())
                except DBAPIError as error:
                    if not (isinstance(error, OperationalError) and _state(error) in _LOST):
                        raise
                    self.disconnect()
                    now = time.monotonic()
                    first, end = end is None, now + OUTAGE if end is None else end
                    if not self._reached or now + pause > end:
                        raise
                    if first:
                        why = " ".join(self._server.hide(str(error.orig)).split())
                        _log.warning("waiting for %s, which went away (%s)", self._shown, why)
                time.sleep(pause)
                pause = min(2 * pause, 1.0)

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        # Each statement must see what the writer before has committed.
        with engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(_WRITERS)))
            yield connection

    def _open(self) -> Engine:
        optional("psycopg", "a record store in PostgreSQL", RecordError)
        engine = create_engine(
            _url(self._server),
            poolclass=QueuePool,
            pool_size=1,
            isolation_level="AUTOCOMMIT",  # a query needs no transaction
            hide_parameters=True,
        )
        try:
            with engine.connect() as connection:
                layout = schema.layout_of(connection)
            if layout is None:
                self._check_may_create()
            if layout != schema.LAYOUT:
                with self._transaction(engine) as connection:
                    if not inspect(connection).has_schema(SCHEMA):
                        connection.execute(CreateSchema(SCHEMA))
                    schema.prepare(connection)
        except BaseException:
            engine.dispose()
            raise
        self._reached = True
        return engine

    def _check_may_create(self) -> None:
        """Raise `RecordError` where a new store must not be made in the database."""
        if self._reached:
            self.close()
            raise RecordError(_GONE)
        if not self._create:
            raise RecordError(
                "there is no record store in this database; `loopwright tune` makes one, "
                "--records names another"
            )


def _url(server: Server) -> URL:
    given = dict(server.query)
    options = f"{given.pop('options', '')} {_OPTIONS}".strip()
    return URL.create(
        "postgresql+psycopg",
        server.user,
        server.password,
        server.host,
        server.port,
        server.database,
        {**_LIBPQ, **given, "options": options},
    )


def _state(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)
