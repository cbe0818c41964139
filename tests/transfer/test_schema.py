"""Older, newer, foreign and damaged files."""

import contextlib
import json
import random
import sqlite3

import pytest
from sqlalchemy import create_engine, event

from loopwright.schedule.sketch.naming import Derivation, SketchName, Step
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.record import Record
from loopwright.transfer.records.sql import earlier, schema
from loopwright.transfer.records.sql.schema import LAYOUT
from loopwright.transfer.records.store import RecordError, RecordStore
from tests.transfer import layouts
from tests.transfer.examples import AVX512, MACHINE, OTHER, config, failed, matmul, record
from tests.transfer.layouts import execute

SOME = [record(0, 3.0), record(1, 1.0), failed(2), record(3, machine=OTHER), record(4, seed=None)]


def derived(number, numerics, *steps):
    """A record of a program that rewrites derive."""
    plain = config(number)
    made = Derivation(tuple(Step(name, tuple(given.items())) for name, given in steps))
    name = SketchName(made, plain.sketch.structure)
    return record(number, config=Config(name, plain.values), numerics=numerics)


OF_REWRITES = {
    "split0=8 ": derived(10, "strict", ("rfactor", {"stage": 0, "parts": 8})),
    "matrix ": derived(11, "strict", ("ttgt", {})),
    "rows=4 ": derived(12, "strict", ("padding_at_blocks", {"rows": 4})),
    "edges ": derived(13, "strict", ("boundary_peeling", {})),
    "clamped ": derived(14, "strict", ("clamped_padding", {})),
    "winograd=2 ": derived(15, "standard", ("winograd", {"results": 2})),
    "winograd=2 rows=2 ": derived(16, "standard", ("winograd", {"results": 2, "rows": 2})),
    "winograd=4 tiles=25 ": derived(17, "fast", ("winograd", {"results": 4, "tiles": 25})),
    "phases=2 ": derived(18, "fast", ("winograd_by_phase", {"results": 2})),
    "strassen=1 rows=8 fixed=24 ": derived(
        19, "fast", ("strassen", {"levels": 1, "rows": 8}), ("int24_weights", {})
    ),
    "through=2 sparse=32 ": derived(
        20,
        "strict",
        ("producer_at_blocks", {"rows": 2}),
        ("activation_sparsity", {"depth": 32}),
    ),
}
"""Records by the words that the names of their sketches began with in schema 1."""


def first_config(r):
    """The JSON of a record's config as schema 1 had it."""
    words = next((words for words, other in OF_REWRITES.items() if other == r), "")
    made = r.config.to_json()
    return {"sketch": words + made["sketch"], "values": made["values"]}


def write(path, layout, stored=SOME):
    """Write a file of an earlier layout."""
    layouts.write(path, layout, stored, first_config)


