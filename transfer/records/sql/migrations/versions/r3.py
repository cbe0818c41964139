"""Layout 3, of an empty database: SQLite's or PostgreSQL's."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = None


def upgrade() -> None:
    """Make four tables, and a view that joins them."""
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
    )
    op.create_index("records_by_cost", "records", ["setting", "cost"])
    op.execute(f"CREATE VIEW measured AS {_measured(texts, settings, sessions, records)}")


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return op.create_table(
        name,
        sa.Column("id", _number(), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        *columns,
        sa.UniqueConstraint("digest", name=f"{name}_digest"),
    )


def _text(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _real(name: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _row_of(table: str, name: str) -> sa.Column[Any]:
    return sa.Column(name, _number(), sa.ForeignKey(f"{table}.id"), nullable=False)


def _number() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _measured(t: sa.Table, s: sa.Table, e: sa.Table, r: sa.Table) -> sa.Select[Any]:
    """A row per record, of texts, settings, sessions and records."""
    w, g, m, v = (t.alias(letter) for letter in "wgmv")
    joined = r.join(s, s.c.id == r.c.setting).join(e, e.c.id == r.c.session)
    for text, row in ((w, s.c.workload), (g, s.c.target), (m, s.c.machine), (v, e.c.versions)):
        joined = joined.join(text, text.c.id == row)
    return sa.select(
        *(r.c[name] for name in ("id", "setting", "digest")),
        s.c.workload_key,
        w.c.text.label("workload"),
        g.c.text.label("target"),
        m.c.text.label("machine"),
        s.c.threads,
        *(c for c in r.c if c.name not in ("id", "digest", "setting", "session")),
        e.c.session,
        e.c.seed,
        v.c.text.label("versions"),
    ).select_from(joined)
