"""Pass lists: right results, errors that name the list, and a process that is safe from them."""

import os
import pickle
import signal

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.compile import unoptimized
from loopwright.codegen.passes import process
from loopwright.codegen.passes.pipeline import Pipeline
from loopwright.codegen.passes.process import Passed, PassError, PassProcess
from loopwright.dsl.errors import BuildError, TargetError
from loopwright.dsl.oracle import evaluate, random_inputs, slack, tolerance
from loopwright.measure.checking import difference
from tests.targets import AARCH64, ALONE

pytestmark = pytest.mark.optimized

CRASHES = "function(select-optimize)"
"""A list that ends LLVM 22.1's process by signal 11 on kernels."""


def product(m=37, n=41, k=29):
    A, B = lw.tensor("A", (m, k)), lw.tensor("B", (k, n), constant=True)
    return lw.workload(lw.ops.matmul(A, B))


def conv():
    x, w = lw.tensor("x", (1, 5, 11, 13)), lw.tensor("w", (7, 5, 3, 3), constant=True)
    return lw.workload(lw.ops.relu(lw.ops.conv2d(x, w, padding=1)))


def softmax():
    return lw.workload(lw.ops.softmax(lw.tensor("x", (13, 37))))


def text(workload=None):
    """LLVM IR of the kernel of a workload."""
    return unoptimized(program(workload or product(), None, ALONE))[0]


@pytest.fixture(scope="module")
def passes():
    process = PassProcess()
    yield process
    process.close()


LISTS = (
    "default<O3>",
    "default<Oz>",
    "function(sroa,early-cse,loop-mssa(licm))",
    "default<O1>,function(slp-vectorizer,reg2mem)",
    "-disable-lsr -enable-misched=false",
)


@pytest.mark.llvm
@pytest.mark.parametrize("make", [product, conv, softmax])
@pytest.mark.parametrize("passes", LISTS)
def test_a_library_made_by_any_list_computes_what_the_oracle_does(make, passes):
    workload = make()
    library = lw.build(workload, passes=passes, target=ALONE)
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected = evaluate(workload, inputs)
    found = library(*inputs)
    close = slack(workload, inputs, expected)
    assert not difference(workload, [found], expected, tolerance(workload), slack=close)


@pytest.mark.llvm
def test_the_list_is_kept_in_the_library_its_export_and_its_pickle(tmp_path):
    library = lw.build(product(), passes="default<O2>  -disable-lsr", target=ALONE)
    assert library.passes == "default<O2> -disable-lsr"
    assert "passes: default<O2> -disable-lsr" in repr(library)
    assert lw.load(library.export(tmp_path / "product.so")).passes == library.passes
    assert pickle.loads(pickle.dumps(library)).passes == library.passes
    assert lw.build(product(), target=ALONE).passes == ""


@pytest.mark.llvm
def test_sources_show_what_the_list_made():
    library = lw.build(product(), passes="default<O1>", target=ALONE)
    assert "define" in library.source("llvm")
    assert "Disassembly" in library.source("asm")


@pytest.mark.llvm
def test_an_explanation_tells_of_the_code_that_a_list_makes():
    found = lw.explain(softmax(), ALONE, passes="default<O1> -unroll-threshold=0")
    usual = lw.explain(softmax(), ALONE, passes="default<O3>")
    assert "its code, made by llvm, passes default<O1> -unroll-threshold=0" in str(found)
    assert found.facts["instructions"] < usual.facts["instructions"]


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("passes", "said"),
    [
        ("nosuch", "unknown pass name 'nosuch'"),
        ("function(gvn", "invalid pipeline"),
        ("function(loop(licm))", "LICM requires MemorySSA"),
        (CRASHES, "killed by signal 11"),
        ("-nosuch", "no switch -nosuch"),
        ("-disable-lrs", "similar ones: -disable-lsr"),
        ("-disable-lsr=3", "'3' is invalid value"),
    ],
)
def test_a_bad_list_is_an_error_that_names_it(passes, said):
    with pytest.raises(PassError, match=said) as caught:
        lw.build(product(), passes=passes, target=ALONE)
    assert passes in str(caught.value)


@pytest.mark.llvm
def test_a_list_after_one_that_ended_the_process_is_run(passes):
    before = passes.run(text(), Pipeline("default<O3>"), ALONE)
    with pytest.raises(PassError):
        passes.run(text(), Pipeline(CRASHES), ALONE)
    assert passes.run(text(), Pipeline("default<O3>"), ALONE) == before


@pytest.mark.llvm
def test_a_list_that_takes_too_long_is_an_error():
    slow = PassProcess(timeout=1.0)
    slow.run(text(), Pipeline("default<O0>"), ALONE)
    os.kill(slow._child._process.pid, signal.SIGSTOP)
    with pytest.raises(PassError, match="not done after 1 s"):
        slow.run(text(), Pipeline("default<O1>"), ALONE)
    assert slow.run(text(), Pipeline("default<O0>"), ALONE).instructions > 0
    slow.close()


@pytest.mark.llvm
def test_the_same_list_gives_the_same_object(passes):
    first, again = (passes.run(text(), Pipeline(), ALONE, "object") for _ in range(2))
    assert first == again
    assert first.given.startswith(b"\x7fELF")


@pytest.mark.llvm
def test_instructions_are_those_of_the_kernel(passes):
    def count(passes_of):
        return passes.run(text(), Pipeline(passes_of), ALONE).instructions

    assert count("default<Oz>") < count("default<O0>")
    shown = passes.run(text(), Pipeline("default<Oz>"), ALONE, "llvm")
    assert isinstance(shown, Passed)
    assert b"define" in shown.given


def test_without_the_package_the_error_tells_how_to_get_it(monkeypatch):
    monkeypatch.setattr(process, "PACKAGE", "no-such-package")
    with pytest.raises(BuildError, match=r'pip install "loopwright\[llvm\]"'):
        PassProcess().run("", Pipeline(), ALONE)


@pytest.mark.llvm
def test_an_llvm_of_another_version_than_tvms_is_an_error(monkeypatch):
    made = text()
    monkeypatch.setattr(process.tvm, "get_global_func", lambda name: lambda: 21)
    with pytest.raises(BuildError, match=r"TVM makes IR of LLVM 21, .* is LLVM 22"):
        PassProcess().run(made, Pipeline(), ALONE)


@pytest.mark.parametrize("bad", ["", "  ", "a b", 'default<O3>"', 3])
def test_text_that_is_no_list_is_an_error(bad):
    with pytest.raises(BuildError, match="give one list"):
        Pipeline.of(bad)


def test_lists_are_for_what_llvm_compiles():
    with pytest.raises(TargetError, match="target c"):
        lw.build(product(), target="c", passes="default<O3>")
    with pytest.raises(TargetError, match="target builtin"):
        lw.build(product(), codegen="builtin", passes="default<O3>")
    with pytest.raises(TargetError, match="x86-64"):
        lw.build(product(), target=AARCH64, passes="default<O3>")
    n = lw.dim("n", 1, 64)
    with pytest.raises(TargetError, match="fixed sizes"):
        lw.build(lw.ops.relu(lw.tensor("x", (n, 8))), passes="default<O3>")
