"""The command line's look into record stores."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.cli.common.command import replay_command
from loopwright.cli.common.workload import read_workload
from loopwright.cli.devices import devices
from loopwright.cli.explain import explain
from loopwright.cli.records import records
from loopwright.codegen.target import resolve
from loopwright.dsl.errors import BuildError
from loopwright.measure.device import DeviceError
from loopwright.measure.machine import fingerprint
from loopwright.transfer.records.store import RecordStore
from tests.transfer.examples import failed, matmul, record
from tests.transfer.test_autotvm import line


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in a folder whose tuning.db has four records; its exit code and output."""
    monkeypatch.chdir(tmp_path)
    with RecordStore() as store:
        store.add([record(0, 3.0), record(1, 1.0), failed(2), record(0, 4.0, matmul(8, 9, 10))])

    def invoke(*args):
        result = CliRunner().invoke(records, args)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    return invoke


def column(output, name):
    head, *lines = (line.split("\t") for line in output.splitlines() if "\t" in line)
    return [line[head.index(name)] for line in lines]


def test_list_shows_the_newest_first_with_tabs_between(run):
    code, output = run("list")
    assert code == 0
    assert column(output, "id") == ["4", "3", "2", "1"]
    assert column(output, "ms") == ["4", "", "1", "3"]
    assert column(output, "failure") == ["", "crash", "", ""]
    assert column(output, "what")[1] == "C[4, 6] from A[4, 5] B[5, 6]"
    assert "4 of 4 records shown; failures: 1; 2 workloads" in output


def test_list_chooses(run):
    assert column(run("list", "--failed")[1], "id") == ["3"]
    assert column(run("list", "--limit", "1")[1], "id") == ["4"]
    assert column(run("list", "--workload", matmul().key[:6])[1], "id") == ["3", "2", "1"]
    assert column(run("list", "--session", "none")[1], "id") == []


