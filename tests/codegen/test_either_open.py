"""`lw.either` for open sizes: one library of the processor, and several of a GPU."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.either import open as open_either
from loopwright.codegen.either.open import OpenCosts, OpenEither
from loopwright.codegen.either.rows import rows_apart
from loopwright.codegen.either.sums import Sum
from loopwright.costmodel import TimeModel
from loopwright.dsl.errors import LibraryError, ShapeError, TargetError

pytestmark = pytest.mark.opencl
SIZES = (8, 32)


def dense(n=None, width=5):
    n = lw.dim("n", 1, 64) if n is None else n
    X, W = lw.tensor("X", (n, 7)), lw.tensor("W", (7, width), constant=True)
    return lw.workload(lw.ops.relu(lw.einsum("ij,jk->ik", X, W)))


def column(n=None):
    X = lw.tensor("X", (lw.dim("n", 1, 64) if n is None else n, 6))
    return lw.workload(lw.einsum("ij->j", X))


@pytest.fixture(scope="module")
def libraries():
    whole = dense()
    gpus = [lw.build(whole.at(n=n), target="opencl") for n in SIZES]
    return {"cpu": lw.build(whole, threads=1), "gpu": gpus}


def costs(kernel_at_64=64e-6):
    """The processor's kernel takes a microsecond a row; the GPU 4 µs whatever the rows, and a
    transfer 1 µs and a share for each row."""
    model = TimeModel(["n", "c"])
    rows = np.arange(1, 65)
    flops = [dense(int(n)).flops for n in rows]
    model.fit(np.column_stack([rows, flops]), kernel_at_64 / 64 * rows)
    gpu = {(n,): Sum(1e-6, {"X": 2e-6, "W": 1e-6, "relu": 2e-6}, 4e-6 * n / 8) for n in SIZES}
    return OpenCosts(1e-6, model, {}, gpu, (1e-6, 1e-6))


@pytest.fixture(scope="module")
def lib(libraries):
    gpus = dict(zip([(n,) for n in SIZES], libraries["gpu"], strict=True))
    names = [p.name for p in libraries["gpu"][0].signature.outputs]
    assert names == ["relu"]
    return OpenEither(libraries["cpu"], gpus, costs())


def arrays(n, seed=0):
    rng = np.random.default_rng([n, seed])
    return rng.standard_normal((n, 7), np.float32), rng.standard_normal((7, 5), np.float32)


def check(lib, n):
    x, w = arrays(n)
    wanted = np.maximum(x @ w, 0)
    np.testing.assert_allclose(lib(x, w), wanted, rtol=1e-4, atol=1e-5)
    out = np.empty((n, 5), np.float32)
    assert lib(W=w, X=x, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 5, 8, 9, 31, 32, 33, 64])
def test_every_size_is_computed_as_by_numpy(lib, n):
    check(lib, n)


def test_the_choice_follows_the_sizes_of_the_call(lib):
    devices = [lib.explain(*arrays(n)).device for n in (1, 5, 8, 9, 20, 32, 33, 64)]
    # 8 rows: 9 µs against 10; 9 of 32: 10 against 21; 32: 33 against 22; 33 fit no library.
    assert devices == ["cpu"] * 5 + ["gpu"] + ["cpu"] * 2
    choice = lib.explain(*arrays(30))
    assert choice.device == "gpu"
    assert choice.note == "the GPU's library is that of n=32"
    assert choice.sums["gpu"].transfers["X"] == pytest.approx(1e-6 + 30 / 32 * 1e-6)
    assert choice.sums["cpu"].kernel == pytest.approx(30e-6, rel=0.1)
    assert "no library for n=33" in str(lib.explain(*arrays(33)))


def test_what_is_bound_is_moved_no_more(lib):
    x, w = arrays(31)
    bound = lib.bind(W=w)
    choice = bound.explain(x)
    assert list(choice.sums["gpu"].transfers) == ["X", "relu"]
    np.testing.assert_allclose(bound(x), np.maximum(x @ w, 0), rtol=1e-4, atol=1e-5)


def test_a_decision_that_was_made_is_looked_up(lib, monkeypatch):
    given = arrays(31)
    lib(*given)
    monkeypatch.setattr(OpenEither, "_decided", lambda *_: pytest.fail("decided again"))
    lib(*arrays(31, seed=1))


def test_costs_are_measured_by_default_and_learned(libraries):
    lib = lw.either(**libraries)
    assert lib.costs.kernel is not None
    assert set(lib.costs.gpu) == {(8,), (32,)}
    assert len(lib.costs.known) > 8
    sums = lib.explain(*arrays(7)).sums
    assert all(s.kernel > 0 for s in sums.values())
    for n in (1, 8, 20, 64):
        check(lib, n)


def test_only_rows_that_are_computed_apart_are_left_out():
    n = lw.dim("n", 2, 64)
    X, Y, k = lw.tensor("X", (n, 6)), lw.tensor("Y", (n, 6)), lw.tensor("k", (n,), "int32")
    assert rows_apart(dense())
    assert rows_apart(lw.workload(lw.ops.softmax(X)))
    assert rows_apart(lw.workload(lw.einsum("ij,ij->i", X, Y)))
    assert not rows_apart(column())
    assert not rows_apart(lw.workload(lw.ops.softmax(X, axis=0)))
    assert not rows_apart(lw.workload(lw.einsum("ij,kj->ik", X, Y)))
    assert not rows_apart(lw.workload(lw.einsum("ij->ji", X)))
    assert not rows_apart(lw.workload(lw.einsum("i->i", k)))


def test_a_library_that_may_mix_rows_serves_its_own_size_alone(lib):
    mixing = [copy.copy(gpu) for gpu in lib.gpus.values()]
    for gpu in mixing:
        gpu.origin = replace(gpu.origin, extra={**gpu.origin.extra, "numerics": "fast"})
    other = OpenEither(lib.cpu, dict(zip(lib.gpus, mixing, strict=True)), lib.costs)
    assert set(other.explain(*arrays(31)).sums) == {"cpu"}
    assert set(other.explain(*arrays(32)).sums) == {"cpu", "gpu"}


def test_sums_over_rows_run_on_the_gpu_at_its_own_sizes_alone():
    whole = column()
    lib = lw.either(cpu=lw.build(whole, threads=1), gpu=lw.build(whole.at(n=8), target="opencl"))
    assert set(lib.explain(np.ones((8, 6), np.float32)).sums) == {"cpu", "gpu"}
    assert str(lib.explain(np.ones((7, 6), np.float32))) == "the GPU has no library for n=7"
    for n in (1, 7, 8, 9):
        x = np.random.default_rng(n).random((n, 6), np.float32)
        np.testing.assert_allclose(lib(x), x.sum(axis=0), rtol=1e-5)


class OnGpu:
    """An array that says that it lies on an NVIDIA GPU."""

    def __init__(self, *shape):
        self.shape = shape

    def __dlpack_device__(self):
        return (2, 0)


def test_an_array_on_the_gpu_needs_a_library_of_its_size(lib):
    _, w = arrays(8)
    choice = lib.explain(OnGpu(8, 7), w)
    assert list(choice.sums["gpu"].transfers) == ["W"]
    with pytest.raises(ShapeError, match="no library for n=7: it has those of n=8; n=32"):
        lib.explain(OnGpu(7, 7), w)


def test_an_exported_file_has_all_libraries_inside(lib, tmp_path, monkeypatch):
    monkeypatch.setattr(open_either, "_DRAWN", 1)
    path = lib.export(tmp_path / "both.so")
    again = lw.either(cpu=lw.load(path))
    assert list(again.gpus) == [(8,), (32,)]
    assert set(again.explain(*arrays(3)).sums) == {"cpu", "gpu"}
    for n in (3, 8, 32, 50):
        check(again, n)


def test_libraries_that_are_bound_to_other_values_are_refused(libraries):
    _, w = arrays(8)
    gpus = [gpu.bind(W=w) for gpu in libraries["gpu"]]
    with pytest.raises(ShapeError, match="bind the same values of both"):
        lw.either(cpu=libraries["cpu"].bind(W=-w), gpu=gpus)


def test_libraries_that_do_not_belong_together_are_refused(libraries):
    with pytest.raises(ShapeError, match="axis 1 of W has extent 5, got 4"):
        lw.either(cpu=libraries["cpu"], gpu=lw.build(dense(8, width=4), target="opencl"))
    _, w = arrays(8)
    with pytest.raises(ShapeError, match="bind the same inputs"):
        lw.either(cpu=libraries["cpu"].bind(W=w), gpu=libraries["gpu"])
    with pytest.raises(TargetError, match="gpu a library for llvm"):
        lw.either(cpu=libraries["cpu"], gpu=lw.build(dense(8)))
    with pytest.raises(TargetError, match="gpu nothing"):
        lw.either(cpu=libraries["cpu"], gpu=[])
    with pytest.raises(ShapeError, match="2 libraries of the GPU"):
        lw.either(cpu=lw.build(dense(8)), gpu=libraries["gpu"])
    with pytest.raises(LibraryError, match="sums are for fixed sizes"):
        lw.either(**libraries, sums={})
