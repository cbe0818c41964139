"""The greatest elements and sorting, beside a stable sort of NumPy's: ties, NaN, long rows."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.errors import NotationError
from loopwright.dsl.expr import Reduce
from tests.dsl.compute import compute, draw


def in_order(x, axis, largest):
    """Places in order, equal elements in theirs, NaN greater than all numbers."""
    key = np.moveaxis(x, axis, -1).astype(np.float64)
    nan = np.isnan(key)
    size = np.where(nan, 0, -key if largest else key)
    found = np.argsort(size, axis=-1, kind="stable")
    behind = np.take_along_axis(~nan if largest else nan, found, -1)
    found = np.take_along_axis(found, np.argsort(behind, axis=-1, kind="stable"), -1)
    return np.moveaxis(found, -1, axis)


def drawn(shape, dtype, nans=0):
    x = lw.tensor("X", shape, dtype)
    a = np.round(draw(x) * 4).astype(dtype) if dtype.startswith("float") else draw(x)
    a.flat[np.random.default_rng(1).integers(0, a.size, nans)] = np.nan if nans else 0
    return x, a


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("nans", [0, 5])
@pytest.mark.parametrize(
    ("shape", "axis", "k"), [((9,), 0, 1), ((5, 13), -1, 13), ((11, 3, 2), 0, 4), ((2, 77), 1, 6)]
)
def test_the_greatest_elements_and_their_places_are_in_order(shape, axis, k, nans, largest):
    x, a = drawn(shape, "float32", nans)
    values, places = ops.topk(x, k, axis, largest)
    expected = np.take(in_order(a, axis, largest), np.arange(k), axis)
    found = compute(places, {x: a})
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(compute(values, {x: a}), np.take_along_axis(a, expected, axis))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "int8", "uint64", "bool"])
def test_all_types_are_sorted_and_equal_elements_stay_in_their_places(dtype, descending):
    x, a = drawn((4, 31), dtype)
    order = in_order(a, 1, descending)
    np.testing.assert_array_equal(compute(ops.argsort(x, 1, descending), {x: a}), order)
    whole = compute(ops.sort(x, 1, descending), {x: a})
    assert whole.dtype == a.dtype
    np.testing.assert_array_equal(whole, np.take_along_axis(a, order, 1))


def test_more_elements_than_there_are_is_an_error():
    with pytest.raises(NotationError, match="topk: k is 4; it is an integer from 0 to 3"):
        ops.topk(lw.tensor("X", (5, 3)), 4)


def test_none_of_the_elements_may_be_asked_for():
    x = lw.tensor("X", (5, 3))
    for found in ops.topk(x, np.int64(0)):
        assert compute(found, {x: draw(x)}).shape == (5, 0)


def test_no_element_comes_first_where_there_is_none():
    first, (i, c) = lw.tensor("first"), lw.indices("i c")
    with pytest.raises(NotationError, match="greatest over c, which has extent 0"):
        first[i] = Reduce("greatest", lw.tensor("X", (5, 0))[i, c])


def test_an_order_is_along_one_index_and_has_ranks_for_its_elements_alone():
    x, (i, j, c) = lw.tensor("X", (5, 3)), lw.indices("i j c")
    first, (r,) = lw.tensor("first"), lw.indices("r", r=4)
    first[i] = Reduce("greatest", x[i, c])
    a = draw(x)
    np.testing.assert_array_equal(compute(first, {x: a}), a.argmax(1))
    with pytest.raises(NotationError, match="r counts 4 ranks, and there are 3 elements"):
        lw.tensor("P")[i, r] = Reduce("least", x[i, c])
    with pytest.raises(NotationError, match="these are 2 and 0"):
        lw.tensor("P", ())[()] = Reduce("least", x[i, j])
