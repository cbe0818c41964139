"""Matrix products in halved blocks equal the oracle."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.rewrites.bilinear.strassen import ALGORITHM
from loopwright.schedule.target import Target
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import T
from tests.sketches import default_configs, derived, random_configs
from tests.targets import HERE
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)


def halved(workload, target=HERE):
    return derived(lw.space(workload, target, numerics="fast").sketches, "strassen")


def parameters(sketch):
    return dict(sketch.derivation.steps[0].parameters)


def test_seven_products_of_blocks_are_the_product_of_the_matrices_exactly():
    rng = np.random.default_rng(0)
    x, y = ([[Fraction(int(v)) for v in row] for row in rng.integers(-9, 9, (2, 2))] for _ in "xy")

    def sums(matrix, values):
        flat = list(itertools.chain(*values))
        return [sum(f * v for f, v in zip(row, flat, strict=True)) for row in matrix]

    products = [
        a * b for a, b in zip(sums(ALGORITHM.data, x), sums(ALGORITHM.inner, y), strict=True)
    ]
    found = [sum(f * p for f, p in zip(row, products, strict=True)) for row in ALGORITHM.outer]
    assert len(products) == 7
    assert found == [sum(x[i][k] * y[k][j] for k in (0, 1)) for i in (0, 1) for j in (0, 1)]


def pointwise(size, channels, filters, dtype="float32"):
    x = T("x", 1, size, size, channels, dtype=dtype)
    w = T("w", 1, 1, channels, filters, constant=True, dtype=dtype)
    return ops.conv2d(x, w, layout="NHWC")


def with_bias_relu_and_residual():
    y = ops.add(pointwise(8, 320, 384), T("b", 384, constant=True))
    return ops.relu(ops.add(y, T("r", 1, 8, 8, 384)))


def products(m, n, k, transposed=False, constant=True):
    shape = (n, k) if transposed else (k, n)
    i, j, q = lw.indices("i j q")
    x, y, out = T("x", m, k), T("y", *shape, constant=constant), lw.tensor("out")
    out[i, j] += x[i, q] * (y[j, q] if transposed else y[q, j])
    return out


def batched(name="b"):
    b, i, j, q = lw.indices(f"{name} i j q")
    x, y, out = T("x", 3, 56, 320), T("y", 3, 320, 320, constant=True), lw.tensor("out")
    out[b, i, j] += x[b, i, q] * y[b, q, j]
    return out


def rows_of_two_axes():
    h, i, j, q = lw.indices("h i j q")
    x, y, out = T("x", 5, 12, 320), T("y", 320, 320, constant=True), lw.tensor("out")
    out[i, h, j] += x[h, i, q] * y[q, j]
    return out


def depth_of_two_axes():
    i, j, p, q = lw.indices("i j p q")
    x, y, out = T("x", 56, 3, 320), T("y", 3, 320, 320, constant=True), lw.tensor("out")
    out[i, j] += x[i, p, q] * y[p, q, j]
    return out


def columns_of_two_axes():
    i, j, h, q = lw.indices("i j h q")
    x, y, out = T("x", 56, 320), T("y", 320, 3, 320, constant=True), lw.tensor("out")
    out[h, i, j] += x[i, q] * y[q, h, j]
    return out


def cast_afterwards():
    i, j, q = lw.indices("i j q")
    x, y, b = T("x", 56, 320), T("y", 320, 320, constant=True), T("b", 320)
    made, out = lw.tensor("made"), lw.tensor("out")
    made[i, j] += x[i, q] * y[q, j]
    out[i, j] = lw.cast(made[i, j] + b[j], "float64") - lw.cast(i, "float64")
    return out


def weights_that_are_computed():
    i, j, q = lw.indices("i j q")
    x, y, w, out = (
        T("x", 56, 320),
        T("y", 320, 320, constant=True),
        *map(lw.tensor, "wo"),
    )
    w[q, j] = lw.exp(y[q, j]) - y[j, q]
    out[i, j] += x[i, q] * w[q, j]
    return out


def two_of_unequal_size():
    i, j, q, h = lw.indices("i j q h")
    x, y, w = T("x", 102, 320), T("y", 56, 320), T("w", 320, 320, constant=True)
    one, other = lw.tensor("one"), lw.tensor("other")
    one[i, j] += x[i, q] * w[q, j]
    other[h, j] += y[h, q] * w[q, j]
    return one, other


def after_a_product():
    """What is halved is made by another product, which is halved too."""
    q, k, i, j = lw.indices("q k i j")
    x, made, out = T("x", 56, 320), lw.tensor("made"), lw.tensor("out")
    y, z = (T(name, 320, 320, constant=True) for name in "yz")
    made[i, k] += x[i, q] * y[q, k]
    out[i, j] += lw.relu(made[i, k]) * z[k, j]
    return out


def behind_a_window():
    x, taps = T("x", 1, 8, 8, 320), T("taps", 3, 3, 1, 320, constant=True)
    y = ops.relu(ops.depthwise_conv2d(x, taps, padding=1, layout="NHWC"))
    return ops.conv2d(y, T("w", 1, 1, 320, 384, constant=True), layout="NHWC")


CASES = {
    "behind a window": behind_a_window,
    "channels last": lambda: pointwise(9, 320, 320),
    "rows that do not halve": lambda: pointwise(7, 320, 320),
    "64 bits": lambda: pointwise(8, 320, 320, "float64"),
    "bias, ReLU and residual": with_bias_relu_and_residual,
    "a product": lambda: products(64, 320, 512),
    "an odd number of rows": lambda: products(53, 320, 512),
    "the other operand by columns": lambda: products(64, 320, 512, transposed=True),
    "several products": batched,
    "an axis called as the rewrite might call its own": lambda: batched("product"),
    "two axes of rows": rows_of_two_axes,
    "two axes of terms": depth_of_two_axes,
    "two axes of columns": columns_of_two_axes,
    "one after the other": after_a_product,
    "a result of another type": cast_afterwards,
    "weights that are computed": weights_that_are_computed,
    "two products of unequal size": two_of_unequal_size,
}


@pytest.mark.parametrize("name", thinned(CASES, keep=3))
def test_halved_products_equal_the_oracle(name):
    made = CASES[name]()
    workload = lw.workload(*made) if isinstance(made, tuple) else lw.workload(made)
    sketches = halved(workload)
    assert sketches
    configs = [*default_configs(sketches), *random_configs(sketches, 2)]
    assert_configs_equal_oracle(workload, configs)


def test_eight_products_become_seven_and_sixty_four_forty_nine():
    workload = lw.workload(products(128, 320, 512))
    counted = {}
    for sketch in halved(workload):
        (product,) = (n.nest for n in sketch.nests if n.nest.reducer == "sum")
        given = parameters(sketch)
        tiles = 128 // 2 ** given["levels"]
        counted[given["levels"]] = product.steps // given["rows"] * tiles / (128 * 320 * 512)
    assert counted == {1: 7 / 8, 2: 49 / 64}


def test_a_window_before_the_product_needs_no_padding():
    workload = lw.workload(behind_a_window())
    copies = {t.name for t in workload.stages if "pad" in t.name}
    assert copies
    for sketch in halved(workload):
        assert not copies & {nest.nest.out.name for nest in sketch.nests}


def test_what_cannot_gain_is_left_as_it_is():
    x, window = T("x", 1, 8, 8, 320), T("w", 3, 3, 320, 320, constant=True)
    for made in (
        products(64, 96, 512),  # few columns
        products(64, 512, 128),  # short sums
        products(1, 512, 512),  # one row
        products(64, 513, 512),  # odd columns
        products(64, 512, 512, constant=False),  # both operands to be summed up in every call
        products(32, 512, 512),  # weights that are hardly used again
        lw.einsum("kib,bkj->bij", T("x", 512, 64, 3), T("w", 3, 512, 512, constant=True)),
        lw.einsum("i,i->i", T("x", 1), T("w", 1, constant=True)),  # no sum at all
        ops.conv2d(x, window, layout="NHWC"),
    ):
        assert halved(lw.workload(made)) == []


def test_errors_grow_with_every_halving_and_who_wants_exact_sums_gets_them():
    workload = lw.workload(products(128, 320, 512))
    growth = {parameters(s)["levels"]: s.error_growth for s in halved(workload)}
    assert 1 < growth[1] < 3 < growth[2] < 8
    standard = lw.space(workload, HERE)
    assert not any("strassen" in s.derivation.names for s in standard.sketches)


def test_blocks_of_rows_leave_no_thread_idle_and_fit_its_cache():
    workload = lw.workload(products(196, 512, 512))

    def rows(threads, l2_bytes):
        target = Target(threads=threads, l2_bytes=l2_bytes, vector_bytes=64)
        found = map(parameters, halved(workload, target))
        return {given["rows"] for given in found if given["levels"] == 1}

    assert rows(2, 1 << 20) == {7, 49}  # of 98; 7 KB + 7 KB each
    assert rows(1, 16 << 20) == {7, 14, 49, 98}
    assert rows(8, 16 << 20) == {13}
    assert rows(2, 1 << 17) == {7}  # 27 have room, three times; 20 to 27 leave 51 for a thread
