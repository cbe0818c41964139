"""`tune_passes`: -O3 unless a list is certainly faster, and failures that stay failures."""

import itertools
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.codegen.passes import process
from loopwright.dsl.errors import BuildError, LoopwrightError, NotationError, TargetError
from loopwright.explore.budget import TuningError
from loopwright.explore.passes import search as searching
from loopwright.explore.passes.search import PassSearch
from loopwright.explore.significance import FEWEST
from loopwright.measure.builder import Built
from loopwright.measure.device import Comparison, Failure
from loopwright.measure.runner import Sampled
from tests.targets import ALONE

BASE = 1.0


class FakeDevice:
    """Code is the list itself without what does nothing; a table has the seconds."""

    def __init__(self, seconds, rounds=20, wrong=(), elsewhere=None):
        self.seconds, self.rounds, self.wrong = seconds, rounds, wrong
        self.elsewhere = [seconds] if elsewhere is None else elsewhere
        self.processes = 0
        self.timed = []

    def build_lists(self, workload, config, lists):
        return [self._built(one) for one in lists]

    def _built(self, one):
        if "bad" in one:
            return Built(b"", {}, Failure("build", "a bad list"), 0.1)
        words = [w for w in one.replace(" ", ",").split(",") if w != "nothing"]
        return Built(",".join(words).encode(), {}, None, 0.1)

    def _of(self, built):
        return self.seconds.get(built.code.decode(), BASE)

    def time_built(self, workload, built):
        self.timed += [b.code for b in built]
        return [Sampled(None, first=self._of(b), seconds=[self._of(b)]) for b in built]

    def compare_built(self, workload, built, rounds, anew):
        if anew:
            self.seconds = self.elsewhere[self.processes % len(self.elsewhere)]
            self.processes += 1
        noise = 1 + 1e-4 * np.random.default_rng(0).random((len(built), rounds))
        samples = [tuple(self._of(b) * row) for b, row in zip(built, noise)]
        return Comparison(tuple(samples), (0,) * len(built), 0.0)

    def verify_built(self, workload, built):
        return Failure("wrong", "") if built.code.decode() in self.wrong else None


def search(device):
    return PassSearch(device, None, None, np.random.default_rng(0))


def test_the_fastest_list_is_returned_without_what_does_nothing():
    found = search(FakeDevice({"a,b": 0.8, "c": 0.9}))
    found.try_all([("nothing", "a", "nothing", "b"), ("c",)])
    passes, speedup = found.decided()
    assert passes == "a,b"
    assert speedup.value == pytest.approx(1.25, rel=1e-3)


def test_a_list_that_is_not_faster_in_every_process_is_not_returned():
    found = search(FakeDevice({"a": 0.8}, elsewhere=[{"a": 0.9}, {"a": 0.8}, {"a": 1.02}]))
    found.try_all([("a",)])
    assert found.decided() == ("", None)


@pytest.mark.parametrize("seconds", [1.0, 0.995, 1.3])
def test_a_list_that_is_not_certainly_faster_is_not_returned(seconds):
    found = search(FakeDevice({"a": seconds}))
    found.try_all([("a",)])
    assert found.decided() == ("", None)


def test_a_list_whose_results_are_wrong_on_fresh_data_is_not_returned():
    found = search(FakeDevice({"a": 0.5}, wrong=("a",)))
    found.try_all([("a",)])
    assert found.decided() == ("", None)


def test_lists_of_one_code_are_timed_once_and_bad_ones_are_failures():
    device = FakeDevice({"a": 0.9})
    found = search(device)
    found.try_all([("a",), ("a", "nothing"), ("bad",), ("nothing",)])
    found.try_all([("nothing", "a")])
    assert device.timed == [b"", b"a"]
    assert [t.same for t in found.tried] == [False, True, False, True, True]
    failed = found.tried[2]
    assert failed.seconds == math.inf
    assert failed.failure.message == "a bad list"
    assert all(len(e) for e in found.propose(40))


@pytest.mark.llvm
def test_a_search_ends_in_a_library_that_computes_what_minus_o3_does(monkeypatch):
    monkeypatch.setattr(searching, "FIRST", 3)
    monkeypatch.setattr(searching, "BATCH", 3)
    looks = itertools.count(time.monotonic(), 20.0)  # seconds
    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=looks.__next__))
    x = lw.tensor("x", (16, 33))
    found = lw.tune_passes(lw.ops.softmax(x), target=ALONE, minutes=1, seed=1)
    assert found.tried
    assert found.library.passes == found.passes
    assert ("kept" in str(found)) == (found.passes == "")
    a = np.random.default_rng(0).random((16, 33), np.float32)
    expected = np.exp(a) / np.exp(a).sum(1, keepdims=True)
    np.testing.assert_allclose(found.library(a), expected, rtol=1e-5)


