"""Equations of matrices, inverses and determinants, which ONNX has not but for Det."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.graph.importers.torch.operators.parts import op, whole
from loopwright.graph.importers.torch.operators.scans import named
from loopwright.packages import aten

_INT32 = 6
"""The number of ONNX's type."""


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    return {
        aten.inverse.default: _inverse,
        aten.linalg_inv.default: _inverse,
        aten.linalg_inv_ex.default: lambda a, check_errors=False: (_inverse(a), _solvable(a)),
        aten.linalg_slogdet.default: _log_determinant,
        aten.linalg_solve.default: _solved,
        aten.linalg_solve_triangular.default: _solved_by_half,
        aten.slogdet.default: _log_determinant,
    }


def _solved(a: Any, b: Any, left: bool = True) -> Any:
    """The X of `A @ X = B`, or of `X @ A = B`."""
    is_vector = len(b.shape) == 1 or tuple(b.shape) == tuple(a.shape)[:-1]
    rows = op.Unsqueeze(b, whole(-1)) if is_vector else b
    x = _solution(a, rows) if left else _turned(_solution(_turned(a), _turned(rows, b)), b)
    return op.Squeeze(x, whole(-1)) if is_vector else x


def _solution(a: Any, b: Any) -> Any:
    return named("Solve", op.MatMul(a, b))


def _turned(x: Any, like_it: Any = None) -> Any:
    """A matrix with its axes exchanged."""
    axes = list(range(len((x if like_it is None else like_it).shape)))
    return op.Transpose(x, perm=[*axes[:-2], axes[-1], axes[-2]])


def _inverse(a: Any) -> Any:
    square = op.Shape(a, start=-2)
    one = op.CastLike(op.EyeLike(op.ConstantOfShape(square)), a)
    return _solution(a, one)


def _solved_by_half(
    a: Any, b: Any, upper: bool = False, left: bool = True, unitriangular: bool = False
) -> Any:
    """The same of a half of A, its diagonal taken for ones where it is said."""
    half = op.Trilu(a, upper=int(upper))
    if unitriangular:
        half = op.Trilu(a, op.Constant(value_int=1 if upper else -1), upper=int(upper))
        square = op.Shape(a, start=-2)
        half = op.Add(half, op.CastLike(op.EyeLike(op.ConstantOfShape(square)), a))
    half.dtype, half.shape = a.dtype, a.shape
    return _solved(half, b, left)


def _log_determinant(a: Any) -> Any:
    """The sign of a determinant, and the logarithm of its size."""
    parts = op.Split(a, num_outputs=2)
    named("LogDet", parts[0])
    return parts


def _solvable(a: Any) -> Any:
    """Zero, which says that there is a solution: whether there is none is not told."""
    return op.Cast(op.ConstantOfShape(op.Shape(a, end=-2)), to=_INT32)
