"""Constants that are not bound, and libraries that are copied or pickled."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.library.library import Library
from loopwright.codegen.load import load
from loopwright.dsl.errors import LibraryError
from tests import interpreter
from tests.codegen import kernels
from tests.codegen.kernels import matrices


@pytest.fixture
def packed():
    return kernels.matmul(packed=True)


@pytest.fixture
def prepared(monkeypatch):
    """Names of the functions that libraries have run."""
    names = []
    run = Library._run

    def counted(self, name, pointers):
        names.append(name)
        run(self, name, pointers)

    monkeypatch.setattr(Library, "_run", counted)
    return names


def test_constants_that_stay_the_same_are_laid_out_once(packed, prepared):
    A, W = matrices()
    for weights in (W, W, W.copy(), np.asfortranarray(W)):
        np.testing.assert_allclose(packed(A, weights), A @ W, rtol=1e-5, atol=1e-5)
    assert prepared.count("prepare") == 1


@pytest.mark.parametrize("at", [(0, 0), (5, 7), (-1, -1)])
def test_one_element_written_to_a_constant_is_seen(packed, prepared, at):
    A, W = matrices()
    packed(A, W)
    W[at] += 1
    np.testing.assert_allclose(packed(A, W), A @ W, rtol=1e-5, atol=1e-5)
    assert prepared.count("prepare") == 2


def test_what_is_laid_out_does_not_depend_on_the_array_that_was_given(packed, prepared):
    A, W = matrices()
    expected = packed(A, W)
    same = W.copy()
    W[...] = np.nan
    assert np.array_equal(packed(A, same), expected)
    assert prepared.count("prepare") == 1


def test_repr_marks_constants_until_they_are_bound(packed):
    _, W = matrices()
    assert "constants to bind: W" in repr(packed)
    assert "constants to bind" not in repr(packed.bind(W=W))
    assert "constants to bind" not in repr(kernels.matmul())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_compute_the_same(packed, copied):
    A, W = matrices()
    expected = packed(A, W)
    assert np.array_equal(copied(packed)(A, W), expected)
    assert np.array_equal(copied(packed.bind(W=W))(A), expected)


def called(lib, *inputs):
    return lib(*inputs), repr(lib), lib.threads


def test_libraries_go_to_other_processes(packed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(interpreter.HIDDEN)  # which another process begins with
    A, W = matrices()
    expected = packed(A, W)
    loaded = load(packed.export(tmp_path / "mm.so"))
    cases = [(packed, A, W), (packed.bind(W=W), A), (loaded, A, W)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for lib, *inputs in cases:
            result, text, threads = pool.submit(called, lib, *inputs).result()
            assert np.array_equal(result, expected)
            assert (text, threads) == (repr(lib), lib.threads)


def test_a_pickle_is_pickled_again_without_any_file(packed, tmp_path):
    A, W = matrices()
    path = packed.export(tmp_path / "mm.so")
    again = pickle.loads(pickle.dumps(load(path)))
    path.unlink()
    twice = pickle.loads(pickle.dumps(again))
    assert np.array_equal(twice(A, W), packed(A, W))


@pytest.mark.parametrize("change", ["gone", "another"])
def test_a_library_whose_file_has_changed_is_not_pickled(packed, tmp_path, change):
    path = packed.export(tmp_path / "mm.so")
    loaded = load(path)
    path.unlink()
    if change == "another":
        path.write_bytes(b"another")
    with pytest.raises(LibraryError, match=r"mm\.so"):
        pickle.dumps(loaded)


@pytest.mark.aarch64
def test_a_library_for_another_processor_is_pickled():
    far = kernels.matmul(triple=kernels.AARCH64)
    near = pickle.loads(pickle.dumps(far))
    assert near.signature == far.signature
    assert near.origin.read()[:4] == b"\x7fELF"


@pytest.mark.opencl
def test_programs_for_gpus_are_pickled_unless_arrays_lie_on_the_gpu():
    A, B = lw.tensor("A", (16, 16)), lw.tensor("B", (16, 16))
    lib = lw.build(lw.ops.matmul(A, B), target="opencl")
    X = np.random.default_rng(0).random((16, 16), np.float32)
    for copied in (pickle.loads(pickle.dumps(lib)), copy.deepcopy(lib)):
        assert np.array_equal(copied(X, X), lib(X, X))
    with pytest.raises(LibraryError, match="holds arrays on a GPU"):
        pickle.dumps(lib.bind(A=X))
