"""NaN comes through maxima and minima from either side, as in NumPy."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.oracle import evaluate

pytestmark = [pytest.mark.optimized, pytest.mark.sampled(0.34)]

NAN, INF = np.nan, np.inf
ONE = np.array([NAN, 1, NAN, 0, -1, INF, -INF, 2, NAN] * 5)
OTHER = np.array([1, NAN, NAN, 0, NAN, NAN, NAN, 3, -INF] * 5)
TARGETS = ["cpu", "c", pytest.param("opencl", marks=pytest.mark.opencl)]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
i, j = lw.indices("i j")


def assert_equal_to_numpy(out, *given, target="cpu"):
    """With the default config and, on processors, with that of every sketch."""
    work = lw.workload(out)
    (expected,) = evaluate(work, given)
    space = lw.space(work, target, threads=1)
    for sketch in space.sketches if target == "cpu" else space.sketches[:3]:
        found = lw.build(work, sketch.at(sketch.default), target, threads=1)(*given)
        np.testing.assert_array_equal(found.astype("float64"), expected.astype("float64"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", [lw.max, lw.min])
def test_the_greater_and_the_lesser_of_two_keep_nan_of_either(op, dtype, target):
    one, other = (x.astype(numpy_dtype(dtype)) for x in (ONE, OTHER))
    A, B = lw.tensor("A", one.shape, dtype), lw.tensor("B", one.shape, dtype)
    # Sums on either side too, which are worked out and not read.
    sides = [(A[i], B[i]), (B[i], A[i]), (A[i] + 1, B[i] + A[i]), (A[i], 0.5), (0.5, A[i])]
    for x, y in sides:
        out = lw.tensor("out")
        out[i] = op(x, y)
        work = lw.workload(out)
        given = [{"A": one, "B": other}[t.name] for t in work.inputs]
        found = lw.build(work, target=target, threads=1)(*given)
        np.testing.assert_array_equal(
            found.astype("float64"), evaluate(work, given)[0].astype("float64")
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_is_a_number_of_the_notation(dtype, target):
    X, out = lw.tensor("X", (5, 9), dtype), lw.tensor("out")
    out[i, j] = lw.where(X[i, j] > 0, X[i, j], NAN)
    given = ONE.reshape(5, 9).astype(numpy_dtype(dtype))
    assert_equal_to_numpy(out, given, target=target)
    assert_equal_to_numpy(lw.pad(X, [(1, 0), (0, 2)], NAN), given, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_relu_and_clip_keep_nan(target):
    given = ONE.astype("float32")
    X = lw.tensor("X", given.shape)
    for out in (lw.ops.relu(X), lw.ops.clip(X, -0.5, 1.5), lw.ops.maximum(0.0, X)):
        assert_equal_to_numpy(out, given, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", [lw.max, lw.min])
@pytest.mark.parametrize("columns", [3, pytest.param(33, marks=pytest.mark.slow), 200])
def test_reductions_keep_nan_wherever_it_stands(op, columns, target):
    rng = np.random.default_rng(columns)
    given = rng.standard_normal((9, columns)).astype("float32")
    for row in range(1, 6):
        given[row, rng.integers(columns, size=row)] = NAN
    given[6], given[7], given[8] = INF, -INF, NAN
    X, rows, across = lw.tensor("X", given.shape), lw.tensor("rows"), lw.tensor("across")
    rows[i] = op(X[i, j])
    across[j] = op(X[i, j])
    assert_equal_to_numpy(rows, given, target=target)
    assert_equal_to_numpy(across, given, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_max_pooling_keeps_nan_and_minus_infinity(target):
    given = np.random.default_rng(0).standard_normal((1, 20, 13, 11)).astype("float32")
    given[0, 1], given[0, 2, 4, 5], given[0, 3, 0, 0], given[0, 4, 12, 10] = -INF, NAN, NAN, NAN
    X = lw.tensor("X", given.shape)
    for options in ((3, 2, 1), (2,), (3, 1, 1)):
        assert_equal_to_numpy(lw.ops.max_pool2d(X, *options), given, target=target)


def test_relu_is_one_instruction_a_vector():
    X = lw.tensor("X", (64, 1024))
    target = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "znver3"}
    code = lw.build(lw.ops.relu(X), target=target, threads=1).source("asm")
    assert "vmaxps" in code
    assert "vcmp" not in code
