"""Outputs compared, whole or in part."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import oracle
from loopwright.measure.checking import difference, from_bytes, poison, to_bytes

DTYPES = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int16",
    "int8",
    "uint8",
    "int32",
    "int64",
    "bool",
]


def copy_of(dtype, *shape):
    x, y = lw.tensor("x", shape, dtype), lw.tensor("y")
    at = lw.indices(" ".join("ijkl"[: len(shape)]))
    y[at] = x[at]
    return lw.workload(y)


def values(dtype, *shape):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return (np.arange(np.prod(shape)).reshape(shape) % 2).astype(kind)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_outputs_agree_and_survive_the_way_between_processes(dtype):
    workload, value = copy_of(dtype, 3, 5), values(dtype, 3, 5)
    (back,) = from_bytes(workload, [bytes(b) for b in to_bytes([value])])
    assert back.dtype == value.dtype
    assert difference(workload, [value], [back], (0.0, 0.0)) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_never_right(dtype):
    workload, value = copy_of(dtype, 3, 5), values(dtype, 3, 5)
    untouched = value.copy()
    poison(untouched)
    assert "15 of 15 elements" in difference(workload, [untouched], [value], (0.1, 0.1))


def test_a_difference_says_where_it_is():
    workload, value = copy_of("float32", 3, 5), values("float32", 3, 5)
    wrong = value.copy()
    wrong[1, 2] = 7
    found = difference(workload, [wrong], [value], (1e-6, 1e-6))
    assert found == "y: 1 of 15 elements are wrong; y[1, 2] is 7.0, not 1.0"


def test_nan_and_infinity_agree_with_themselves_alone():
    workload = copy_of("float32", 3)
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert difference(workload, [special], [special], (0.0, 0.0)) is None
    assert difference(workload, [special], [-special], (0.0, 0.0)) is not None


def test_large_outputs_are_looked_at_in_places():
    workload, value = copy_of("float32", 100, 100), values("float32", 100, 100)
    tile = value.copy()
    tile[90:] += 1
    assert difference(workload, [value], [value], (0.0, 0.0), most=500) is None
    assert "of 500 elements" in difference(workload, [tile], [value], (0.0, 0.0), most=500)


def test_slack_is_for_its_own_element():
    i = lw.indices("i")
    x, y = lw.tensor("x", (4,)), lw.tensor("y")
    y[i] = x[i] / 3.0
    workload = lw.workload(y)
    value, slack = np.ones(4, np.float32), np.array([0, 0.5, 0, 0], np.float32)
    off = value + np.array([0, 0.25, 0, 0], np.float32)
    assert difference(workload, [off], [value], (1e-6, 1e-6)) is not None
    assert difference(workload, [off], [value], (1e-6, 1e-6), slack=[slack]) is None
    assert "y[2]" in difference(workload, [off[::-1]], [value], (1e-6, 1e-6), slack=[slack])


def int8_product_in_steps(a, b, out):
    i, j, k = lw.indices("i j k")
    total = lw.tensor("S")
    total[i, j] += lw.cast(a[i, k], "int32") * lw.cast(b[k, j], "int32")
    out[i, j] = lw.cast(lw.cast(total[i, j], "float32") * 0.29, "int32")


def product_to_int8(a, b, out):
    i, j, k = lw.indices("i j k")
    total = lw.tensor("S")
    total[i, j] += a[i, k] * b[k, j]
    out[i, j] = lw.cast(total[i, j] * 16, "int8")


def floor_of_a_product(a, b, out):
    i, j, k = lw.indices("i j k")
    total = lw.tensor("S")
    total[i, j] += a[i, k] * b[k, j]
    out[i, j] = lw.floor(total[i, j] * 16)


def halves_inside(a, b, out):
    i, j, k = lw.indices("i j k")
    out[i, j] += lw.cast(lw.cast(a[i, k], "float16") * lw.cast(b[k, j], "float16"), "float32")


def doubles_times_a_float(a, b, out):
    i, j = lw.indices("i j")
    out[i, j] = a[i, j] * lw.cast(0.1, "float64") - b[i, j]


def large_terms(a, b, out):
    i, k = lw.indices("i k")
    out[i] += a[i, k] * 1000.0 - b[i, k]


def many_terms_in_one_element(a, b, out):
    (i,) = lw.indices("i")
    out[i] = sum((a[i, d] * 0.01 * d for d in range(1, 60)), b[i, 0])


@pytest.mark.parametrize(
    ("define", "dtype"),
    [
        (int8_product_in_steps, "int8"),
        (product_to_int8, "float32"),
        (floor_of_a_product, "float32"),
        (halves_inside, "float32"),
        (doubles_times_a_float, "float64"),
        (large_terms, "float32"),
        (many_terms_in_one_element, "float32"),
    ],
)
def test_what_rounds_in_another_order_passes_and_an_error_does_not(define, dtype):
    a, b = lw.tensor("A", (96, 96), dtype), lw.tensor("B", (96, 96), dtype)
    out = lw.tensor("Y")
    define(a, b, out)
    workload = lw.workload(out)
    given = oracle.random_inputs(workload, np.random.default_rng(0))
    expected = oracle.evaluate(workload, given)
    slack = oracle.slack(workload, given, expected)
    known = (expected, oracle.tolerance(workload), None, slack)
    made = lw.build(workload, threads=1)(*given)
    assert difference(workload, [made], *known) is None
    wrong = made.copy()
    wrong.flat[np.argmax(np.nan_to_num(np.abs(made.astype(np.float64))))] += 2
    assert "1 of" in difference(workload, [wrong], *known)


def test_a_maximum_must_keep_nan():
    i, k = lw.indices("i k")
    x, most = lw.tensor("X", (3, 4)), lw.tensor("Y")
    most[i] = lw.max(lw.sqrt(x[i, k]))
    workload = lw.workload(most)
    given = np.array([[1, -1, 0, 4], [-1] * 4, [1, 1, 1, 9]], np.float32)
    expected = oracle.evaluate(workload, [given])
    made = lw.build(workload, threads=1)(given)
    assert difference(workload, [made], expected, (1e-6, 1e-6)) is None
    made[1] = 0
    assert "Y[1]" in difference(workload, [made], expected, (1e-6, 1e-6))
