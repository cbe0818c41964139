"""Products with weights of three bytes equal the oracle, as exactly as they say."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.schedule.sketch.naming import Derivation
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import T
from tests.sketches import default_configs, derived, of_each_program, random_configs
from tests.targets import HERE, narrow
from tests.thin import thinned

pytestmark = pytest.mark.sampled(0.34)

SMALLER = "int24_weights"


def products(m, n, k, transposed=False, constant=True, dtype="float32"):
    i, j, q = lw.indices("i j q")
    y = T("y", *((n, k) if transposed else (k, n)), constant=constant, dtype=dtype)
    x, out = T("x", m, k, dtype=dtype), lw.tensor("out")
    out[i, j] += x[i, q] * (y[j, q] if transposed else y[q, j])
    return out


def vector(n, k):
    j, q = lw.indices("j q")
    x, y, out = T("x", k), T("y", k, n, constant=True), lw.tensor("out")
    out[j] += y[q, j] * x[q]
    return out


def with_bias_and_relu():
    return ops.relu(ops.add(products(1, 1100, 2100), T("b", 1100, constant=True)))


def gates():
    """Sums of products that are read several times, as a cell of an LSTM reads them."""
    i, j = lw.indices("i j")
    made, out = products(1, 2600, 650), lw.tensor("c")
    out[i, j] = lw.sigmoid(made[i, j]) * lw.tanh(made[i, j])
    return out


def batched():
    b, j, q = lw.indices("scale j q")
    x, y, out = T("x", 3, 900), T("y", 3, 900, 1000, constant=True), lw.tensor("out")
    out[b, j] += x[b, q] * y[b, q, j]
    return out


def sums_over_two_axes():
    i, j, p, q = lw.indices("i j p q")
    x, y, out = T("x", 2, 3, 900), T("y", 3, 900, 1000, constant=True), lw.tensor("out")
    out[i, j] += x[i, p, q] * y[p, q, j]
    return out


def windows():
    x, w = T("x", 1, 150, 9, 9), T("w", 200, 150, 3, 3, constant=True)
    return ops.relu(ops.conv2d(x, w, padding=1))


CASES = {
    "one row": lambda: products(1, 1500, 1400),
    "no rows": lambda: vector(1500, 1401),
    "rows that use a weight again": lambda: products(40, 1300, 900),
    "windows": windows,
    "weights by rows": lambda: products(1, 1501, 1400, transposed=True),
    "bias and ReLU": with_bias_and_relu,
    "gates": gates,
    "a matrix for each row": batched,
    "two axes of sums": sums_over_two_axes,
}


PARTS_OF_OTHERS = {
    "strassen": lambda: products(100, 640, 512),
    "winograd": windows,
}


def smaller(workload, target=HERE):
    return derived(lw.space(workload, target, numerics="fast").sketches, SMALLER)


@pytest.mark.parametrize("name", thinned(CASES))
def test_products_with_weights_of_three_bytes_equal_the_oracle(name):
    workload = lw.workload(CASES[name]())
    sketches = smaller(workload)
    assert sketches
    configs = [sketches[0].at(sketches[0].default), *random_configs(sketches, 2)]
    assert_configs_equal_oracle(workload, configs)


@pytest.mark.parametrize("algorithm", PARTS_OF_OTHERS)
def test_the_weights_of_faster_algorithms_may_have_three_bytes_too(algorithm):
    workload = lw.workload(PARTS_OF_OTHERS[algorithm]())
    found = of_each_program(lw.space(workload, HERE, numerics="fast").sketches)
    both = derived(found.values(), algorithm, SMALLER)
    assert both
    for sketch in both:
        alone = Derivation(sketch.derivation.steps[:1])
        assert sketch.error_growth > found[str(alone)].error_growth
    assert_configs_equal_oracle(workload, default_configs(both))


def built(workload):
    sketch = smaller(workload)[0]
    return lw.build(workload, sketch.at(sketch.default), target=HERE)


def test_weights_are_three_bytes_and_a_scale_for_each_sum():
    workload = lw.workload(products(1, 1536, 1400))
    sketch = smaller(workload, narrow(2))[0]
    tile = sketch.knobs[-3].name
    whole = sketch.at(sketch.default).replace(sketch, **{tile: (48,)})  # tiles that divide 1536
    library = lw.build(workload, whole, target=narrow(2))
    assert sum(p.nbytes for p in library.signature.prepared) == 1536 * (1400 * 3 + 4)


def test_a_weight_is_off_by_no_more_than_rounding_the_largest_of_its_sum():
    rng, k, n = np.random.default_rng(0), 1400, 1500
    sizes = 2.0 ** rng.integers(-40, 40, (1, n))
    weights = (rng.standard_normal((k, n)) * sizes).astype("float32")
    library = built(lw.workload(products(1, n, k)))
    largest = np.abs(weights).max(axis=0).astype("float64")
    for q in (0, 1, k // 4, k // 2, k - 2, k - 1):
        row = np.zeros((1, k), "float32")
        row[0, q] = 1
        off = np.abs(library(row, weights).astype("float64") - weights[q])
        # Half a step of the integers, half as much again for making a float of 32 bits, and the
        # scale's own rounding.
        assert (off <= largest * 2.0**-24 * 1.51 + np.abs(weights[q]) * 2.0**-23).all()


def test_no_weight_changes_its_sign_however_scales_are_rounded():
    rng, k, n = np.random.default_rng(0), 1400, 1500
    library = built(lw.workload(products(1, n, k)))
    # The largest of each sum at the end of it, where the fourth part is, and at its beginning.
    largest = rng.uniform(1, 2, n).astype("float32")
    largest[:2] = np.nextafter(np.float32([1, 2]), np.float32(0))
    for q in (0, k - 1):
        weights = (rng.uniform(-0.9, 0.9, (k, n)) * largest).astype("float32")
        weights[q] = largest * np.where(np.arange(n) % 4 < 2, 1, -1)
        row = np.zeros((1, k), "float32")
        row[0, q] = 1
        np.testing.assert_allclose(library(row, weights)[0], weights[q], rtol=4e-7)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize(("size", "other"), [(1e-36, 1e20), (3e38, 1e-20)])
def test_the_smallest_and_the_largest_weights_keep_their_digits(rows, size, other):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((rows, 1400)), rng.uniform(-1, 1, (1400, 1500))
    inputs = (x * other).astype("float32"), (y * size).astype("float32")
    got = built(lw.workload(products(rows, 1500, 1400)))(*inputs)
    wanted = x @ y * (size * other)
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_sums_without_weights_are_zero_and_those_of_no_number_are_none():
    weights = np.ones((1400, 1500), "float32")
    weights[:, 3] = 0
    weights[7, 5] = np.nan
    weights[7, 6] = np.inf
    got = built(lw.workload(products(1, 1500, 1400)))(np.ones((1, 1400), "float32"), weights)[0]
    assert got[3] == 0
    assert np.isnan(got[5])
    assert not np.isfinite(got[6])
    np.testing.assert_allclose(np.delete(got, [3, 5, 6]), 1400, rtol=1e-6)


@pytest.mark.parametrize(("rows", "size"), [(1, 1e30), (1, 1e-30), (40, 1e25), (40, 1e-30)])
def test_large_and_small_inputs_keep_their_digits(rows, size):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((rows, 1400)), rng.standard_normal((1400, 1500))
    got = built(lw.workload(products(rows, 1500, 1400)))(
        *(a.astype("float32") for a in (x * size, y))
    )
    wanted = x @ y
    assert np.abs(got / size - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_weights_that_are_near_or_given_at_every_call_stay_as_they_are():
    for made in (
        products(1, 100, 100),
        products(1, 1500, 1400, constant=False),
        products(1, 1500, 1400, dtype="float64"),
    ):
        assert not smaller(lw.workload(made))


def test_who_wants_no_more_rounding_can_leave_them_out():
    workload = lw.workload(products(1, 1500, 1400))
    assert smaller(workload)
    for numerics in ("strict", "standard"):
        sketches = lw.space(workload, HERE, numerics=numerics).sketches
        assert not any(SMALLER in s.derivation.names for s in sketches)
