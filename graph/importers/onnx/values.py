"""Values of ONNX's operators: arrays where they are known, else tensors of the notation."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from operator import and_
from typing import Any, TypeGuard

import numpy as np

from loopwright.dsl.dtypes import is_float
from loopwright.dsl.errors import LoopwrightError
from loopwright.dsl.expr import Const, Expr
from loopwright.dsl.index import Index
from loopwright.dsl.tensor import Tensor
from loopwright.packages import onnx

Array = np.ndarray[Any, np.dtype[Any]]
Value = Array | Tensor
Scaled = tuple[int, tuple[int, ...], bytes]
"""The id of an array, and the shape and the elements of factors."""


class Weights:
    """The arrays behind constant tensors, each array one tensor. Readings of one model at several
    sizes share what they `scaled`. What is `growing` has more elements at other sizes."""

    def __init__(self, scaled: dict[Scaled, tuple[Array, Array]] | None = None) -> None:
        self._scaled = {} if scaled is None else scaled
        self.arrays: dict[Tensor, Array] = {}
        self._known: dict[int, Tensor] = {}
        self._said: dict[int, Array] = {}
        self.growing: dict[int, Value] = {}

    def tensor(self, array: Array, name: str = "constant") -> Tensor:
        """The constant tensor of an array."""
        if id(array) not in self._known:
            made = Tensor(identifier(name), array.shape, str(array.dtype), constant=True)
            self._known[id(array)] = made
            self.arrays[made] = array
        return self._known[id(array)]

    def scaled(self, array: Array, factor: Array) -> Array:
        """An array times factors that broadcast, of the array's type."""
        key = id(array), factor.shape, factor.tobytes()
        if key not in self._scaled:  # which keeps the array, so no other one gets its id
            self._scaled[key] = array, (array * factor).astype(array.dtype)
        return self._scaled[key][1]

    def compute(self, array: Array, tensor: Tensor) -> None:
        """Have a tensor that each call computes stand for an array, which is kept."""
        self._known[id(array)] = tensor
        self._said[id(array)] = array

    def say(self, array: Array) -> None:
        """Note an array of one element that stands in a definition as a number."""
        self._said[id(array)] = array

    def is_number(self, x: Value) -> TypeGuard[Array]:
        """Return whether a value is one known number, which a definition says itself."""
        return isinstance(x, np.ndarray) and x.size == 1 and id(x) not in self.growing

    def has(self, array: Array) -> bool:
        """Return whether some definition has the elements of an array."""
        return id(array) in self._known or id(array) in self._said


def all_of(tests: Sequence[Expr]) -> Expr:
    """A condition that holds where all of some do."""
    return functools.reduce(and_, tests)


def number(value: Any, dtype: str) -> Const:
    """A number as an element."""
    if dtype == "bool":
        return Const(bool(value), dtype)
    return Const(float(value) if is_float(dtype) else int(value), dtype)


def dtype_of(kind: int) -> str:
    """The element type that ONNX has a number for. Raises `LoopwrightError` for others."""
    if kind not in onnx.TensorProto.DataType.values()[1:]:  # the first means that there is none
        raise LoopwrightError(f"{kind} is the number of none of ONNX's element types")
    return str(onnx.helper.tensor_dtype_to_np_dtype(kind))


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of a value, which always has one."""
    assert value.shape is not None, value
    return tuple(value.shape)


def define(name: str, shape: Sequence[int], body: Callable[..., Expr]) -> Tensor:
    """A tensor whose elements are `body(i0, i1, …)`."""
    axes = tuple(Index(f"i{d}", int(n)) for d, n in enumerate(shape))
    out = Tensor(identifier(name), tuple(int(n) for n in shape))
    out[axes] = body(*axes)
    return out


def identifier(name: str) -> str:
    """A name made of letters, digits and underscores."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain.isidentifier() else f"t_{plain}"
