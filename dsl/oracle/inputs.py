"""Inputs on which programs are compared with the oracle."""

from __future__ import annotations

import numpy as np

from loopwright.dsl.dtypes import is_float, numpy_dtype
from loopwright.dsl.oracle.evaluation import Array
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import Workload, fixed, tensor_shape


def random_inputs(workload: Workload, rng: np.random.Generator) -> tuple[Array, ...]:
    """Inputs drawn so that results neither vanish nor overflow: floats uniform in [-1, 1),
    integers over a small range, truth values evenly."""
    return tuple(_draw(t, rng) for t in fixed(workload).inputs)


def _draw(tensor: Tensor, rng: np.random.Generator) -> Array:
    shape, dtype = tensor_shape(tensor), numpy_dtype(tensor.dtype)
    if is_float(tensor.dtype):
        return rng.uniform(-1, 1, shape).astype(dtype)
    low, high = (0, 2) if tensor.dtype == "bool" else (0, 5) if dtype.kind == "u" else (-4, 5)
    return rng.integers(low, high, shape).astype(dtype)
