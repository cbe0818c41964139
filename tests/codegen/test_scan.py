"""Running results of long rows: one loop, beside NumPy's and beside the oracle."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.target import resolve
from loopwright.dsl.index import Index
from loopwright.dsl.oracle import evaluate
from loopwright.schedule.cpu.lower_hand import hand_sketch
from loopwright.schedule.space import space
from loopwright.schedule.target import Gpu, Target
from tests.dsl.ops.test_scan import scanned
from tests.targets import HERE

CUDA = Target("cuda", gpu=Gpu("sm_90"))
SIZES = (1, 2, 3, 31, 64, 65, 66, 128, 499, 600)
N = lw.dim("n", 1, 600)
FUNCTIONS = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
}


@pytest.mark.parametrize(
    ("name", "shape", "axis", "how"),
    [
        ("cumsum", (5, N), 1, {}),
        ("cumsum", (N,), 0, {"exclusive": True}),
        ("cumprod", (2, N, 21), 1, {"reverse": True, "exclusive": True}),
        ("cummax", (7, N), 1, {"reverse": True}),
    ],
)
def test_rows_of_open_size_are_scanned(name, shape, axis, how):
    x = lw.tensor("X", shape)
    library = lw.build(lw.workload(getattr(lw.ops, name)(x, axis, **how)), threads=2)
    rng = np.random.default_rng(0)
    for size in SIZES:
        extents = [size if e is N else e for e in shape]
        a = rng.uniform(0.98, 1.02, extents).astype(np.float32)
        wanted = scanned(FUNCTIONS[name], a, axis, **how)
        np.testing.assert_allclose(library(a), wanted, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_rows_of_open_size_keep_their_type(dtype):
    x = lw.tensor("X", (4, N), dtype)
    library = lw.build(lw.workload(lw.ops.cumsum(x, -1)))
    for size in (2, 300):
        a = np.random.default_rng(0).integers(0, 3, (4, size)).astype(dtype)
        np.testing.assert_array_equal(library(a), np.cumsum(a, -1, dtype=dtype))


def prefixes(n, test):
    """Twice the sums of terms of which a test of both places holds, and what each is made of."""
    x, scale = lw.tensor("X", (6, n)), lw.tensor("S", (n,))
    y, z = lw.tensor("Y", (6, n)), lw.tensor("Z", (6, n))
    i, j, k = Index("i", 6), Index("j", n), Index("k", n)
    y[i, j] = lw.sum(lw.where(test(k, j), x[i, k] * scale[k], 0))
    z[i, j] = 2 * y[i, j] + scale[j]
    return lw.workload(z)


@pytest.mark.parametrize(
    "test",
    [lambda k, j: k <= j, lambda k, j: j > k, lambda k, j: k >= j, lambda k, j: j - k < 0],
)
def test_a_long_sum_up_to_each_element_is_one_loop(test):
    workload = prefixes(131, test)
    (nest,) = space(workload, resolve("cpu", 1)).sketches[0].nests
    assert nest.scan is not None
    rng = np.random.default_rng(0)
    x, scale = (rng.standard_normal(t.shape).astype(np.float32) for t in workload.inputs)
    j, k = np.ix_(range(131), range(131))
    wanted = 2 * np.where(test(k, j), (x * scale)[:, None], 0).sum(-1) + scale
    np.testing.assert_allclose(evaluate(workload, [x, scale])[0], wanted, rtol=1e-4, atol=1e-4)
    library = lw.build(workload, codegen="builtin")
    np.testing.assert_allclose(library(x, scale), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "test", [lambda k, j: k <= j + 1, lambda k, j: k < 2 * j, lambda k, j: lw.equal(k, j)]
)
def test_other_sums_of_some_terms_are_no_running_results(test):
    (nest, *_) = space(prefixes(131, test), resolve("cpu", 1)).sketches[0].nests
    assert nest.scan is None


def test_what_comes_later_has_no_effect_on_a_row_of_open_size():
    library = lw.build(lw.workload(lw.ops.cumsum(lw.tensor("X", (1, N)))))
    a = np.ones((1, 100), np.float32)
    a[:, 40:] = np.nan
    result = library(a)
    np.testing.assert_array_equal(result[:, :40], np.arange(1, 41)[None])
    assert np.isnan(result[:, 40:]).all()


def test_rows_are_one_loop_on_processors_and_blocks_on_gpus_and_by_hand():
    workload = lw.workload(lw.ops.cumsum(lw.tensor("X", (6, 131)), -1))
    (sketch, *_) = space(workload, HERE).sketches
    assert [nest.scan is not None for nest in sketch.nests] == [True]
    (on_gpu, *_) = space(workload, CUDA).sketches
    for sketch in (on_gpu, hand_sketch(workload, "")):
        reduced = [k.extent for group in sketch.groups for n in group.nests for k in n.reduce]
        assert reduced
        assert max(reduced) <= 64


def test_what_is_cheap_is_computed_within_the_loop():
    x, mask, y = lw.tensor("X", (6, 131)), lw.tensor("M", (6, 131), "bool"), lw.tensor("Y")
    i, j = lw.indices("i j")
    y[i, j] = lw.where(mask[i, j], 2 * x[i, j], 1.0)
    workload = lw.workload(lw.ops.cumsum(y, -1))
    (sketch, *_) = space(workload, HERE).sketches
    assert len(sketch.nests) == 1
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((6, 131)).astype(np.float32), rng.random((6, 131)) < 0.5
    wanted = np.cumsum(np.where(b, 2 * a, 1), 1)
    np.testing.assert_allclose(lw.build(workload)(b, a), wanted, rtol=1e-4, atol=1e-4)
