"""Tables of a record store, as queries see them; the revisions in `migrations` make them.

What is long and repeats (workloads, targets, fingerprints, versions) is stored once, in `texts`.
The view `measured` puts the parts together again, a row per record, for people, too:

    sqlite3 tuning.db 'select id, cost, config from measured order by cost limit 5'
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.type_api import TypeEngine

from loopwright.transfer.records.rows import COLUMNS

_ESCAPE = "\ue000"  # a character of private use
_ESCAPED = ((_ESCAPE, f"{_ESCAPE}1"), ("\0", f"{_ESCAPE}0"))


class _NoZeros(sa.TypeDecorator[str]):
    """Text whose zero characters, which PostgreSQL refuses, are written in another way."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        for plain, written in _ESCAPED:
            value = value and value.replace(plain, written)
        return value

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        for plain, written in reversed(_ESCAPED):
            value = value and value.replace(written, plain)
        return value


def text() -> TypeEngine[str]:
    """Type of texts of any characters."""
    return sa.Text().with_variant(_NoZeros(), "postgresql")


def number() -> TypeEngine[int]:
    """Type of the numbers of rows, which the writer gives: see `records.add`."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


metadata = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    """A table whose rows have a number, and a digest that names their content."""
    return sa.Table(
        name,
        metadata,
        sa.Column("id", number(), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        *columns,
        sa.UniqueConstraint("digest", name=f"{name}_digest"),
    )


def _text(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, text(), nullable=nullable)


def _row_of(table: str, name: str) -> sa.Column[Any]:
    return sa.Column(name, number(), sa.ForeignKey(f"{table}.id"), nullable=False)


def _real(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Double(), nullable=nullable)


texts = _table("texts", _text("text"))
settings = _table(
    "settings",
    _text("workload_key"),
    _row_of("texts", "workload"),
    _row_of("texts", "target"),
    _row_of("texts", "machine"),
    sa.Column("threads", sa.Integer(), nullable=False),
)
sessions = _table("sessions", _text("session"), _text("seed"), _row_of("texts", "versions"))
records = _table(
    "records",
    _row_of("settings", "setting"),
    _row_of("sessions", "session"),
    _text("config"),
    _text("numerics"),
    _text("seconds"),
    _real("cost", nullable=True),
    _text("failure", nullable=True),
    _text("message", nullable=True),
    _text("traceback", nullable=True),
    _text("cache"),
    _real("build_seconds"),
    _real("run_seconds"),
    _real("created"),
    _text("facts", nullable=True),
)
sa.Index("records_by_cost", records.c.setting, records.c.cost)

_TYPES: dict[str, TypeEngine[Any]] = {
    "digest": sa.LargeBinary(),
    "threads": sa.Integer(),
    **dict.fromkeys(("cost", "build_seconds", "run_seconds", "created"), sa.Double()),
}
measured = sa.Table(
    "measured",
    sa.MetaData(),  # a view: not to be made as a table
    sa.Column("id", number()),
    *(sa.Column(name, _TYPES.get(name) or text()) for name in COLUMNS),
)
