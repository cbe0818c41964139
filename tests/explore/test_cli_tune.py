"""The command line: naming a workload, tuning it, replaying a record, timing a file."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import click
import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.cli.common import peers as cli_peers
from loopwright.cli.common.peers import compare_peer, library_call, peer_call, timed
from loopwright.cli.common.workload import read_workload
from loopwright.cli.replay import replay
from loopwright.cli.run import bench
from loopwright.cli.tune import tune
from loopwright.dsl.errors import LoopwrightError, NotationError
from loopwright.explore.open import choice
from loopwright.explore.open import tune as open_tune
from loopwright.transfer.pretrained.base import SHIPPED
from tests import interpreter


def test_an_operator_is_named_with_its_shapes():
    found = read_workload("conv2d", ["x=1,8,9,9", "w=4,8,3,3:constant", "padding=1"]).workload
    X, W = lw.tensor("x", (1, 8, 9, 9)), lw.tensor("w", (4, 8, 3, 3), constant=True)
    assert found == lw.workload(lw.ops.conv2d(X, W, padding=1))


def test_shapes_take_a_dtype_and_options_are_literals_or_words():
    found = read_workload("conv2d", ["x=1,9,9,8:float64", "w=3,3,8,4:float64", "layout=NHWC"])
    assert [t.dtype for t in found.workload.inputs] == ["float64", "float64"]
    assert found.arguments["layout"] == "NHWC"
    pads = read_workload("conv2d", ["x=1,8,9,9", "w=4,8,3,3", "padding=((1,2),(0,1))"])
    assert pads.arguments["padding"] == ((1, 2), (0, 1))


def test_an_einsum_is_named_with_its_sizes():
    found = read_workload("ij,jk->ik", ["i=5", "j=6", "k=7", "constant=1"]).workload
    assert [t.shape for t in found.inputs] == [(5, 6), (6, 7)]
    assert [t.constant for t in found.inputs] == [False, True]


def test_a_file_is_named_with_a_workload_a_tensor_or_a_function(tmp_path):
    file = tmp_path / "my.py"
    file.write_text(
        "import loopwright as lw\n"
        "def made():\n    return lw.ops.relu(lw.tensor('x', (4,)))\n"
        "tensor = made()\nworkload = lw.workload(tensor)\nnumber = 3\n"
    )
    same = read_workload(f"{file}:workload", []).workload
    assert same == read_workload(str(file), []).workload
    assert same == read_workload(f"{file}:made", []).workload
    assert same == read_workload(f"{file}:tensor", []).workload
    with pytest.raises(NotationError, match="is int 3; a workload"):
        read_workload(f"{file}:number", [])
    with pytest.raises(NotationError, match="defines no"):
        read_workload(f"{file}:nothing", [])


@pytest.mark.parametrize(
    ("what", "settings", "message"),
    [
        ("convolution", [], "is no workload"),
        ("conv2d", ["x=1,8,9,9"], "needs w"),
        ("conv2d", ["x=1,8,9,9", "w=4,8,3,3", "pad=1"], "has no 'pad'"),
        ("conv2d", ["x=1,8,nine", "w=4,8,3,3"], "a shape is integers"),
        ("relu", ["x=,8"], "a shape is integers"),
        ("relu", ["x=1,,8"], "a shape is integers"),
        ("conv2d", ["x=1,8,9,9:float33", "w=4,8,3,3"], "one dtype of"),
        ("conv2d", ["x=1,8,9,9", "w=4,7,3,3"], "7"),
        ("conv2d", ["x"], "name=value"),
        ("relu", ["x=4", "x=5"], "each name once"),
        ("ij,jk->ik", ["i=5", "j=6"], "needs i=SIZE j=SIZE k=SIZE"),
        ("ij,jk->ik", ["i=5", "j=6"], "; k= is missing"),
        ("ij,jk->ik", ["i=5", "j=6", "k=7", "q=3"], "; q= is none of its indices"),
        ("ij,jk->ik", ["i=5", "j=6", "k=seven"], "integers"),
        ("ij,jk->ik", ["i=5", "j=6", "k=7", "constant=2"], "operands 0 to 1"),
        ("nowhere.py:x", [], "no such file"),
    ],
)
def test_a_workload_that_is_none_says_what_is_allowed(what, settings, message):
    with pytest.raises(LoopwrightError, match=message):
        read_workload(what, settings)


def test_a_file_that_fails_says_how(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("1 / 0\n")
    with pytest.raises(NotationError, match="ZeroDivisionError"):
        read_workload(str(file), [])
    file.write_text("def workload(size):\n    return size\n")
    with pytest.raises(NotationError, match=r"TypeError.*'size'"):
        read_workload(str(file), [])


def test_errors_end_a_command_with_a_message():
    result = CliRunner().invoke(tune, ["convolution"])
    assert result.exit_code == 1
    assert "is no workload" in result.output
    result = CliRunner().invoke(tune, ["relu", "x=4", "-o", "lib.dll"])
    assert result.exit_code == 2
    assert ".so" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tune", "Missing argument 'WHAT'"),
        ("tune relu x=4 --seed -1", "--seed"),
        ("tune relu x=4 --report nowhere/r.html", "there is no folder nowhere; make it first"),
        ("tune relu x=4 --plot nowhere/p.png", "there is no folder nowhere; make it first"),
        ("tune relu x=4 --records nowhere/t.db", "there is no folder nowhere; make it first"),
        ("tune relu x=4 -o nowhere/k.so", "there is no folder nowhere; make it first"),
        (
            "tune relu x=4 --transfer nowhere.json",
            "nowhere.json: there is no such file; give auto",
        ),
        ("tune-model net.onnx --transfer nowhere.json", "nowhere.json: there is no such file"),
        ("replay 3", "`loopwright tune` makes one, --records names another"),
        ("explain relu x=4 --record 3", "`loopwright tune` makes one, --records names another"),
        ("tune relu x=4 --plot p.foo", "the name of a plot ends in one of .avif, .eps"),
        ("tune relu x=4 --plot p", "the name of a plot ends in one of"),
        ("tune relu x=4 -o my-relu.so", "cannot be one; try my_relu.so"),
        ("tune relu x=0", "has no elements, so there is nothing to choose"),
        ("tune relu x=4 --target opencl -o k.so", "the name of a library ends in .cl"),
        ("tune net.onnx", "is a network: `loopwright tune-model` tunes networks"),
        ("inspect net.onnx", "is a network: `loopwright tune-model` tunes networks"),
        ("tune-model net.onnx --records nowhere/t.db", "there is no folder nowhere"),
        ("tune-model net.onnx --trials 0", "--trials"),
        ("tune-model net.onnx --effort instant", "--effort"),
        ("tune-model net.onnx --tasks 1 --share 0.5", "give one of them"),
        ("tune-model net.onnx -o net.lib", "ends in .so"),
        ("tune-model net.onnx x=7,13", "unexpected extra argument"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").touch()
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert said in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("words", ["tune relu x=4", "tune-model net.onnx"])
@pytest.mark.parametrize("kind", ["other", "source"])
def test_a_file_that_no_search_can_begin_with_is_refused_before_anything_is_done(
    words, kind, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").touch()
    said = "my.json is no model file"
    if kind == "source":
        lw.SourceModel().fit(["int a;", "float b;"], [0, 1]).save("my.json")
        said = "my.json holds a source model"
    else:
        (tmp_path / "my.json").write_text("{}")
    monkeypatch.setattr("loopwright.measure.opening.open_device", None)
    result = CliRunner().invoke(main, [*words.split(), "--transfer", "my.json"])
    assert isinstance(result.exception, SystemExit)
    assert said in result.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my.json", "net.onnx"]


@pytest.mark.parametrize("how", ["--strategy random", "--model random", "--strategy genetic"])
def test_a_model_that_a_search_does_not_go_on_from_is_refused_before_it_begins(
    how, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("loopwright.measure.opening.open_device", None)
    words = ["tune", "relu", "x=4", "--transfer", str(SHIPPED / "x86-avx2.json")]
    result = CliRunner().invoke(main, [*words, *how.split()])
    assert isinstance(result.exception, SystemExit)
    assert "is for strategy='annealing' or 'transfer'" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "file", "option"),
    [("", "relu.so", "--output"), ("-o k.so", "k.so", "-o"), ("", "tuning.db", "--records")],
)
def test_a_file_that_is_read_only_is_told_with_its_option(
    words, file, option, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).touch()
    monkeypatch.setattr("os.access", lambda path, mode: file not in str(path) or mode != os.W_OK)
    result = CliRunner().invoke(main, ["tune", "relu", "x=4", *words.split()])
    assert result.exit_code == 2
    assert re.search(f"{option}.*{file}.*may not write to it", result.output), result.output


_OF_NETWORKS = "--tasks --share --shape --layout --sparse --no-sparse --check --no-check"
_OF_SEARCHES = "--strategy --model --acquisition --transfer --trials --minutes --effort --records"
_OF_WORKLOADS = "--strategy --model --acquisition --target --plot --report"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("tune", f"{_OF_NETWORKS} --arch --count --compile-only"),
        ("tune-model", f"{_OF_WORKLOADS} --arch --count --compile-only"),
        (
            "inspect",
            f"{_OF_NETWORKS} {_OF_SEARCHES} --target --plot --report --threads",
        ),
    ],
)
def test_an_option_that_does_not_apply_is_unknown_to_a_command(command, options):
    for option in options.split():
        result = CliRunner().invoke(main, [command, "relu", option])
        assert result.exit_code == 2
        assert re.search(f"No such option:? '?{option}", result.output), option


def commands(group=main, words=()):
    """Every command with the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        yield (*words, name), command


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*c, id=" ".join(c[0])) for c in commands()]
)
def test_the_help_of_every_command_begins_with_an_imperative_and_explains_all_options(
    words, command
):
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    said = result.output.split("\n\n")[1]
    assert said.split()[0] in {
        "Add", "Build,", "Call", "Compile", "Copy", "Drain", "Explain", "Find", "Judge", "Learn",
        "List", "Look", "Measure", "Say", "Search", "Show", "Start", "Time", "Train", "Write",
    }  # fmt: skip
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert all(p.help for p in options), [p.name for p in options if not p.help]
    assert not any(c in result.output for c in ("\\b", "\b"))


