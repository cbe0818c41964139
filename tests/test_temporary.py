"""Temporary folders: those of killed processes go at the next start, those in use stay."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import loopwright as lw
from loopwright import temporary
from loopwright.temporary import TemporaryError, TemporaryFolder, sweep
from tests import interpreter

ROOT = Path(__file__).parents[1]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder for temporary ones, in which nobody has looked yet."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def names(root):
    return sorted(p.name for p in root.iterdir())


def start(root, program):
    """Another interpreter, once it has printed a line; and that line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=interpreter.environment(TMPDIR=str(root)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


HOLD = """
import sys
from loopwright.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.__enter__() / "file").write_text("text")
print(folder.name, flush=True)
sys.stdin.read()
"""


def test_a_folder_is_there_until_it_is_left(root):
    with TemporaryFolder() as folder:
        assert folder.parent == root
        (folder / "inner").mkdir()
    assert names(root) == []
    kept = TemporaryFolder()
    kept.cleanup()
    kept.cleanup()
    assert names(root) == []


def test_a_folder_goes_with_its_last_reference(root):
    TemporaryFolder()
    assert names(root) == []


def test_what_a_killed_process_left_goes_at_the_next_start_and_what_is_in_use_stays(root):
    killed, left = start(root, HOLD)
    with killed:
        killed.kill()
    living, used = start(root, HOLD)  # which removes what is left
    with living:
        assert names(root) == [Path(used).name]
        sweep(root)
        assert (Path(used) / "file").read_text() == "text"
        living.kill()
    assert left != used
    with TemporaryFolder() as folder:
        assert names(root) == [folder.name]


def test_a_process_looks_once_in_each_place(root):
    with TemporaryFolder():
        (root / "loopwright-tmp-left").mkdir()
        with TemporaryFolder():
            assert "loopwright-tmp-left" in names(root)


def test_a_folder_that_is_just_being_made_is_left_alone(root):
    (root / "loopwright-new-now").mkdir()
    old = root / "loopwright-new-old"
    old.mkdir()
    os.utime(old, (time.time() - 120,) * 2)
    sweep(root)
    assert names(root) == ["loopwright-new-now"]


def test_what_is_no_folder_of_ours_stays(root, tmp_path):
    (root / "another").mkdir()
    (root / "loopwright-tmp-file").write_text("text")
    (tmp_path / "target").mkdir()
    (root / "loopwright-tmp-link").symlink_to(tmp_path / "target")
    (root / "loopwright-tmp-left").mkdir()
    sweep(root)
    assert names(root) == ["another", "loopwright-tmp-file", "loopwright-tmp-link"]
    assert (tmp_path / "target").is_dir()


def test_a_folder_of_another_user_stays(root, monkeypatch):
    (root / "loopwright-tmp-left").mkdir()
    monkeypatch.setattr(temporary.os, "getuid", lambda: os.stat(root).st_uid + 1)
    sweep(root)
    assert names(root) == ["loopwright-tmp-left"]


def test_a_fork_that_ends_removes_nothing_of_its_parent_s(root):
    folder = TemporaryFolder()
    child = os.fork()
    if child == 0:
        folder.cleanup()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.isdir(folder.name)
    sweep(root)
    assert os.path.isdir(folder.name)
    folder.cleanup()


TUNE = """
import loopwright as lw
product = lw.ops.matmul(lw.tensor("a", (96, 96)), lw.tensor("b", (96, 96)))
options = {"strategy": "random", "threads": 1, "records": "t.db"}
lw.tune(lw.workload(product), trials=100_000, **options)
"""


def test_a_tuner_that_is_killed_leaves_nothing_longer_than_the_next_start(root, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", TUNE],
        cwd=tmp_path,
        env=interpreter.environment(TMPDIR=str(root)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        interpreter.until_measured(tmp_path / "t.db")
        process.send_signal(signal.SIGKILL)
    assert any(name.startswith("loopwright-tmp-") for name in names(root))
    with TemporaryFolder() as folder:
        assert names(root) == [folder.name]


@pytest.mark.parametrize("make", [TemporaryFolder, temporary.temporary_file])
def test_no_place_for_temporary_files_is_an_error_that_names_the_remedy(root, make):
    root.rmdir()
    with pytest.raises(TemporaryError, match=r"tmp.*: No such file .* TMPDIR"):
        make()


def test_no_room_in_a_temporary_folder_is_such_an_error_too(root):
    with pytest.raises(TemporaryError, match="No space left"), TemporaryFolder():
        raise OSError(errno.ENOSPC, "No space left on device", "file")
    assert names(root) == []
    with pytest.raises(FileNotFoundError), TemporaryFolder() as folder:
        (folder / "none").read_text()


@pytest.mark.parametrize(
    "call",
    [
        lambda w: lw.build(w, threads=1),
        lambda w: lw.build(w, target="c"),
        lambda w: lw.tune(w, trials=1, records=None, transfer=None),
    ],
)
def test_builds_and_searches_say_that_no_temporary_file_can_be_written(root, call):
    root.rmdir()
    with pytest.raises(lw.LoopwrightError, match="TMPDIR"):
        call(lw.workload(lw.ops.relu(lw.tensor("x", (5, 7)))))


def test_an_export_says_that_no_temporary_file_can_be_written(root, tmp_path):
    library = lw.build(lw.workload(lw.ops.relu(lw.tensor("x", (5, 7)))), threads=1)
    root.rmdir()
    with pytest.raises(lw.LoopwrightError, match="TMPDIR"):
        library.export(tmp_path / "r.so")
