"""Paths that no file can have: an error that names the option or argument, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.cli.common.command import File
from loopwright.codegen.load import load
from loopwright.costmodel.models.file import load_model, write_model
from loopwright.costmodel.models.time_model import TimeModel
from loopwright.dsl.errors import LoopwrightError
from loopwright.measure.tabular import load_brute_forced
from loopwright.paths import problem_of_file, problem_of_new_file, shown, whole_file
from loopwright.transfer.records.autotvm import import_autotvm
from loopwright.transfer.records.store import RecordStore
from tests.codegen import kernels
from tests.explore.synthetic import MadeUp
from tests.explore.test_tune import run
from tests.transfer.examples import record

LONG = "n" * 10_000
BAD = {
    "long": LONG,
    "long parts": "/".join(["n" * 100] * 100),
    "zero": "a\0b",
    "folder": "folder",
    "under a file": "file/x",
    "ring": "ring",
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "ring").symlink_to("ring")


# ---- the command line ----

_WORDS = {
    "tune": ["matmul", "a=8,8", "b=8,8", "--trials", "1"],
    "explain": ["matmul", "a=8,8", "b=8,8"],
    "records explain": ["matmul", "a=8,8", "b=8,8"],
    "replay": ["1"],
    "records show": ["1"],
}
"""Arguments that commands need before any file is asked for."""
_TAKES_A_FILE_TOO = {("tune", "transfer"), ("tune-model", "transfer"), ("tune", "what")}


def commands(command, words=()):
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*words, name))
    else:
        yield words, command


def options():
    """Every option and argument that takes a path, with its command's words."""
    for words, command in commands(main):
        for p in command.params:
            text = (words[0], p.name) in _TAKES_A_FILE_TOO
            if text or isinstance(p.type, click.Path):
                yield pytest.param(words, p, id=f"{' '.join(words)} {p.name}")


OPTIONS = list(options())


def test_every_path_is_of_a_type_that_looks_at_it_first():
    assert len(OPTIONS) > 35
    for words, p in (option.values for option in OPTIONS):
        assert isinstance(p.type, File) or (words[0], p.name) in _TAKES_A_FILE_TOO, p.name


def called(words, p, value):
    """What a command says of a value of one parameter, and its exit code."""
    given = list(_WORDS.get(" ".join(words), []))
    if isinstance(p, click.Option):
        given += [p.opts[-1], value]
    elif p.name == "what":
        given = [f"{value}.py"]
    else:
        given = [value]
    done = CliRunner().invoke(main, [*words, *given])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.exit_code, done.output


@pytest.mark.parametrize("bad", ["long", "zero"])
@pytest.mark.parametrize(("words", "p"), OPTIONS)
def test_a_path_that_no_file_can_have_is_refused_by_the_name_of_its_option(words, p, bad):
    code, said = called(words, p, BAD[bad])
    assert code != 0
    assert len(said) < 2000
    assert "too long" in said if bad == "long" else "zero byte" in said
    name = p.opts[-1] if isinstance(p, click.Option) else p.make_metavar(click.Context(main))
    assert name.strip("[].") in said or p.name == "what"


@pytest.mark.parametrize("bad", ["folder", "under a file", "ring"])
@pytest.mark.parametrize(
    "words",
    [
        ("tune", "matmul", "a=8,8", "b=8,8", "--transfer"),
        ("tune", "matmul", "a=8,8", "b=8,8", "--report"),
        ("tune", "matmul", "a=8,8", "b=8,8", "--records"),
        ("tasks",),
        ("records", "import"),
        ("records", "export"),
        ("model", "train", "--output"),
        ("model", "eval"),
    ],
)
def test_what_is_no_file_is_refused_at_once(words, bad):
    done = CliRunner().invoke(main, [*words, BAD[bad]])
    assert done.exit_code == 2
    reasons = {"folder": "this is a folder", "under a file": "folder", "ring": "symbolic links"}
    assert reasons[bad] in done.output