def test_another_library_and_ours_are_both_called_from_python():
    request = read_workload("matmul", ["a=5,5", "b=5,5:constant"])
    name, call, seconds = peer_call(request, 1)
    assert seconds > 0
    assert name in ("torch", "numpy")
    assert tuple(call().shape) == (5, 5)
    library, inputs = lw.build(request.workload, threads=1), []

    class Counted:
        def bind(self, **constants):
            bound = library.bind(**constants)
            return lambda *given: (inputs.append(given), bound(*given))

    library_call(Counted(), request.workload)()
    assert [a.shape for a in inputs[0]] == [(5, 5)]
    found = SimpleNamespace(library=library, seconds=1e-3)
    peer = compare_peer(request, found, lambda: 60.0)
    assert "called from Python like it, the best takes" in str(peer)
    assert compare_peer(read_workload("relu", ["x=4"]), found, lambda: 60.0) is None
    found.seconds = 10.0
    assert compare_peer(request, found, lambda: 60.0) is None


def test_another_library_is_not_compared_once_the_minutes_are_used(monkeypatch):
    request = read_workload("matmul", ["a=5,5", "b=5,5"])
    found = SimpleNamespace(library=lw.build(request.workload, threads=1), seconds=1e-3)
    assert compare_peer(request, found, iter([60.0, 0.1]).__next__) is None  # its import was slow
    monkeypatch.setattr(cli_peers, "peer_call", None)
    assert compare_peer(request, found, lambda: 0.1) is None


