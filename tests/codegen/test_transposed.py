"""Vectors that are neighbours in memory, lane by lane, are stored as one: right for every size."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.index import Index
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.targets import ALONE, HERE
from tests.thin import several, thinned

pytestmark = pytest.mark.sampled(0.34)

WIDE = {"kind": "llvm", "mcpu": "skylake-avx512"}
FENCE = "llvm.arithmetic.fence"


def turned_product(columns, dtype="float32", epilogue=lambda value, o, x: value):
    """Y[o, x] = Σ A[x, k] W[k, o]: vectors along o, which the result has as its rows."""
    o, x, k = lw.indices("o x k")
    a = lw.tensor("A", (columns, 24), dtype)
    w = lw.tensor("W", (24, 32), dtype, constant=True)
    product, out = lw.tensor("P"), lw.tensor("Y", (32, columns))
    product[o, x] += a[x, k] * w[k, o]
    out[o, x] = epilogue(product[o, x], o, x)
    return lw.workload(out)


def configs_of(workload, target=ALONE):
    space, rng = lw.space(workload, target), np.random.default_rng(0)
    return [space.default, *(space.sample(rng) for _ in range(several(6)))]


@pytest.mark.parametrize("columns", thinned([1, 2, 3, 5, 14, 31]))
def test_any_number_of_neighbours(columns):
    workload = turned_product(columns)
    assert_configs_equal_oracle(workload, configs_of(workload), ALONE)


@pytest.mark.parametrize("dtype", thinned(["float64", "float16", "int8", "int32"]))
def test_other_types(dtype):
    workload = turned_product(7, dtype)
    assert_configs_equal_oracle(workload, configs_of(workload), ALONE)


def test_a_bias_and_a_residual():
    b, r = lw.tensor("B", (32,)), lw.tensor("R", (32, 14))
    for epilogue in (
        lambda value, o, x: lw.exp(value * 0.01 + b[o]),
        lambda value, o, x: value + r[o, x],
    ):
        workload = turned_product(14, epilogue=epilogue)
        assert_configs_equal_oracle(workload, configs_of(workload), ALONE)


def test_whole_convolutions_on_two_threads():
    x, w = lw.tensor("X", (1, 5, 13, 17)), lw.tensor("W", (37, 5, 3, 3), constant=True)
    workload = lw.workload(ops.relu(ops.conv2d(x, w, padding=1)))
    assert_configs_equal_oracle(workload, configs_of(workload, HERE))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_vectors_are_transposed_where_the_result_lies_across_them(layout):
    first = layout == "NCHW"
    x = lw.tensor("X", (1, 16, 10, 10) if first else (1, 10, 10, 16))
    w = lw.tensor("W", (32, 16, 3, 3) if first else (3, 3, 16, 32), constant=True)
    space = lw.space(ops.conv2d(x, w, layout=layout), WIDE)
    sketch = next(s for s in space.sketches if not s.derivation)  # vectors are along the filters
    library = lw.build(space.workload, sketch.at(sketch.default), target=WIDE)
    assert (FENCE in library.source("tir")) == first


def test_elements_of_other_types_are_stored_one_by_one():
    i, j = Index("i", 16), Index("j", 8)
    a, out = lw.tensor("A", (8, 16), "int32"), lw.tensor("O", (16, 8))
    out[i, j] = a[j, i] + a[j, i]
    workload = lw.workload(out)
    library = lw.build(workload)
    assert FENCE not in library.source("tir")
    assert_configs_equal_oracle(workload, configs_of(workload), ALONE)
