"""Scans, beside NumPy's, shorter and longer than a block and than a block of blocks."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.errors import NotationError, ShapeError
from tests.dsl.compute import check, compute, draw

SHAPES = [((7,), 0), ((5, 65), -1), ((3, 131, 2), 1), ((2113,), 0), ((64, 3), 0)]


def scanned(function, x, axis, exclusive=False, reverse=False):
    """A scan of NumPy's, in float64."""
    x = np.flip(x, axis) if reverse else x
    result = function(x.astype(np.float64), axis)
    if exclusive:
        first = np.zeros_like(result) if function is np.cumsum else np.ones_like(result)
        result = np.roll(result, 1, axis)
        start = [slice(None)] * x.ndim
        start[axis] = 0
        result[tuple(start)] = first[tuple(start)]
    return np.flip(result, axis) if reverse else result


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_a_cumulative_sum_or_product_is_that_of_numpy(shape, axis, exclusive, reverse):
    x = lw.tensor("X", shape)
    a = draw(x)
    total = ops.cumsum(x, axis, exclusive, reverse)
    check(total, scanned(np.cumsum, a, axis, exclusive, reverse), given={x: a})
    near_one = (1 + a / 50).astype(np.float32)
    product = ops.cumprod(x, axis, exclusive, reverse)
    check(product, scanned(np.cumprod, near_one, axis, exclusive, reverse), given={x: near_one})


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_a_cumulative_maximum_or_minimum_is_that_of_numpy(shape, axis, reverse):
    x = lw.tensor("X", shape)
    a = draw(x)
    most = scanned(np.maximum.accumulate, a, axis, reverse=reverse)
    least = scanned(np.minimum.accumulate, a, axis, reverse=reverse)
    check(ops.cummax(x, axis, reverse), most, given={x: a})
    check(ops.cummin(x, axis, reverse), least, given={x: a})


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_sums_of_integers_keep_their_type_and_wrap(dtype):
    x = lw.tensor("X", (301,), dtype)
    a = np.random.default_rng(0).integers(0, 100, 301).astype(dtype)
    np.testing.assert_array_equal(compute(ops.cumsum(x), {x: a}), np.cumsum(a, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_added_up_in_float32(dtype):
    x = lw.tensor("X", (4001,), dtype)
    ones = np.ones(4001).astype(draw(x).dtype)
    result = compute(ops.cumsum(x), {x: ones})
    assert result.dtype == ones.dtype
    np.testing.assert_array_equal(result, np.arange(1, 4002).astype(ones.dtype))


def test_what_comes_later_has_no_effect():
    x = lw.tensor("X", (100,))
    a = np.ones(100, np.float32)
    a[40:] = np.inf
    a[70:] = np.nan
    result = compute(ops.cumsum(x), {x: a})
    np.testing.assert_array_equal(result[:40], np.arange(1, 41))
    assert np.all(np.isinf(result[40:70]))
    assert np.all(np.isnan(result[70:]))


def test_what_cannot_be_scanned_is_an_error():
    with pytest.raises(ShapeError, match=r"cumsum: x is of truth values; lw\.cast it"):
        ops.cumsum(lw.tensor("X", (3,), "bool"))
    with pytest.raises(NotationError, match="cummax: axis is 2"):
        ops.cummax(lw.tensor("X", (3, 4)), 2)
