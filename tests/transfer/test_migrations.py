"""Alembic's revisions: they make what queries read, and take any store to the newest."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from loopwright.transfer.records.rows import to_row
from loopwright.transfer.records.sql import schema, tables
from loopwright.transfer.records.store import RecordError, RecordStore
from tests.transfer.examples import record

NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "5", "4"


def upgrade():
    op.add_column("records", sa.Column("note", sa.Text()))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store(request, tmp_path):
    server = request.param == "postgresql"
    place = request.getfixturevalue("cluster").url() if server else tmp_path / "tuning.db"
    with RecordStore(place) as made:
        yield made


@pytest.fixture
def later(monkeypatch, tmp_path):
    """Make this version one that knows a revision more."""
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "r5.py").write_text(NEXT)
    config = Config()
    config.set_main_option("script_location", str(schema._SCRIPTS))
    config.set_main_option("version_locations", f"{schema._SCRIPTS / 'versions'}\n{versions}")
    config.set_main_option("path_separator", "newline")

    def begin():
        monkeypatch.setattr(schema, "LAYOUT", 5)
        monkeypatch.setattr(schema, "_config", lambda: config)

    return begin


def connected(store):
    len(store)
    return store._stored.database._opened().connect()


def columns(store):
    with connected(store) as connection:
        return {c["name"] for c in schema.inspect(connection).get_columns("records")}


def test_the_newest_revision_is_the_layout_that_queries_are_written_for():
    scripts = ScriptDirectory(str(schema._SCRIPTS))
    assert scripts.get_heads() == [str(schema.LAYOUT)]


def test_revisions_make_the_tables_that_queries_read(store):
    with connected(store) as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": schema.VERSIONS}
        )
        assert compare_metadata(context, tables.metadata) == []
        found = {c["name"] for c in schema.inspect(connection).get_columns("measured")}
    assert found == {*tables.measured.c.keys(), "setting"}


def test_a_store_is_taken_to_a_later_layout_with_its_records(store, later):
    store.add([record(0)])
    store.close()
    later()
    assert list(store) == [record(0)]
    assert "note" in columns(store)


def test_a_store_of_layout_3_gets_a_column_of_facts(store, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(schema, "LAYOUT", 3)
        upgrade = schema._upgrade

        def to_3(connection):
            patched.setattr("alembic.command.upgrade", lambda c, _: original(c, "3"))
            upgrade(connection)

        from alembic import command

        original = command.upgrade
        patched.setattr(schema, "_upgrade", to_3)
        old = {name: value for name, value in to_row(record(0)).items() if name != "facts"}
        store._stored.add([old])
        assert "facts" not in columns(store)
        store.close()
    facts = {"code_bytes": 952, "spills": 0}
    added = record(1, facts=facts)
    assert store.add([record(0), added]) == (1, 2)
    assert [r.facts for r in store] == [{}, facts]
    assert list(store) == [record(0), added]


def test_records_that_differ_in_facts_alone_are_one(store):
    assert store.add([record(0)]) == (1,)
    assert store.add([record(0, facts={"code_bytes": 952})]) == (1,)


def test_an_empty_database_is_taken_through_all_layouts(store, later):
    later()
    assert "note" in columns(store)


def test_a_store_of_a_later_layout_is_refused_by_an_earlier_version(store, later, monkeypatch):
    later()
    store.add([record(0)])
    store.close()
    monkeypatch.setattr(schema, "LAYOUT", 4)
    with pytest.raises(RecordError, match=r"schema 5, .* up to 4.*upgrade"):
        len(store)


def test_a_revision_that_fails_leaves_the_store_as_it_was(store, later, tmp_path, monkeypatch):
    store.add([record(0)])
    store.close()
    (tmp_path / "versions" / "r5.py").write_text(NEXT + "    raise OSError('no space')\n")
    later()
    with pytest.raises((RecordError, OSError), match="no space"):
        len(store)
    monkeypatch.undo()
    assert list(store) == [record(0)]
    assert "note" not in columns(store)
