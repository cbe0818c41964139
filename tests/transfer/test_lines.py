"""JSON lines out and in."""

import json

import pytest

from loopwright.transfer.records.record import SCHEMA
from loopwright.transfer.records.store import RecordError, RecordStore
from tests.transfer.examples import MACHINE, OTHER, failed, matmul, record

SOME = [record(0, 3.0), failed(1), record(2, machine=OTHER, seed=None, cache="cold")]


@pytest.fixture
def store(tmp_path):
    with RecordStore(tmp_path / "tuning.db") as made:
        made.add(SOME)
        yield made


@pytest.fixture
def lines(tmp_path):
    return tmp_path / "records.jsonl"


def test_out_and_in_again(store, lines, tmp_path):
    assert store.export_lines(lines) == 3
    with RecordStore(tmp_path / "other.db") as other:
        assert other.import_lines(lines) == (3, [])
        assert list(other) == SOME
        assert other.import_lines(lines) == (0, [])
        assert len(other) == 3


def test_a_line_is_an_object_that_other_programs_can_read(store, lines):
    store.export_lines(lines)
    first = json.loads(lines.read_text().splitlines()[0])
    assert first["workload"] == matmul().to_json()
    assert first["machine"] == MACHINE
    assert first["seconds"] == [0.003] * 3


def test_some_records_alone(store, lines, tmp_path):
    assert store.export_lines(lines, store.query(failed=True)) == 1
    with RecordStore(tmp_path / "other.db") as other:
        other.import_lines(lines)
        assert list(other) == [failed(1)]


def spoil(lines, text):
    kept = lines.read_text().splitlines()
    lines.write_text("\n".join([kept[0], text, "", *kept[1:]]))


@pytest.mark.parametrize(
    "text", ["{", '{"schema": 1}', "[]", '{"input": []}', "\x00", "[" * 99999]
)
def test_a_damaged_line_is_named_and_nothing_imported(store, lines, tmp_path, text):
    store.export_lines(lines)
    spoil(lines, text)
    with RecordStore(tmp_path / "other.db") as other:
        with pytest.raises(RecordError, match=r"line 2: .*nothing was imported"):
            other.import_lines(lines)
        assert len(other) == 0
        new, skipped = other.import_lines(lines, skip_damaged=True)
        assert (new, len(skipped)) == (3, 1)
        assert skipped[0].startswith("line 2: ")


def test_a_newer_line_is_refused(store, lines):
    store.export_lines(lines)
    spoil(lines, lines.read_text().splitlines()[0].replace(f'"schema":{SCHEMA},', '"schema":99,'))
    with pytest.raises(RecordError, match=r"schema 99.*upgrade"):
        store.import_lines(lines)


def test_a_file_that_is_not_text_is_refused(store, lines):
    lines.write_bytes(b"SQLite format 3\0" + bytes(range(256)))
    with pytest.raises(RecordError, match="line 1"):
        store.import_lines(lines)


def test_missing_files_and_folders_are_errors(store, tmp_path):
    with pytest.raises(RecordError, match="there is no such file"):
        store.import_lines(tmp_path / "none.jsonl")
    with pytest.raises(RecordError, match=r"there is no folder .*none; make it first"):
        store.export_lines(tmp_path / "none" / "x.jsonl")


def test_an_export_that_fails_keeps_the_older_file(store, lines):
    store.export_lines(lines)
    before = lines.read_text()

    def broken():
        yield record(0)
        raise RecordError("a damaged record")

    with pytest.raises(RecordError, match="a damaged record"):
        store.export_lines(lines, broken())
    assert lines.read_text() == before
    assert list(lines.parent.glob("*partial*")) == []