@pytest.mark.usefixtures("brief")
def test_both_take_turns():
    called = []
    samples = timed([lambda: called.append("a"), lambda: called.append("b")])
    assert len(samples[0]) == len(samples[1]) >= cli_peers.FEWEST
    turns = [name for name, other in itertools.pairwise(called) if name != other]
    assert len(turns) >= len(samples[0])


def test_there_are_as_many_turns_as_there_is_time_for_and_as_an_interval_needs():
    assert cli_peers.rounds([1e-5, 1e-5]) == 20
    assert cli_peers.rounds([0.06, 0.06]) == 8


@pytest.mark.parametrize("steady", [True, False])
def test_a_ratio_to_another_library_has_its_interval_or_is_not_told(monkeypatch, steady):
    rng = np.random.default_rng(0)
    ours = rng.normal(1e-3, 1e-5 if steady else 4e-4, 20).clip(1e-4)
    line = cli_peers.judged(tuple(2e-3 + 0 * ours), tuple(ours), 0.0)[1]
    told = re.search(r"2\.0\d \((1\.9|2\.0)\d to 2\.0\d\) times as fast$", line)
    assert (told is not None) is steady
    assert ("no ratio, since " in line and "differed too much" in line) is not steady


def test_no_ratio_to_another_library_is_told_while_other_programs_want_the_cores():
    one = tuple(1e-3 * (1 + 0.001 * n) for n in range(20))
    much = tuple(0.3 + s for s in one)
    assert cli_peers.judged(much, one, 0.0)[0].value > 100
    claimed, said = cli_peers.judged(much, one, 1.0)
    assert claimed is None
    assert said.startswith("no ratio, since other programs kept 1.0 cores busy")