def test_list_on_a_terminal_is_a_table(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    code, output = run("list")
    assert code == 0
    assert "\t" not in output
    assert "A[4, 5] B[5, 6]" in output


def test_show_tells_all_of_a_record(run):
    code, output = run("show", "2")
    assert code == 0
    for text in ("C[i, j] += A[i, r] * B[r, j]", "tile0=(1, 16)", "1 ms", "Some CPU", "seed 7"):
        assert text in output
    assert "loopwright replay 2" in output


def test_show_tells_why_it_failed(run):
    output = run("show", "3")[1]
    assert "crash: killed by signal 9" in output
    assert "Traceback" in output


def test_show_as_json(run):
    shown = json.loads(run("show", "2", "--json")[1])
    assert shown.pop("checksum")
    assert shown == record(1, 1.0).to_json()


def test_best_has_one_line_per_workload(run):
    assert column(run("best")[1], "ms") == ["1", "4"] or column(run("best")[1], "ms") == ["4", "1"]


def test_export_and_import_and_merge(run, tmp_path):
    assert run("export", "all.jsonl") == (0, "4 records written to all.jsonl\n")
    assert run("import", "all.jsonl", "--records", "b.db")[1].startswith("4 new records; ")
    assert run("export", "best.jsonl", "--best") == (0, "2 records written to best.jsonl\n")
    assert run("export", "best.db", "--best") == (0, "2 records written to best.db\n")
    assert run("export", "c.db") == (0, "4 records written to c.db\n")
    said = "4 new records of c.db\n"
    assert run("import", "c.db", "--records", "e.db")[1].startswith(said)
    code, output = run("merge", "best.db", "b.db", "c.db", "--records", "d.db")
    assert code == 0
    assert output.splitlines()[:3] == [
        "2 new records of best.db",
        "2 new records of b.db",
        "0 new records of c.db",
    ]
    with RecordStore("d.db") as merged, RecordStore() as store:
        assert set(merged) == set(store)


def test_import_skips_damaged_lines_only_if_told(run):
    run("export", "all.jsonl")
    with open("all.jsonl", "a") as file:
        file.write('{"schema": 1')
    code, output = run("import", "all.jsonl", "--records", "b.db")
    assert code == 1
    assert "line 5" in output
    code, output = run("import", "all.jsonl", "--records", "b.db", "--skip-damaged")
    assert code == 0
    assert "skipped line 5" in output
    assert "4 new records" in output


def test_no_store_is_replaced_by_lines(run, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert "the store itself" in run("export", "link/tuning.db")[1]
    shutil.copy(tmp_path / "tuning.db", tmp_path / "backup.sqlite")
    code, said = run("export", "backup.sqlite")
    assert code == 2
    assert "FILE is a record store" in said
    assert len(RecordStore(tmp_path / "backup.sqlite")) == 4


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["show", "99"], 1, "no record 99; `loopwright records list --records "),
        (["show", "-1"], 2, "-1"),
        (["show", "first"], 2, "first"),
        (["list", "--records", "none.db"], 1, "no such file; `loopwright tune` makes one"),
        (["best", "--records", "all.txt"], 1, "not a SQLite file"),
        (["import", "none.jsonl"], 2, "there is no such file"),
        (["merge", "none.db"], 2, "no such file"),
        (["merge"], 2, "STORES"),
        (["export", "tuning.db"], 2, "FILE is the store itself"),
        (["export", "tuning.db", "--best"], 2, "FILE is the store itself"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_mistakes_are_told_with_an_exit_code(run, tmp_path, args, code, message):
    (tmp_path / "all.txt").write_text("text")
    assert run(*args)[0] == code
    assert message in run(*args)[1]
    assert not (tmp_path / "none.db").exists()


def test_explain_says_what_serves_and_why_nothing_does(run):
    words = ("explain", "ik,kj->ij", "i=16", "j=16", "k=16", "--threads", "1")
    code, output = run(*words)
    assert code == 0
    assert "tuning.db has none of" in output
    assert "To get one: tune it." in output
    workload = read_workload(words[1], words[2:5]).workload
    with RecordStore() as store:
        store.add([record(0, 2.0, workload, resolve("cpu", 1), fingerprint())])
    code, output = run(*words)
    assert code == 0
    assert "record 5 serves, 2 ms: " in output
    assert "again: loopwright replay 5" in output
    assert "policy 'exact' allows none" in run(*words[:-1], "2")[1]
    assert "record 5 serves" in run(*words[:-1], "2", "--policy", "any")[1]


@pytest.mark.parametrize("kind", ["llvm", "builtin", "c"])
@pytest.mark.usefixtures("run")
def test_a_record_is_explained_for_the_target_that_it_is_of(kind):
    words = ("matmul", "a=8,8", "b=8,8")
    workload, target = read_workload(words[0], words[1:]).workload, resolve("cpu", 1)
    config = lw.space(workload, target).default
    with RecordStore() as store:
        store.add([failed(workload=workload, target=replace(target, kind=kind), config=config)])
    result = CliRunner().invoke(explain, [*words, "--record", "5"])
    assert result.exit_code == 0, result.output
    assert f"on {kind} " in result.output
    assert f"made by {kind}" in result.output or kind == "builtin"
    assert "note: " not in result.output


def test_lines_of_an_autotvm_log_are_listed_and_those_that_are_damaged_counted(run, tmp_path):
    Path("tvm.log").write_text(f"{line()}\nbroken\n")
    code, output = run("show-autotvm", "tvm.log")
    assert code == 0
    assert column(output, "task") == ["conv2d.x86"]
    assert column(output, "ms") == ["2"]
    assert "1 line; skipped 1: not JSON" in output
    assert run("show-autotvm", "none.log")[0] == 2


def test_devices_tells_what_this_machine_is():
    result = CliRunner().invoke(devices)
    assert result.exit_code == 0
    assert {"device", "target", "threads"} <= {
        line.split(":")[0] for line in result.output.split("\n")
    }


def test_devices_are_listed_whatever_is_wrong_with_one_of_them(monkeypatch):
    class Broken:
        here = True

        def __init__(self, target, *_, **__):
            if target == "cuda":
                raise BuildError("there is no C compiler")
            self.name, self.target, self.fail = target, resolve("cpu"), target == "cpu"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def fingerprint(self):
            return {}

        def check(self):
            if self.fail:
                raise DeviceError("it cannot run a program")

    monkeypatch.setattr("loopwright.measure.local.LocalDevice", Broken)
    result = CliRunner().invoke(devices, ["--check"])
    assert result.exit_code == 1
    for words in ("it cannot run a program", "there is no C compiler", "its results are right"):
        assert words in result.output


def test_what_to_run_again_names_the_store(tmp_path):
    assert replay_command(3, Path("tuning.db")) == "loopwright replay 3"
    assert replay_command(3, tmp_path / "a.db") == f"loopwright replay 3 --records {tmp_path}/a.db"
