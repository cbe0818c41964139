"""Layout of a store's tables: found out, made, and brought up to date by Alembic."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnClause, Connection, column, func, inspect, select, table

from loopwright.transfer.records.record import RecordError, check_schema
from loopwright.transfer.records.sql import earlier

if TYPE_CHECKING:
    from alembic.config import Config

LAYOUT = 4
"""The newest revision in `migrations`, and the layout that queries are written for."""

VERSIONS = "loopwright_schema"
"""The table with the layout of a database; a database without it is no store."""

_SCRIPTS = Path(__file__).with_name("migrations")
_ONE = threading.Lock()  # Alembic's scripts reach their connection by a global name


def layout_of(connection: Connection) -> int | None:
    """The layout of a database; None if it is empty. Raises `RecordError` for one that is
    foreign, damaged, or of a newer version of Loopwright."""
    found = inspect(connection)
    tables = found.get_table_names()  # one look: others may make a store meanwhile
    if VERSIONS not in tables:
        if tables:
            raise RecordError(
                f"it is a database of another program, with {', '.join(sorted(tables)[:4])}; "
                "give the path of a record store, or of a new file"
            )
        return None
    names = {c["name"] for c in found.get_columns(VERSIONS)}
    version: ColumnClause[Any] = column(
        "version_num" if "version_num" in names else "version"
    )  # before Alembic
    newest = connection.execute(select(func.max(version)).select_from(table(VERSIONS))).scalar()
    if isinstance(newest, str) and newest.isdecimal():
        newest = int(newest)
    check_schema(newest, LAYOUT, "the record store")
    return newest


def prepare(connection: Connection) -> None:
    """Bring a database to `LAYOUT` in a transaction. Raises `RecordError` as `layout_of`."""
    layout = layout_of(connection)  # another process may have been faster
    if layout == LAYOUT:
        return
    old = layout if layout is not None and layout < earlier.END else None
    if old is not None:
        earlier.move_away(connection, old)
    _upgrade(connection)
    if old is not None:
        earlier.write_anew(connection, old)


def _upgrade(connection: Connection) -> None:
    from alembic import command  # only here: most stores are up to date

    with _ONE:
        config = _config()
        config.attributes.update(connection=connection, version_table=VERSIONS)
        try:
            command.upgrade(config, "head")
        finally:
            config.attributes.clear()


@functools.cache
def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
