"""Places of the greatest and the least elements, beside NumPy's: ties and NaN too."""

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl import ops
from loopwright.dsl.errors import NotationError
from tests.dsl.compute import compute, draw

OPS = [("argmax", np.argmax), ("argmin", np.argmin)]


def last(numpy, x, axis):
    return x.shape[axis] - 1 - numpy(np.flip(x, axis), axis)


@pytest.mark.parametrize(("name", "numpy"), OPS)
@pytest.mark.parametrize("nans", [0, 9])
@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((5, 13), -1), ((3, 11, 4), 1)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_first_place_and_the_last_are_those_of_numpy(name, numpy, shape, axis, nans, dtype):
    x = lw.tensor("X", shape, dtype)
    a = np.round(draw(x) * 3).astype(dtype)  # many are equal
    a.flat[np.random.default_rng(0).integers(0, a.size, nans)] = np.nan
    first = compute(getattr(ops, name)(x, axis), {x: a})
    assert first.dtype == np.int64
    np.testing.assert_array_equal(first, numpy(a, axis))
    final = compute(getattr(ops, name)(x, axis, select_last=True), {x: a})
    np.testing.assert_array_equal(final, last(numpy, a, axis))


@pytest.mark.parametrize(("name", "numpy"), OPS)
@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool"])
def test_integers_and_truth_values_have_places_too(name, numpy, dtype):
    x = lw.tensor("X", (6, 9), dtype)
    a = draw(x)
    result = compute(getattr(ops, name)(x, 1, keepdims=True, dtype="int32"), {x: a})
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, numpy(a, 1, keepdims=True))


@pytest.mark.parametrize(("name", "numpy"), OPS)
def test_rows_of_one_value_give_the_first_place(name, numpy):
    x = lw.tensor("X", (5, 8))
    a = np.repeat(np.array([[np.inf], [-np.inf], [np.nan], [0], [-0.0]], np.float32), 8, 1)
    np.testing.assert_array_equal(compute(getattr(ops, name)(x), {x: a}), numpy(a, 1))


def test_a_result_that_is_no_integer_is_an_error():
    with pytest.raises(NotationError, match="argmax: dtype is float32; use one of int64"):
        ops.argmax(lw.tensor("X", (3,)), dtype="float32")
