"""Element-wise operators; two or more tensors broadcast as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loopwright.dsl import functions as f
from loopwright.dsl.errors import NotationError, ShapeError
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops.check import any_shape, axis_of, same_dtype, same_extent, shape_of
from loopwright.dsl.size import check_dims
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.words import brief

Operand = Tensor | float | int | bool


def add(x: Operand, y: Operand) -> Tensor:
    """`out[i] = x[i] + y[i]`, broadcast; a residual connection, too.

    Tensors have one dtype; a number takes that of the tensor. So do all operators here.
    """
    return elementwise("add", lambda a, b: a + b, x, y)


def sub(x: Operand, y: Operand) -> Tensor:
    """`out[i] = x[i] - y[i]`, broadcast."""
    return elementwise("sub", lambda a, b: a - b, x, y)


def mul(x: Operand, y: Operand) -> Tensor:
    """`out[i] = x[i] * y[i]`, broadcast."""
    return elementwise("mul", lambda a, b: a * b, x, y)


def div(x: Operand, y: Operand) -> Tensor:
    """`out[i] = x[i] / y[i]`, broadcast; floating types only."""
    return elementwise("div", lambda a, b: a / b, x, y)


def maximum(x: Operand, y: Operand) -> Tensor:
    """`out[i] = max(x[i], y[i])`, broadcast."""
    return elementwise("maximum", f.max, x, y)


def minimum(x: Operand, y: Operand) -> Tensor:
    """`out[i] = min(x[i], y[i])`, broadcast."""
    return elementwise("minimum", f.min, x, y)


def relu(x: Tensor) -> Tensor:
    """`out[i] = max(x[i], 0)`."""
    return elementwise("relu", f.relu, x)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """`out[i] = x[i] if x[i] > 0 else slope * x[i]`."""
    return elementwise("leaky_relu", lambda a: f.where(a > 0, a, a * slope), x)


def clip(x: Tensor, low: float, high: float) -> Tensor:
    """`out[i] = min(max(x[i], low), high)`; `clip(x, 0, 6)` is ReLU6."""
    return elementwise("clip", lambda a: f.min(f.max(a, low), high), x)


def sigmoid(x: Tensor) -> Tensor:
    """`out[i] = 1 / (1 + exp(-x[i]))`."""
    return elementwise("sigmoid", f.sigmoid, x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent of each element."""
    return elementwise("tanh", f.tanh, x)


def gelu(x: Tensor) -> Tensor:
    """`out[i] = x[i] / 2 * (1 + erf(x[i] / √2))`, the exact form."""
    return elementwise("gelu", lambda a: a * 0.5 * (f.erf(a * math.sqrt(0.5)) + 1), x)


def silu(x: Tensor) -> Tensor:
    """`out[i] = x[i] * sigmoid(x[i])`."""
    return elementwise("silu", lambda a: a * f.sigmoid(a), x)


def bias_add(x: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """`out[n, c, y, x] = x[n, c, y, x] + bias[c]`, c standing at `axis` of x.

    Parameters
    ----------
    x: of any shape.
    bias: (C,), C being the extent of x at `axis`.
    """
    any_shape("bias_add", "x", x, least=1)
    same_dtype("bias_add", None, x=x, bias=bias)
    return with_bias("bias_add", x, bias, axis, x.dtype)


def with_bias(op: str, x: Tensor, bias: Tensor | None, axis: int, dtype: str) -> Tensor:
    """A result plus its bias, if it has one, in a dtype; both are added in that of the result."""
    if bias is None and x.dtype == dtype:
        return x
    shape = any_shape(op, "x", x)
    axes = axes_of(shape)
    value = x[axes]
    if bias is not None:
        at = axis_of(op, axis, len(shape))
        (length,) = shape_of(op, "bias", bias, ("C",))
        same_extent(op, (f"axis {at} of shape {shape}", shape[at]), ("the extent of bias", length))
        value = value + f.cast(bias[axes[at]], x.dtype)
    out = Tensor("bias_add" if bias is not None else op, shape)
    out[axes] = f.cast(value, dtype)
    return out


def elementwise(name: str, function: Callable[..., Expr], *operands: Operand) -> Tensor:
    """`out[i, …] = function(x[i, …], y[i, …], …)` over the broadcast shape of the operands."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:
        given = ", ".join(map(brief, operands))
        raise ShapeError(f"{name}: the arguments are {given}; at least one must be a tensor")
    shape = broadcast(name, tensors)
    axes = axes_of(shape)
    out = Tensor(name, shape)
    try:
        out[axes] = function(*(read(x, axes) if isinstance(x, Tensor) else x for x in operands))
    except NotationError as error:
        raise NotationError(f"{name}: {error}") from error
    return out


def broadcast(op: str, tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape that tensors have together by NumPy's rule; `ShapeError` if there is none."""
    shapes = [any_shape(op, f"argument {n} ({t.name})", t) for n, t in enumerate(tensors)]
    joint = broadcast_shapes(shapes)
    if joint is None:
        names = ", ".join(f"{t.name} {t.shape}" for t in tensors)
        raise ShapeError(
            f"{op}: the shapes do not broadcast: {names}; counted from the last axis, extents "
            "must be equal or 1"
        )
    return joint


def broadcast_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """NumPy's broadcast shape, or None. `RangeError` if two dims have one name."""
    rank = max(len(shape) for shape in shapes)
    joint = []
    for column in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        extents = {n for n in column if n != 1}
        if len(extents) > 1:
            check_dims(*extents)
            return None
        joint.append(extents.pop() if extents else 1)
    return tuple(joint)


def read(x: Tensor, axes: Sequence[Index]) -> Expr:
    """The element of x that meets `axes`, aligned at the right: an extent of 1 is read at 0."""
    shape = any_shape("read", "x", x)
    mine = axes[len(axes) - len(shape) :]
    at = tuple(i if n != 1 or i.extent == 1 else 0 for i, n in zip(mine, shape, strict=True))
    return x[at]


def axes_of(shape: Sequence[int]) -> tuple[Index, ...]:
    """Indices i0, i1, … over a shape."""
    return tuple(Index(f"i{d}", n) for d, n in enumerate(shape))
