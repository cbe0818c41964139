"""Bits of integers, and what numbers are as bits."""

from __future__ import annotations

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import is_float
from loopwright.graph.importers.onnx.call import Call, Made, dtype_of, operator
from loopwright.graph.importers.onnx.foreign import reinterpreted


@operator("BitShift")
def _bit_shift(call: Call) -> Made:
    left = call.get("direction") == "LEFT"
    return call.each(lambda a, b: a << b if left else a >> b)


@operator("BitCast", limit="between floats and integers TVM's function computes it")
def _bit_cast(call: Call) -> Made:
    old, new = call.dtype(), dtype_of(call.get("to"))
    if np.dtype(old).itemsize != np.dtype(new).itemsize:
        raise call.unsupported(f"{old} and {new} differ in their bits")
    if is_float(old) or is_float(new):
        return reinterpreted(call.tensor(0), new)
    return call.each(lambda x: f.cast(x, new), 0)
