"""What is read from disk and was damaged: an error of ours, and never another record."""

import contextlib
import json

import numpy as np
import pytest
from click.testing import CliRunner

from loopwright.cli.records import records
from loopwright.codegen.devices.code import GpuCode, Launch, Plan, Resources
from loopwright.dsl.errors import ConfigError, LibraryError, LoopwrightError
from loopwright.schedule.sketch.sketch import Config
from loopwright.transfer.records.autotvm import import_autotvm
from loopwright.transfer.records.lines import read_lines, to_line
from loopwright.transfer.records.record import RecordError
from loopwright.transfer.records.rows import to_record, to_row
from loopwright.transfer.records.store import RecordStore
from tests.mutations import SHORT_AND_LONG, changed, damaged, flipped
from tests.transfer.examples import failed, record
from tests.transfer.test_autotvm import line as autotvm_line

SOME = [record(0, 3.0), failed(1), record(2, seed=None, cache="cold", session="é")]

# Of schema 1: its configs have no derivation, and records no word for numerics.
OLD = record().to_json() | {"schema": 1}
OLD["config"] = {"sketch": "winograd=4 rows=2 tile=0", "values": OLD["config"]["values"]}
del OLD["numerics"]
MIXED = OLD | {"config": {**OLD["config"], "derivation": [["winograd", {"results": 4}]]}}


def unchecked(made):
    return json.dumps(made.to_json())


@pytest.fixture
def lines(tmp_path):
    return tmp_path / "records.jsonl"


def test_a_number_that_was_changed_is_refused(lines):
    lines.write_text(to_line(SOME[0]).replace("0.003", "0.001"))
    with pytest.raises(RecordError, match="line 1: its checksum is not that of its content"):
        list(read_lines(lines))


def test_spaces_and_the_order_of_fields_do_not_matter(lines):
    data = json.loads(to_line(SOME[2]))
    lines.write_text(json.dumps(dict(reversed(data.items())), ensure_ascii=False))
    assert list(read_lines(lines)) == [SOME[2]]


def test_lines_without_a_checksum_are_read_with_one_warning(lines):
    lines.write_text("\n".join([*map(unchecked, SOME), to_line(record(7))]))
    with pytest.warns(UserWarning, match=r"records\.jsonl: 3 lines without a checksum") as warned:
        assert list(read_lines(lines)) == [*SOME, record(7)]
    assert len(warned) == 1


def test_the_command_line_shows_that_warning(lines):
    lines.write_text(unchecked(SOME[0]))
    store = str(lines.with_name("new.db"))
    done = CliRunner().invoke(records, ["import", str(lines), "--records", store])
    assert done.exit_code == 0
    assert "warning: " in done.output
    assert "1 line without a checksum" in done.output


def test_a_record_that_is_shown_as_json_can_be_imported(lines):
    store = lines.with_name("tuning.db")
    with RecordStore(store) as made:
        made.add(SOME)
    done = CliRunner().invoke(records, ["show", "2", "--json", "--records", str(store)])
    lines.write_text(done.stdout)
    assert list(read_lines(lines)) == [SOME[1]]


@pytest.mark.parametrize("count", SHORT_AND_LONG)
def test_lines_with_flipped_bits_are_refused_or_mean_the_same(lines, count):
    rng = np.random.default_rng(2)
    accepted = 0
    for number in range(count):
        wanted = SOME[number % len(SOME)]
        text = flipped(to_line(wanted).encode(), rng)
        lines.write_bytes(text)
        try:
            found = list(read_lines(lines))
        except RecordError:
            continue
        accepted += 1
        assert found == [wanted], text
    assert accepted < count / 20


@pytest.mark.filterwarnings("ignore:.*without a checksum")
@pytest.mark.parametrize("count", SHORT_AND_LONG)
@pytest.mark.parametrize("data", [*(r.to_json() for r in SOME), OLD, MIXED], ids=range(5))
def test_damaged_lines_of_older_versions_are_refused_or_records(lines, data, count):
    rng = np.random.default_rng(3)
    for _ in range(count):
        lines.write_bytes(damaged(data, rng))
        try:
            found = list(read_lines(lines))
        except RecordError:
            continue
        for made in found:
            to_row(made)  # as the store takes it
            with contextlib.suppress(RecordError):
                made.computation()


@pytest.mark.parametrize("count", SHORT_AND_LONG)
def test_damaged_rows_of_a_store_are_refused_or_records(count):
    rng = np.random.default_rng(4)
    rows = [{**to_row(made), "id": number} for number, made in enumerate(SOME, 1)]
    texts = [name for name, value in rows[1].items() if isinstance(value, str)]
    for number in range(count):
        row = dict(rows[number % len(rows)])
        column = texts[rng.integers(len(texts))]
        if not row[column]:
            continue
        try:
            row[column] = damaged(json.loads(row[column]), rng).decode(errors="replace")
        except (ValueError, TypeError):  # a word
            row[column] = flipped(row[column].encode(), rng).decode(errors="replace")
        with contextlib.suppress(RecordError):
            to_row(to_record(row))


def test_damaged_configs_and_code_for_gpus_are_errors_of_ours():
    rng = np.random.default_rng(5)
    plan = Plan(3, (Launch("main_0", (0, 1, 2), 4, 128),), (64,))
    code = GpuCode("cuda", "sm_90", b"image", {"main": plan}, (Resources("main_0", 40, 0, 0, 0),))
    header, _, image = code.to_bytes().partition(b"\n")
    for _ in range(400):
        with contextlib.suppress(ConfigError):
            Config.from_json(changed({"c": record().config.to_json()}, rng).get("c"))
        with contextlib.suppress(LibraryError):
            GpuCode.from_bytes(damaged(json.loads(header), rng) + b"\n" + image)


def test_damaged_logs_of_autotvm_are_skipped(lines):
    rng = np.random.default_rng(6)
    data = json.loads(autotvm_line())
    lines.write_bytes(b"\n".join(damaged(data, rng) for _ in range(400)))
    log = import_autotvm(lines)
    assert len(log.rows) + log.skipped.total() >= 380


def test_damaged_models_are_errors_of_ours(tmp_path):
    from loopwright.costmodel.models.file import load_model, write_model

    rng, path = np.random.default_rng(7), tmp_path / "model.json"
    write_model(path, "mlp", {"kind": "mlp", "content": {"a": [1.0]}, "about": {}})
    data = json.loads(path.read_text())
    for _ in range(400):
        path.write_bytes(damaged(data, rng))
        with pytest.raises(LoopwrightError, match=r"model\.json"):
            load_model(path)
