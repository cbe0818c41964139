"""NumPy, for products: its BLAS, or its einsum in the best order."""

from __future__ import annotations

import numpy as np
from peers import UnableError
from suites.row import Arrays, Row

from contenders.contract import Prepared, filled


def plain(row: Row, inputs: Arrays, threads: int) -> Prepared:
    a = filled(row, inputs)
    if row.operator == "einsum":
        spec, operands = a["spec"], [v for n, v in a.items() if n != "spec"]
        path = np.einsum_path(spec, *operands, optimize="optimal")[0]
        # As a view of another order the result would not be what the others make.
        return Prepared(lambda: np.ascontiguousarray(np.einsum(spec, *operands, optimize=path)))
    if row.operator == "dense":
        one, other = a["x"], a["w"].T
    elif row.operator in ("matmul", "batch_matmul"):
        one, other = a["a"], a["b"].swapaxes(-1, -2) if a.get("transpose_b") else a["b"]
    else:
        raise UnableError("for products only")
    out = np.empty(np.matmul(one, other).shape, np.float32)
    return Prepared(lambda: np.matmul(one, other, out=out))