def test_a_model_that_is_missing_is_said_before_the_search_with_what_may_be_given():
    words = ["tune", "matmul", "a=8,8", "b=8,8", "--transfer", "none/such.json"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "--transfer" in done.output
    assert "there is no such file; give auto, none, or a file of `loopwright model train`" in (
        " ".join(done.output.split())
    )
    device = MadeUp()
    with pytest.raises(LoopwrightError, match="transfer = none/such: there is no such"):
        run(device, transfer="none/such", model="gbt")
    assert not device.measured


# ---- Python ----


def as_folder(path):
    lw.build(lw.ops.relu(lw.tensor("x", (4,))), target="c").export(path)


def model_file(path):
    write_model(path, "mlp", {"a": 1})


def tuned():
    return run(MadeUp(), trials=8)


PYTHON = {
    "load": lambda path: load(f"{path}.so"),
    "export": lambda path: kernels.matmul().export(f"{path}.so"),
    "export as a folder": as_folder,
    "records": lambda path: run(MadeUp(), records=path),
    "transfer": lambda path: run(MadeUp(), transfer=path, model="gbt"),
    "report": lambda path: tuned().report(path),
    "plot": lambda path: tuned().plot(f"{path}.svg"),
    "build_model": lambda path: lw.build_model(path),
    "tune_model": lambda path: lw.tune_model("net.onnx", records=path),
    "tune_model transfer": lambda path: lw.tune_model("net.onnx", transfer=path),
    "store": lambda path: RecordStore(path).add([record(0)]),
    "store to read": lambda path: len(RecordStore(path, create=False)),
    "export_lines": lambda path: RecordStore("r.db").export_lines(path),
    "import_lines": lambda path: RecordStore("r.db").import_lines(path),
    "autotvm": import_autotvm,
    "table": load_brute_forced,
    "model": load_model,
    "saved model": model_file,
    "time model": TimeModel.load,
}
ENDS = {"load": ".so", "export": ".so", "plot": ".svg"}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("call", PYTHON)
def test_a_path_that_no_file_can_have_is_an_error_of_ours(call, bad):
    if call in ENDS and bad in ("folder", "ring"):
        os.rename(bad, f"{bad}{ENDS[call]}")
        if bad == "ring":
            os.remove(f"ring{ENDS[call]}")
            os.symlink(f"ring{ENDS[call]}", f"ring{ENDS[call]}")
    if call == "export as a folder" and bad == "folder":
        bad = "file"
    with pytest.raises(LoopwrightError) as caught:
        PYTHON[call](BAD.get(bad, bad))
    said = str(caught.value)
    assert len(said) < 1000
    assert "\0" not in said
    assert shown(BAD.get(bad, bad))[:100] in said


@pytest.mark.parametrize(
    "call", ["export", "export as a folder", "report", "plot", "saved model", "export_lines"]
)
def test_nothing_makes_a_folder_in_python_or_on_the_command_line(call):
    with pytest.raises(LoopwrightError, match=r"there is no folder none; make it first"):
        PYTHON[call]("none/such")
    words = ["tune", "matmul", "a=8,8", "b=8,8", "--trials", "1", "-o", "none/such.so"]
    done = CliRunner().invoke(main, words)
    assert "there is no folder none; make it first" in " ".join(done.output.split())
    assert not os.path.exists("none")


def test_a_file_that_may_not_be_written_is_refused_before_the_work(monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert problem_of_new_file("file") == "you may not write to it"
    assert problem_of_new_file("other") == "files cannot be written to ."
    device = MadeUp()
    with pytest.raises(LoopwrightError, match=r"records = r\.db: files cannot be written"):
        run(device, records="r.db")
    assert not device.measured
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)
    assert problem_of_file("file", exists=True) == "you may not read it"


def test_a_disk_that_is_full_when_a_report_is_written_is_an_error_of_ours(monkeypatch):
    monkeypatch.setattr("loopwright.explore.tuned.html", lambda _: "a report")
    found = tuned()
    with pytest.raises(LoopwrightError, match="No space left on device"):
        found.report("/dev/full")


def test_a_file_that_cannot_be_written_whole_is_left_as_it_was():
    def half() -> None:
        with whole_file("old.json", "the model", LoopwrightError) as new:
            new.write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("old.json").write_text("before")
    before = sorted(os.listdir())
    with pytest.raises(LoopwrightError, match=r"cannot write the model old\.json: No space left"):
        half()
    assert Path("old.json").read_text() == "before"
    assert sorted(os.listdir()) == before


def test_a_link_stays_one_when_a_file_is_written():
    Path("target.json").write_text("before")
    os.symlink("target.json", "link.json")
    write_model("link.json", "mlp", {"a": 1})
    assert os.path.islink("link.json")
    assert Path("target.json").read_text() != "before"


def test_a_pipe_is_written_and_not_replaced():
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_model("pipe", "mlp", {"a": 1})
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    assert os.read(reader, 1 << 16).startswith(b"{")
    os.close(reader)


# ---- at random ----

_PARTS = ["n" * 300, "ü" * 200, "a", "..", ".", "", "\0", "\n", " ", "\udcff", "folder", "file"]


def random_path(chance):
    return "/".join("".join(chance.choices(_PARTS, k=chance.randint(1, 3))) for _ in range(3))[
        : chance.choice([1, 10, 100, 10_000])
    ]


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_any_path_is_taken_or_refused_in_a_line(count):
    chance = random.Random(0)
    for _ in range(count):
        path = random_path(chance)
        for problem in (problem_of_file(path), problem_of_new_file(path)):
            assert len(problem) < 400
        assert shown(path).isprintable()
        with contextlib.suppress(LoopwrightError):
            write_model(path, "mlp", {"a": 1})
            Path(path).unlink()
        for call in ("store to read", "import_lines", "table", "model", "load", "build_model"):
            with pytest.raises(LoopwrightError) as caught:
                PYTHON[call](path)
            assert len(str(caught.value)) < 1500


def test_a_shown_path_is_short_and_printable():
    assert shown("folder/name.so") == "folder/name.so"
    assert shown("a\0b\n") == r"a\x00b\n"
    assert shown(LONG).endswith("… (10000 characters)")
    assert len(shown(LONG)) < 200
    assert problem_of_file("missing") == ""
    assert problem_of_file("missing", exists=True) == "there is no such file"
