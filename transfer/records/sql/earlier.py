"""SQLite files of the layouts before Alembic: read whole, and written anew in today's.

Layout 0 is one table, all of a record in its row. In 1 and 2, a view joins tables, and has the
same columns; 2 has `digest` and `numerics` beside. So their records are read as those of another
store would be. That takes one step from any of them, and none needs to be kept up for tables to
come, as revisions of Alembic would.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection, MetaData, Table, column, select, table
from sqlalchemy.schema import DropTable

from loopwright.dsl.errors import ConfigError
from loopwright.dsl.numerics import Numerics
from loopwright.schedule.sketch.naming import Derivation
from loopwright.transfer.records import upgrade
from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.rows import COLUMNS, Row, with_digest
from loopwright.transfer.records.sql.adding import add

END = 3
"""The first layout that is not read here."""

_PAGE = 1024
_SINCE = {"digest": 1, "numerics": 2, "facts": END + 1}
"""The layouts from which on files have a column, where not all have it."""


def move_away(connection: Connection, layout: int) -> None:
    """Move the records of a file into a temporary table, and drop all others."""
    source = table("measured" if layout else "records", *map(column, _columns(layout)))
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE earlier AS {select(source)}")
    connection.exec_driver_sql("DROP VIEW IF EXISTS measured")
    old = MetaData()
    old.reflect(connection)
    old.drop_all(connection)


def write_anew(connection: Connection, layout: int) -> None:
    """Add the records that were moved away to the tables of today; each keeps its number. Raises
    `RecordError` for a value that no version of Loopwright wrote."""
    names = _columns(layout)
    moved = table("earlier", *map(column, names))
    found = connection.execute(select(moved).order_by(moved.c.id))
    for page in found.partitions(_PAGE):
        batch: list[Row] = [dict(zip(names, row)) for row in page]
        try:
            add(connection, batch if layout == END - 1 else list(map(_today, batch)))
        except TypeError as error:
            raise RecordError(f"one of its records is damaged: {error}") from error
    connection.execute(DropTable(Table("earlier", MetaData())))


def _columns(layout: int) -> tuple[str, ...]:
    return ("id", *(name for name in COLUMNS if _SINCE.get(name, 0) <= layout))


def _today(row: Row) -> Row:
    """A row of layout 0 or 1 as one of today: configs name the rewrites that derive their
    programs, and every record says its numerics."""
    config = _upgraded(row["config"])
    return with_digest({**row, "config": config, "numerics": _numerics_of(config)})


def _upgraded(config: str) -> str:
    """The text of a config of schema 1 in today's form; a damaged one stays as it is."""
    try:
        return json.dumps(upgrade.config_json(json.loads(config)), separators=(",", ":"))
    except (ConfigError, ValueError, RecursionError):
        return config


def _numerics_of(config: str) -> str:
    try:
        return str(upgrade.numerics_of(Derivation.from_json(json.loads(config)["derivation"])))
    except (ConfigError, ValueError, KeyError, TypeError, RecursionError):
        return str(Numerics.STRICT)