@pytest.mark.parametrize(("seconds", "fastest"), [({"a": 0.8, "c": 0.9}, "a"), ({"a": 1.3}, "")])
def test_the_fastest_list_so_far_is_that_of_the_least_time(seconds, fastest):
    found = search(FakeDevice(seconds))
    assert found.fastest() == ""
    found.try_all([("c",), ("a",), ("bad",)])
    assert found.fastest() == fastest
    assert ("not compared" in str(found.result(ALONE, fastest))) == bool(fastest)


@pytest.mark.llvm
def test_an_interrupted_search_has_the_fastest_list_so_far(tmp_path, monkeypatch):
    def ended(line):
        raise KeyboardInterrupt

    monkeypatch.setattr(searching, "FIRST", 2)
    with pytest.raises(lw.Interrupted) as caught:
        lw.tune_passes(lw.ops.relu(lw.tensor("x", (4,))), target=ALONE, progress=ended)
    found = caught.value.tuned
    assert len(found.tried) == 2
    assert found.library(np.float32([-1, 0, 1, 2])).tolist() == [0, 0, 1, 2]

    def tune_passes(*_args, **_options):
        raise lw.Interrupted(found)

    monkeypatch.setattr("loopwright.explore.passes.tune.tune_passes", tune_passes)
    asked = ["passes", "relu", "x=4", "-o", str(tmp_path / "r.so")]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert str(found) in result.output
    assert lw.load(tmp_path / "r.so").passes == found.passes


@pytest.mark.llvm
def test_without_time_for_a_list_o3_is_kept():
    found = lw.tune_passes(lw.ops.relu(lw.tensor("x", (4,))), target=ALONE, minutes=1e-9)
    assert str(found) == "-O3 is kept: there was no time to try a list: give more minutes"
    assert found.library(np.float32([-1, 0, 1, 2])).tolist() == [0, 0, 1, 2]


@pytest.mark.llvm
def test_the_command_builds_by_a_list(tmp_path):
    path = tmp_path / "s.so"
    asked = [
        "passes",
        "softmax",
        "x=8,16",
        "--passes",
        "default<O2> -disable-lsr",
        "-o",
        str(path),
    ]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert lw.load(path).passes == "default<O2> -disable-lsr"


@pytest.mark.llvm
def test_what_takes_no_list_is_an_error_before_anything_is_measured():
    x = lw.tensor("x", (4, 4))
    with pytest.raises(TargetError, match="target c"):
        lw.tune_passes(lw.ops.relu(x), target="c")
    with pytest.raises(BuildError, match="give one list"):
        lw.tune_passes(lw.ops.relu(x), begin=["a b"])
    with pytest.raises(NotationError, match="no elements, so there is nothing to choose"):
        lw.tune_passes(lw.ops.relu(lw.tensor("x", (0, 3))))


def test_slow_programs_are_compared_in_fewer_rounds():
    device = FakeDevice({"a": 0.5})
    found = search(device)
    found.try_all([("a",)])
    asked = []
    device.compare_built = lambda w, b, rounds, anew: (
        asked.append(rounds),
        FakeDevice.compare_built(device, w, b, rounds, anew),
    )[1]
    assert found.decided(time.monotonic() + 30)[0] == "a"
    assert [FEWEST <= n < 20 for n in asked] == [True, True]


@pytest.mark.parametrize("begin", ["default<O2>", [2], None])
def test_one_list_is_no_list_of_lists(begin):
    with pytest.raises(TuningError, match="give a list of pass lists"):
        lw.tune_passes(lw.tensor("x", (4,)), begin=begin)


def test_progress_is_a_function():
    with pytest.raises(TuningError, match="give a function of a line"):
        lw.tune_passes(lw.tensor("x", (4,)), progress=True)


def test_time_must_be_positive_and_the_package_there(monkeypatch):
    x = lw.tensor("x", (4, 4))
    with pytest.raises(TuningError, match="positive"):
        lw.tune_passes(lw.ops.relu(x), minutes=0)
    monkeypatch.setattr(process, "PACKAGE", "no-such-package")
    with pytest.raises(BuildError, match="loopwright\\[llvm\\]"):
        lw.tune_passes(lw.ops.relu(x), minutes=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": None}, "minutes = None: give a positive number"),
        ({"seed": -1}, "seed = -1: give an integer of at least 0"),
    ],
)
def test_minutes_and_seeds_that_cannot_be_are_refused(options, message):
    with pytest.raises(LoopwrightError, match=message):
        lw.tune_passes(lw.ops.relu(lw.tensor("x", (4,))), **options)
