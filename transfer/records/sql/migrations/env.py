"""Run revisions on the connection that `schema.prepare` hands over, in its transaction."""

from alembic import context

context.configure(**context.config.attributes)
with context.begin_transaction():
    context.run_migrations()
