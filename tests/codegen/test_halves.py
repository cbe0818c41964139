"""Sums of float16 and bfloat16 go through float32 and are rounded once."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.dtypes import epsilon, numpy_dtype
from loopwright.dsl.oracle import evaluate

pytestmark = [pytest.mark.optimized, pytest.mark.sampled(0.34)]

HALVES = ["float16", "bfloat16"]
ops = lw.ops
i, j, k = lw.indices("i j k")


def drawn(seed, shape, dtype, scale=1.0):
    x = np.random.default_rng(seed).standard_normal(shape) * scale
    return x.astype(numpy_dtype(dtype))


def built(make, *given):
    """The operator of these arrays, and the same of them in float64."""

    def tensors(dtype):
        return [lw.tensor(f"x{n}", x.shape, dtype) for n, x in enumerate(given)]

    dtype = given[0].dtype.name
    found = lw.build(make(*tensors(dtype)), threads=1)(*given)
    assert found.dtype == given[0].dtype
    exact = lw.workload(make(*tensors("float64")))
    (expected,) = evaluate(exact, [x.astype("float64") for x in given])
    return found.astype("float64"), expected


def assert_rounded_once(make, *given):
    found, expected = built(make, *given)
    half = 0.51 * epsilon(given[0].dtype.name)  # and a little of float32's own errors
    size = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=half, atol=1e-5 * size)


def by_hand(a, b):
    c = lw.tensor("C")
    c[i, j] += a[i, k] * b[k, j]
    return c


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("make", [by_hand, ops.matmul, lambda a, b: lw.einsum("ij,jk->ik", a, b)])
def test_products_of_4096_terms(make, dtype):
    assert_rounded_once(make, drawn(0, (9, 4096), dtype), drawn(1, (4096, 17), dtype))


OPERATORS = {
    "dense with bias": (ops.dense, (5, 700), (9, 700), (9,)),
    "convolution with bias": (
        lambda x, w, b: ops.conv2d(x, w, padding=1, bias=b),
        (1, 40, 7, 9),
        (20, 40, 3, 3),
        (20,),
    ),
    "depthwise": (ops.depthwise_conv2d, (1, 20, 9, 9), (20, 1, 3, 3)),
    "transposed": (
        lambda x, w: ops.conv2d_transpose(x, w, stride=2),
        (1, 17, 5, 5),
        (17, 9, 3, 3),
    ),
    "softmax": (ops.softmax, (7, 3000)),
    "log softmax": (ops.log_softmax, (7, 3000)),
    "layer norm": (ops.layer_norm, (7, 300), (300,), (300,)),
    "average pool": (lambda x: ops.avg_pool2d(x, 3, 1, 1, count_include_pad=False), (1, 9, 7, 7)),
    "global average": (ops.global_avg_pool2d, (1, 9, 100, 100)),
    "row sums": (lambda x: lw.einsum("ij->i", x), (9, 4096)),
    "all": (lambda x: lw.einsum("ij->", x), (9, 4096)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_sum_in_float32(name, dtype):
    make, *shapes = OPERATORS[name]
    assert_rounded_once(make, *(drawn(seed, shape, dtype) for seed, shape in enumerate(shapes)))


def test_what_lies_between_may_exceed_float16():
    x = drawn(0, (5, 64), "float16", 300.0)  # squares are about 90000
    assert_rounded_once(ops.layer_norm, x)
    assert_rounded_once(ops.global_avg_pool2d, np.full((1, 2, 64, 64), 60, "float16"))
    q, key, v = (drawn(seed, (3, 40), "float16", 60.0) for seed in range(3))
    found, expected = built(ops.attention, q, key, v)  # scores before they are scaled
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=0.5)


def test_a_product_of_halves_overflows_where_its_result_does():
    x = np.full((2, 4096), 60, "float16")
    total = lw.tensor("total")
    total[i] += lw.tensor("x", x.shape, "float16")[i, j]
    assert np.all(np.isinf(lw.build(total)(x)))


def test_an_explicit_cast_within_a_sum_rounds():
    x, total = lw.tensor("x", (1, 64), "float32"), lw.tensor("total")
    total[i] += lw.cast(x[i, j], "float16") * lw.cast(x[i, j], "float16")
    given = np.full((1, 64), 1 + 2**-12, "float32")
    assert lw.build(total)(given)[0] == 64  # each is 1 in float16
