"""Evaluate what a test defines, and draw the numbers for it."""

from typing import Any

import numpy as np

from loopwright.dsl.dtypes import is_float, numpy_dtype
from loopwright.dsl.oracle import evaluate
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, workload

Array = np.ndarray[Any, Any]


def draw(t: Tensor, seed: int = 0) -> Array:
    """Small numbers of a tensor's shape and dtype; other tensors, other numbers."""
    rng = np.random.default_rng([seed, *t.name.encode()])
    dtype = numpy_dtype(t.dtype)
    assert t.shape is not None
    if is_float(t.dtype):
        return rng.uniform(-1, 1, t.shape).astype(dtype)
    low, high = (0, 2) if t.dtype == "bool" or dtype.kind == "u" else (-4, 5)
    return rng.integers(low, high, t.shape).astype(dtype)


def compute(out: Tensor, given: dict[Tensor, Array]) -> Array:
    """The elements of one tensor, through JSON too, which must not change them."""
    made = workload(out)
    again = Workload.from_json(made.to_json())
    assert again == made
    assert str(again) == str(made)
    (result,) = evaluate(again, {t.name: array for t, array in given.items()})
    return result


def check(out: Tensor, expected: Array, *inputs: Tensor, given: Any = None) -> None:
    """Compare with NumPy, on drawn inputs or given ones; shapes must be equal, too."""
    values = {t: draw(t) for t in inputs} if given is None else given
    result = compute(out, values)
    assert result.shape == out.shape == expected.shape
    exact = np.asarray(expected, np.float64)
    np.testing.assert_allclose(result.astype(np.float64), exact, rtol=1e-4, atol=1e-4)


def last(x: Array) -> Array:
    """NCHW to NHWC."""
    return np.moveaxis(x, 1, -1)
