"""Loopwright: from Einstein notation to the fastest code it can find for the machine at hand."""

from loopwright.dsl import ops
from loopwright.dsl.einsum import einsum
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.expr import (
    abs,
    cast,
    equal,
    erf,
    exp,
    floor,
    log,
    max,
    min,
    prod,
    relu,
    rsqrt,
    sigmoid,
    sqrt,
    sum,
    tanh,
    where,
)
from loopwright.dsl.index import indices
from loopwright.dsl.tensor import pad, tensor
from loopwright.dsl.workload import Workload, workload

__version__ = "0.1.0"

__all__ = [
    "LoopwrightError",
    "Workload",
    "abs",
    "cast",
    "einsum",
    "equal",
    "erf",
    "exp",
    "floor",
    "indices",
    "log",
    "max",
    "min",
    "ops",
    "pad",
    "prod",
    "relu",
    "rsqrt",
    "sigmoid",
    "sqrt",
    "sum",
    "tanh",
    "tensor",
    "where",
    "workload",
]