def layout(path):
    """Names and definitions of everything in a file."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    versions = connection.execute(f"SELECT version_num FROM {schema.VERSIONS}").fetchall()
    connection.close()
    return found, versions


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tuning.db"


def test_schema_0_is_brought_up_to_date(path):
    write(path, 0)
    with RecordStore(path) as store:
        assert list(store) == SOME
        assert [r.id for r in store] == [1, 2, 3, 4, 5]
        assert store.best(matmul(), AVX512, machine=MACHINE).config == config(1)
        assert store.add(SOME) == (1, 2, 3, 4, 5)


def test_records_of_schema_1_have_derivations_and_numerics(path):
    stored = [*SOME, *OF_REWRITES.values()]
    write(path, 1, stored)
    with RecordStore(path) as store:
        assert list(store) == stored


def test_records_that_equal_those_of_schema_1_are_not_stored_again(path):
    stored = [*SOME, *OF_REWRITES.values()]
    write(path, 1, stored)
    with RecordStore(path) as store:
        assert store.add(stored) == tuple(range(1, len(stored) + 1))
        assert len(store) == len(stored)


@pytest.mark.parametrize("made", [*SOME, *OF_REWRITES.values()])
def test_json_of_schema_1_is_read(made):
    data = {**made.to_json(), "config": first_config(made), "schema": 1}
    del data["numerics"]
    assert Record.from_json(json.loads(json.dumps(data))) == made


@pytest.mark.parametrize("made", SOME)
def test_json_of_schema_2_is_read(made):
    data = {**made.to_json(), "schema": 2}
    del data["facts"]
    assert Record.from_json(json.loads(json.dumps(data))) == made


def test_a_damaged_config_of_schema_1_is_an_error_that_names_its_record_alone(path):
    write(path, 1, [record(0), record(1)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE records SET config = '[' WHERE id = 2")
    connection.commit()
    connection.close()
    with RecordStore(path) as store:
        assert store.get(1) == record(0)
        with pytest.raises(RecordError, match="record 2 is damaged"):
            list(store)


@pytest.mark.parametrize("earlier_layout", range(earlier.END))
def test_a_file_of_an_earlier_layout_is_laid_out_as_a_new_one(path, tmp_path, earlier_layout):
    write(path, earlier_layout)
    for each in (path, tmp_path / "new.db"):
        with RecordStore(each) as store:
            len(store)
    assert layout(path) == layout(tmp_path / "new.db")


def test_a_file_of_schema_2_keeps_its_records_and_their_numbers(path):
    stored = [*SOME, *OF_REWRITES.values()]
    write(path, 2, stored)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM records WHERE id = 2")
    connection.commit()
    connection.close()
    with RecordStore(path) as store:
        assert {r.id: r for r in store} == {n: r for n, r in enumerate(stored, 1) if n != 2}
        assert store.add(stored[2:]) == tuple(range(3, len(stored) + 1))


def test_equal_records_of_schema_0_become_one(path):
    write(path, 0, SOME + SOME)
    with RecordStore(path) as store:
        assert list(store) == SOME


def test_a_step_that_fails_leaves_the_file_as_it_was(path, monkeypatch):
    write(path, 0)
    before = path.read_bytes()

    def broken(connection, layout):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(earlier, "write_anew", broken)
    with pytest.raises(RecordError, match=r"the disk may be full, or fail .*disk I/O error"):
        len(RecordStore(path))
    assert path.read_bytes()[100:] == before[100:]  # but for the header, which says WAL


def test_a_newer_schema_is_refused(path):
    with RecordStore(path) as store:
        store.add(SOME)
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {schema.VERSIONS} SET version_num = {LAYOUT + 1}")
    connection.commit()
    connection.close()
    with pytest.raises(RecordError, match=rf"schema {LAYOUT + 1}, .* up to {LAYOUT}.*upgrade"):
        len(RecordStore(path))


@pytest.mark.parametrize("version", ["'one'", "NULL", "-1", "1.5"])
def test_a_senseless_schema_is_damage(path, version):
    with RecordStore(path) as store:
        len(store)
    connection = sqlite3.connect(path)
    connection.executescript(
        f"DROP TABLE {schema.VERSIONS}; CREATE TABLE {schema.VERSIONS} (version_num);"
        f"INSERT INTO {schema.VERSIONS} VALUES ({version})"
    )
    connection.close()
    with pytest.raises(RecordError, match="damaged"):
        len(RecordStore(path))


@pytest.mark.parametrize("content", [b"workload,cost\n1,2\n", b"\x7fELF" + bytes(5000), b"x"])
def test_a_file_that_is_not_sqlite_is_refused_and_kept(path, content):
    path.write_bytes(content)
    store = RecordStore(path)
    for use in (lambda: store.add(SOME), lambda: store.get(1), lambda: list(store)):
        with pytest.raises(RecordError, match="not a SQLite file; give the path"):
            use()
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_kept(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(RecordError, match="another program, with bookmarks"):
        RecordStore(path).add(SOME)
    assert path.read_bytes() == before


def test_a_store_that_another_makes_meanwhile_is_no_database_of_another_program(path):
    made = []

    def make(*_):
        if not made:
            made.append(RecordStore(path))
            made[0].add(SOME)

    with create_engine(f"sqlite:///{path}").connect() as connection:
        event.listen(connection, "after_cursor_execute", make)
        assert schema.layout_of(connection) in (None, LAYOUT)
    made[0].close()


def test_a_folder_and_a_missing_folder_are_refused(tmp_path):
    with pytest.raises(RecordError, match="this is a folder; give a file"):
        RecordStore(tmp_path)
    with pytest.raises(RecordError, match="does the folder exist"):
        len(RecordStore(tmp_path / "none" / "tuning.db"))


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    with RecordStore(path) as store:
        assert store.add([record()]) == (1,)


def damaged(path, change):
    """A store of a few hundred records, with its bytes changed."""
    with RecordStore(path) as store:
        store.add(record(n) for n in range(400))
    content = bytearray(path.read_bytes())
    path.write_bytes(change(content))


def everything(store):
    list(store)
    store.best(matmul(), AVX512, machine=MACHINE)
    store.measured(matmul(), AVX512, MACHINE)
    store.add([record(1000)])


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_an_error_that_says_what_to_do(path, share):
    damaged(path, lambda content: content[: int(len(content) * share)])
    hint = r"sqlite3 OLD \.recover|not a SQLite file"
    with RecordStore(path) as store, pytest.raises(RecordError, match=hint):
        everything(store)


@pytest.mark.parametrize("seed", range(20))
def test_overwritten_bytes_never_give_anything_but_an_error_of_ours(path, seed):
    rng = random.Random(seed)

    def overwrite(content):
        for _ in range(8):
            start = rng.randrange(len(content) - 512)
            content[start : start + 512] = rng.randbytes(512)
        return content

    damaged(path, overwrite)
    with RecordStore(path) as store, contextlib.suppress(RecordError):
        everything(store)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("config", "{}"),
        ("config", "["),
        ("config", "[" * 100_000),
        ("seconds", "[-1]"),
        ("seconds", "[NaN]"),
        ("seconds", "5"),
        ("cache", "tepid"),
        ("failure", "odd"),
        ("build_seconds", "soon"),
        ("config", b"\xff\xfe"),
    ],
)
def test_a_damaged_value_is_an_error_that_names_the_record(path, column, value):
    with RecordStore(path) as store:
        store.add([record(0), record(1)])
        execute(path, f"UPDATE records SET {column} = ? WHERE id = 2", value)
        with pytest.raises(RecordError, match="record 2 is damaged"):
            list(store)
        assert store.get(1) == record(0)


@pytest.mark.parametrize("text", ["{", "[]", '{"cores": 2}', "[" * 100_000])
def test_a_damaged_fingerprint_is_an_error(path, text):
    with RecordStore(path) as store:
        store.add([record(0)])
        execute(path, "UPDATE texts SET text = ? WHERE text LIKE '%cores%'", text)
        with pytest.raises(RecordError, match=rf"{path.name}: a fingerprint is damaged"):
            store.best(matmul(), AVX512, machine=MACHINE)


def test_text_in_the_wrong_encoding_is_an_error(path):
    with RecordStore(path) as store:
        store.add([record(0)])
        execute(path, "UPDATE records SET config = CAST(x'fffe' AS TEXT)")
        with pytest.raises(RecordError, match="UTF-8"):
            list(store)


def test_a_store_that_may_not_be_written_can_be_read(path, monkeypatch):
    with RecordStore(path) as store:
        store.add(SOME)
    for forbidden in ([path], [path.parent], [path, path.parent]):
        may = {path, path.parent}.difference(forbidden)
        monkeypatch.setattr("os.access", lambda p, mode, may=may: p in may)
        with RecordStore(path) as store:
            assert list(store) == SOME
            with pytest.raises(RecordError, match="copy the file"):
                store.add([record(9)])