def test_another_library_that_a_test_cannot_tell_from_ours_is_tied():
    one = tuple(1e-3 * (1 + 0.01 * (n % 3)) for n in range(20))
    other = tuple(reversed(one))
    claimed, said = cli_peers.judged(other, one, 0.0)
    assert claimed is None
    assert said.startswith("tied: ")


def test_operands_of_an_einsum_are_named_with_their_shapes():
    found = read_workload("ij,jk->ik", ["A=5,6", "B=6,7:constant"])
    assert [(t.name, t.shape, t.constant) for t in found.workload.inputs] == [
        ("A", (5, 6), False),
        ("B", (6, 7), True),
    ]
    with pytest.raises(NotationError, match=r"NAME=SHAPE for each of its 2 operands.*A= is none"):
        read_workload("ij,jk->ik", ["A=5,6"])
    with pytest.raises(LoopwrightError, match="j"):
        read_workload("ij,jk->ik", ["A=5,6", "B=9,7"])


def test_operands_are_tensors_or_numbers():
    both = read_workload("add", ["x=64,64", "y=64,64"]).workload
    assert [t.shape for t in both.inputs] == [(64, 64), (64, 64)]
    assert [t.shape for t in read_workload("mul", ["x=8,", "y=2"]).workload.inputs] == [(8,)]


@pytest.mark.parametrize(
    ("what", "settings"),
    [
        ("conv2d", ["x=1,4,9,9", "w=4,4,3,3:constant", "padding=((1,2),(0,1))"]),
        ("matmul", ["a=4,4:bfloat16", "b=4,4:bfloat16"]),
    ],
)
def test_what_torch_lacks_has_no_counterpart(what, settings):
    pytest.importorskip("torch")
    assert peer_call(read_workload(what, settings), 1) is None


