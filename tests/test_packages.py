"""Optional packages: what needs one that is missing says in a line how to get it."""

import copy
import pickle
import re
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.codegen.devices import opencl
from loopwright.codegen.devices.nvidia import _NO_COMPILER
from loopwright.costmodel.models.treegru import TreeGRU
from loopwright.explore.report.plot import check_format, curve
from loopwright.explore.scheduling.learn import train_policies
from loopwright.explore.scheduling.loops import Problem
from loopwright.graph.importers.onnx.file import onnx_file
from loopwright.graph.importers.torch.to_onnx import onnx_of
from loopwright.packages import EXTRAS, Later, install, optional
from loopwright.transfer.pretrained.training import train_sequence
from loopwright.transfer.records.store import RecordStore
from tests.costmodel.records import data
from tests.explore.synthetic import Formula, MadeUp, matmul
from tests.targets import narrow


@pytest.fixture
def without(monkeypatch):
    """Make packages look as if they were not installed."""

    def hide(*packages):
        for name in [n for n in sys.modules if n.partition(".")[0] in packages]:
            monkeypatch.delitem(sys.modules, name)
        for name in ("tree_network", "network_training"):  # which import torch
            monkeypatch.delitem(sys.modules, f"loopwright.costmodel.models.{name}", raising=False)
        for name in ("source.network", "sequence.training"):
            monkeypatch.delitem(sys.modules, f"loopwright.costmodel.{name}", raising=False)
        for name in packages:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


def tuned():
    return lw.tune(matmul(), device=MadeUp(), trials=4, records=None, strategy="random")


def learn():
    TreeGRU("rank", hidden=16, slots=4).fit(*data(240, reads="tree"))


def learn_schedules():
    problem = Problem.of(matmul(), narrow(1))
    train_policies([problem], Formula(lambda state: 1.0, 1.0), minutes=0.01)


NEEDS = {
    "a plot's format": ("matplotlib", lambda: check_format(Path("a.png"))),
    "a curve": ("matplotlib", lambda: curve(tuned())),
    "an ONNX file": ("onnx", lambda: onnx_file(Path(__file__))),
    "a network of torch": ("onnxscript", lambda: onnx_of(None)),
    "a program for OpenCL": ("pyopencl", opencl.package),
    "a record store in PostgreSQL": ("psycopg", lambda: len(RecordStore("postgresql:///db"))),
    "a model that learns": ("torch", learn),
    "a network that reads sources": (
        "torch",
        lambda: lw.SourceModel("lstm").fit(["int a;", "a = 1;"], [0, 1]),
    ),
    "a model that proposes": ("torch", lambda: train_sequence([])),
    "a policy that learns": ("torch", learn_schedules),
}


@pytest.mark.parametrize("what", NEEDS)
def test_what_needs_a_missing_package_names_the_extra_in_one_line(what, without):
    package, work = NEEDS[what]
    without(package)
    with pytest.raises(lw.LoopwrightError) as caught:
        work()
    message = str(caught.value)
    assert message.endswith(f"needs the package {package}: {install(EXTRAS[package])}")
    assert "\n" not in message


@pytest.mark.parametrize("option", ["--plot=c.png", "--report=c.html"])
def test_a_drawing_without_matplotlib_is_refused_before_the_search(
    option, without, tmp_path, monkeypatch
):
    without("matplotlib")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["tune", "relu", "x=8", "--trials=2", option])
    assert list(tmp_path.iterdir()) == []
    assert done.exit_code == 1
    assert done.output.splitlines()[-1].endswith(install("plots"))


def test_a_model_without_its_package_is_refused_before_the_search(without, tmp_path):
    without("torch")
    records = tmp_path / "tuning.db"
    with pytest.raises(lw.LoopwrightError, match=r"loopwright\[torch\]"):
        lw.tune(matmul(), device=MadeUp(), trials=1, records=records, model="treegru-ensemble")


def test_a_package_that_cannot_be_loaded_says_why(tmp_path, monkeypatch, without):
    without("pyopencl")
    monkeypatch.delitem(sys.modules, "pyopencl")
    (tmp_path / "pyopencl.py").write_text("raise ImportError('libOpenCL.so.1: not here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(lw.LoopwrightError, match=r"\[opencl\]\" \(libOpenCL.so.1: not here\)$"):
        optional("pyopencl", "a test", lw.LoopwrightError)


@pytest.mark.parametrize("copied", [copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_a_package_that_is_imported_later_is_imported_later(copied):
    assert copied(Later("os.path:join"))._name == "os.path:join"
    assert copied(Later("os.path")).join("a", "b") == "a/b"


def test_every_package_is_in_the_extra_that_is_named_for_it():
    found = {}
    for line in requires("loopwright"):
        if extra := re.search(r"extra == [\"'](\w+)", line):
            found.setdefault(extra[1], set()).add(re.match(r"[\w-]+", line)[0])
    assert all(package in found[extra] for package, extra in EXTRAS.items())
    assert install("cuda") in _NO_COMPILER
    assert found["cuda"]
