"""Parts of translations: numbers, types, and the exporter's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.packages import Later, onnx

FLOAT, HALVES = 1, (10, 16)
"""The numbers of ONNX's float32, and of its halves."""
DOUBLE = 11
"""The number of ONNX's float64."""
op: Any = Later("onnxscript:opset18")
"""ONNX's operators, of a version that the exporter takes."""


def whole(*numbers: int) -> Any:
    """Integers as an array of one axis."""
    return op.Constant(value_ints=list(numbers))


def array(numbers: np.ndarray) -> Any:
    """Known numbers, of their type."""
    return op.Constant(value=onnx.numpy_helper.from_array(numbers))


def exact(number: float) -> Any:
    """A number of type float64."""
    return array(np.array(number, np.float64))


def like(number: float, x: Any) -> Any:
    """A number of the type of a tensor."""
    return op.CastLike(exact(number), x)


def scaled(x: Any, factor: float) -> Any:
    """A tensor times a number."""
    return x if factor == 1 else op.Mul(x, like(factor, x))


def own(name: str) -> Any:
    """The exporter's function of a name."""
    from onnxscript.function_libs.torch_lib.ops import core, nn

    return getattr(core, name, None) or getattr(nn, name)


def exactly(name: str) -> Callable[..., Any]:
    """The exporter's function of a name, whose numbers are rounded once, to the type that they
    get there: it makes each a float32 first."""

    def translated(*args: Any, **options: Any) -> Any:
        if name == "aten_full" and options.get("dtype", -1) == -1:
            return own(name)(*args)  # of the number's own type
        rounded = (exact(x) if isinstance(x, float) else x for x in args)
        return own(name)(*rounded, **options)

    return translated


def in_double(name: str, formula: Callable[..., Any]) -> Callable[..., Any]:
    """A function of operators for float64, and for other types the exporter's of that name."""

    def translated(x: Any, *args: Any, **options: Any) -> Any:
        return (formula if x.dtype == DOUBLE else own(name))(x, *args, **options)

    return translated
