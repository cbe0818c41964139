"""Layout 4: records keep what a program's code told before it ran."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"

_VIEW = """
VIEW measured AS SELECT
    r.id, r.setting, r.digest, s.workload_key, w.text AS workload, g.text AS target,
    m.text AS machine, s.threads, r.config, r.numerics, r.seconds, r.cost, r.failure, r.message,
    r.traceback, r.cache, r.build_seconds, r.run_seconds, r.created, e.session, e.seed,
    v.text AS versions, r.facts
    FROM records r JOIN settings s ON s.id = r.setting JOIN sessions e ON e.id = r.session
    JOIN texts w ON w.id = s.workload JOIN texts g ON g.id = s.target
    JOIN texts m ON m.id = s.machine JOIN texts v ON v.id = e.versions
"""
"""That of layout 3 with a column behind the others, so that PostgreSQL keeps its grants."""


def upgrade() -> None:
    """Add a column, and put it into the view."""
    op.add_column("records", sa.Column("facts", sa.Text(), nullable=True))
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP VIEW measured")
        op.execute(f"CREATE {_VIEW}")
    else:
        op.execute(f"CREATE OR REPLACE {_VIEW}")
