"""`lw.tune` with several targets."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.costmodel.model import ModelError
from loopwright.dsl.errors import TargetError
from loopwright.explore.budget import TuningError


def product():
    A, B = lw.tensor("A", (24, 16)), lw.tensor("B", (16, 24))
    return lw.workload(lw.einsum("ij,jk->ik", A, B))


@pytest.mark.opencl
def test_a_search_on_two_targets_gives_one_callable():
    tuned = lw.tune(product(), targets=["opencl", "cpu"], trials=0, records=None, transfer=None)
    assert list(tuned.parts) == ["cpu", "opencl"]
    a, b = np.random.default_rng(0).random((24, 16), np.float32), np.ones((16, 24), np.float32)
    np.testing.assert_allclose(tuned.library(a, b), a @ b, rtol=1e-5)
    assert set(tuned.library.explain(a, b).sums) == {"cpu", "gpu"}
    assert str(tuned).startswith("cpu: ")


@pytest.mark.parametrize("targets", [["cpu"], ["cpu", "cpu"], ["opencl", "cuda"], ["cpu", "tpu"]])
def test_targets_are_the_processor_and_one_gpu(targets):
    with pytest.raises(TuningError, match=r'give \["cpu", "cuda"\] or \["cpu", "opencl"\]'):
        lw.tune(product(), targets=targets)


@pytest.mark.opencl
def test_of_open_sizes_the_gpu_has_a_library_for_each_that_is_given():
    X = lw.tensor("X", (lw.dim("n", 1, 64), 16))
    total = lw.workload(lw.einsum("ij->i", X))
    options = {"trials": 0, "records": None, "transfer": None, "threads": 1}
    sizes = [{"n": 4}, {"n": 32}, {"n": 4}]
    tuned = lw.tune(total, targets=["cpu", "opencl"], sizes=sizes, **options)
    assert list(tuned.parts) == ["cpu", "opencl n=4", "opencl n=32"]
    for n in (3, 32, 33):
        x = np.random.default_rng(n).random((n, 16), np.float32)
        np.testing.assert_allclose(tuned.library(x), x.sum(axis=1), rtol=1e-5)
    assert set(tuned.library.explain(np.ones((3, 16), np.float32)).sums) == {"cpu", "gpu"}


def test_targets_exclude_a_target():
    with pytest.raises(TuningError, match="leave those out"):
        lw.tune(product(), "opencl", targets=["cpu", "opencl"])


def test_targets_take_minutes_that_can_be():
    with pytest.raises(TuningError, match="minutes = '1': give a positive number"):
        lw.tune(product(), targets=["cpu", "opencl"], minutes="1")


@pytest.mark.opencl
@pytest.mark.parametrize("options", [{"model": "policy"}, {"strategy": "sampled"}])
def test_what_the_gpus_search_refuses_is_said_before_the_processors(options, monkeypatch):
    monkeypatch.setattr("loopwright.measure.opening.open_device", None)
    with pytest.raises(ModelError, match="no sequence model is shipped for target opencl"):
        lw.tune(product(), targets=["cpu", "opencl"], **options)


def test_a_gpu_that_is_missing_is_said_before_the_processors_search(monkeypatch):
    monkeypatch.setattr("loopwright.measure.opening.open_device", None)
    monkeypatch.setattr("loopwright.codegen.target.resolve", missing)
    with pytest.raises(TargetError, match="no such GPU"):
        lw.tune(product(), targets=["cpu", "cuda"])


def missing(target):
    raise TargetError("no such GPU")