@pytest.mark.usefixtures("brief")
def test_one_command_tunes_and_exports_and_what_it_saved_can_be_used(tmp_path, monkeypatch):
    """On this machine, for real: three candidates of a small product."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    command = ["ij,jk->ik", "i=32", "j=48", "k=40", "--trials", "3", "-o", "mm.so"]
    result = runner.invoke(tune, [*command, "--plot", "c.svg", "--report", "r.html"])
    assert result.exit_code == 0, result.output
    for word in ("default", "best", "trials     3", "time", "mm.so"):
        assert word in result.output
    assert re.search(r"speed-up   (none: |\d+\.\d+ \(\d+\.\d+ to \d+\.\d+\)\n)", result.output)
    for name in ("mm.so", "mm.h", "mm.json", "c.svg", "r.html", "tuning.db"):
        assert (tmp_path / name).exists(), name

    result = runner.invoke(bench, ["mm.so"])
    assert result.exit_code == 0, result.output
    assert "GFLOP/s" in result.output

    result = runner.invoke(replay, ["1"])
    assert result.exit_code == 0, result.output
    assert "its results are right" in result.output

    assert runner.invoke(bench, ["mm.so", "--seed", "-1"]).exit_code == 2
    assert runner.invoke(replay, ["999"]).exit_code == 1


@pytest.mark.parametrize(
    "sign", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_a_search_that_is_told_to_end_keeps_what_it_measured_and_leaves_nothing_behind(
    tmp_path, sign
):
    with searching(tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        process.send_signal(sign)
        said, _ = process.communicate(timeout=60)
    assert "interrupted" in said
    assert "other library" not in said  # nobody waits for that any more
    assert_kept(tmp_path)


def test_a_search_whose_terminal_is_closed_keeps_what_it_measured(tmp_path):
    ours, theirs = os.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with searching(tmp_path, **streams, preexec_fn=of_a_terminal) as process:
        os.close(theirs)
        os.close(ours)  # which is no terminal of a session: nobody tells but the shell
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        process.wait(60)
    assert process.returncode == 0
    assert_kept(tmp_path)


def of_a_terminal():
    """Have a session, and hear of its end, also where these tests run under nohup."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def searching(folder, **options):
    """A search, once it has measured something."""
    (folder / "tmp").mkdir()
    words = "tune matmul a=96,96 b=96,96 --trials 100000 --threads 1 --records t.db --output mm.so"
    process = subprocess.Popen(
        [sys.executable, "-m", "loopwright", *words.split()],
        cwd=folder,
        env=interpreter.environment(TMPDIR=str(folder / "tmp")),
        text=True,
        **options,
    )
    with process:
        try:
            interpreter.until_measured(folder / "t.db")
            yield process
        finally:
            process.kill()  # or a test that fails waits for it


def assert_kept(folder):
    interpreter.until_measured(folder / "t.db")  # by what the store kept
    assert lw.load(folder / "mm.so").signature
    assert not list((folder / "tmp").iterdir())


@pytest.mark.usefixtures("brief")
def test_a_file_with_dims_becomes_one_library_for_all_sizes(tmp_path, monkeypatch):
    for name, count in {"_SEARCHED": 1, "_SAMPLED": 3, "_BEST": 1}.items():
        monkeypatch.setattr(open_tune, name, count)
    for name, count in {"_CELLS": 3, "_ALONE": 1}.items():
        monkeypatch.setattr(choice, name, count)
    file, output = tmp_path / "my.py", tmp_path / "mine.so"
    file.write_text(
        "import loopwright as lw\n"
        "made = lw.ops.relu(lw.tensor('x', (lw.dim('n', 1, 50), 4)))\n"
        "workload = lw.workload(made)\n"
    )
    words = [str(file), "--records", str(tmp_path / "r.db"), "--output", str(output)]
    report = tmp_path / "p.html"
    done = CliRunner().invoke(main, ["tune", *words, "--trials", "2", "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert "Times over sizes" in report.read_text()
    assert "n 1 to" in done.output
    data = np.linspace(-1, 1, 28, dtype="float32").reshape(7, 4)
    np.testing.assert_array_equal(lw.load(output)(data), np.maximum(data, 0))
