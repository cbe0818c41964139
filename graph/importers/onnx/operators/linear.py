"""Products of matrices, and sums in Einstein notation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import mul

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl import ops
from loopwright.dsl.dtypes import HALVES, numpy_dtype, sum_type
from loopwright.dsl.expr import Expr, as_expr
from loopwright.dsl.index import Index
from loopwright.dsl.ops.einsum import einsum
from loopwright.dsl.ops.elementwise import with_bias
from loopwright.dsl.tensor import Tensor
from loopwright.graph.importers.onnx.call import SCANS, Call, operator
from loopwright.graph.importers.onnx.operators.quantization import quantized
from loopwright.graph.importers.onnx.operators.shapes import reshaped, transposed
from loopwright.graph.importers.onnx.values import Array, Value, define, number, shape_of


@operator("MatMul")
def _matmul(call: Call) -> Value:
    return product(call, call.value(0), call.value(1))


def product(call: Call, a: Value, b: Value, *, dtype: str = "") -> Value:
    """`numpy.matmul`, in a wider dtype if one is given. A second operand that is one matrix for
    all makes one product of rows."""
    left, right = shape_of(a), shape_of(b)
    if len(left) == 1:
        rest = product(call, reshaped(call, a, (1, *left)), b, dtype=dtype)
        shape = shape_of(rest)
        return reshaped(call, rest, (*shape[:-2], shape[-1]) if len(right) > 1 else ())
    if len(right) == 1:
        rest = product(call, a, reshaped(call, b, (*right, 1)), dtype=dtype)
        return reshaped(call, rest, shape_of(rest)[:-1])
    if left[-1] != right[-2]:
        raise call.unsupported(f"{left} and {right} do not multiply")
    if 0 in left or 0 in right:
        shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
        return np.zeros(shape, numpy_dtype(dtype or str(a.dtype)))
    if all(n == 1 for n in right[:-2]) and len(left) > 2 and len(right) <= len(left):
        rows = int(np.prod(left[:-1], dtype=np.int64))
        flat = reshaped(call, a, (rows, left[-1]))
        weights = reshaped(call, b, right[-2:])

        def rows_of(factor: Array | None = None, summand: Array | None = None) -> Value:
            made = _scalable(call, flat, weights, dtype, factor, summand)
            return reshaped(call, made, (*left[:-1], right[-1]))

        made = rows_of()
        if isinstance(weights, np.ndarray) and isinstance(made, Tensor):
            call.scaled[made] = rows_of
        return made
    if len(left) == 2 and len(right) == 2:
        made = _scalable(call, a, b, dtype)
        if isinstance(b, np.ndarray):
            call.scaled[made] = lambda *by: _scalable(call, a, b, dtype, *by)
        return made
    return ops.batch_matmul(call.as_tensor(a), call.as_tensor(b), accumulate=dtype or None)


def _scalable(
    call: Call,
    a: Value,
    b: Value,
    dtype: str,
    factor: Array | None = None,
    summand: Array | None = None,
) -> Tensor:
    """A product of two matrices, its columns times factors and plus summands."""
    if factor is not None and isinstance(b, np.ndarray):
        b = call.weights.scaled(b, factor)
    left, right, own = call.as_tensor(a), call.as_tensor(b), dtype or str(a.dtype)
    if summand is None or not summand.any():
        return ops.matmul(left, right, accumulate=dtype or None)
    made = ops.matmul(left, right, accumulate=sum_type(own))
    bias = np.broadcast_to(summand.astype(numpy_dtype(own)), shape_of(made)[-1:])
    return with_bias("matmul", made, call.as_tensor(np.ascontiguousarray(bias)), 1, own)


def _scaled_sum(call: Call) -> Tensor:
    """`alpha * a @ b + beta * c`, rounded once."""
    alpha, beta = float(call.get("alpha", 1.0)), float(call.get("beta", 1.0))
    a, b = call.value(0), call.value(1)
    by_rows, by_columns = bool(call.get("transA", 0)), bool(call.get("transB", 0))
    exact = str(b.dtype) not in HALVES  # which factors of weights would round once more
    if isinstance(b, np.ndarray) and alpha != 1 and b.dtype.kind == "f" and exact:
        b, alpha = (b * alpha).astype(b.dtype), 1.0
    left = call.as_tensor(transposed(a, (1, 0)) if by_rows and isinstance(a, np.ndarray) else a)
    by_rows = by_rows and isinstance(a, Tensor)
    addend = call.value(2) if call.has(2) and beta != 0 else None
    if addend is None and alpha == 1:
        return ops.matmul(left, call.as_tensor(b), by_rows, by_columns)
    wide = sum_type(left.dtype)  # what is scaled and added to is not rounded before
    made = ops.matmul(left, call.as_tensor(b), by_rows, by_columns, wide)
    if isinstance(addend, np.ndarray) and beta != 1 and exact:
        addend, beta = (addend * beta).astype(addend.dtype), 1.0

    def body(*i: Index) -> Expr:
        x = made[i]
        x = x * alpha if alpha != 1 else x
        if addend is not None:
            y = f.cast(call.read(addend, i), wide)
            x = x + (y * beta if beta != 1 else y)
        return f.cast(x, left.dtype)

    return define("gemm", shape_of(made), body)


operator("Gemm")(_scaled_sum)


@operator(f"{SCANS}:Linear")
def _linear(call: Call) -> Value:
    """A Gemm of all rows of a tensor of any number of axes."""
    x, width = call.value(0), call.shape(1)[0]
    *lead, inner = shape_of(x)
    flat = reshaped(call, x, (int(np.prod(lead, dtype=np.int64)), inner))
    made = _scaled_sum(replace(call, inputs=(flat, *call.inputs[1:])))
    return reshaped(call, made, (*lead, width))


@operator(f"{SCANS}:GroupedMatMul")
def _grouped(call: Call) -> Value:
    """Each row times the matrix whose number it has; zeros where there is none of that number."""
    x, matrices, group = (call.tensor(n) for n in range(3))
    (rows, depth), (count, _, columns) = call.shape(0), call.shape(1)
    k = Index("k", depth)

    def product(row: Index, j: Index) -> Expr:
        return f.sum(x[row, k] * matrices[group[row], k, j])

    def known(row: Index, j: Index) -> Expr:
        return f.where(group[row] < count, made[row, j], 0)

    made = define("grouped", (rows, columns), product)
    return define("grouped", (rows, columns), known)


@operator("Einsum")
def _einsum(call: Call) -> Value:
    equation = call.get("equation").replace(" ", "")
    return einsum(equation, *(call.tensor(n) for n in range(len(call.inputs))))


def without_zero(call: Call, x: Value, zero: Value | None, axis: int | None = None) -> Tensor:
    """Quantized numbers as int32, their zero point taken off."""
    tensor = call.as_tensor(x)
    shape = shape_of(x)
    if zero is None or (isinstance(zero, np.ndarray) and not zero.any()):
        return define("widened", shape, lambda *i: f.cast(tensor[i], "int32"))

    def less(i: tuple[Index, ...]) -> Expr:
        if shape_of(zero) in ((), (1,)):
            return call.single(zero)
        own = call.as_tensor(zero)
        if axis is not None and len(shape_of(zero)) == 1:
            return own[i[axis]]
        return call.read(own, i)

    return define(
        "widened", shape, lambda *i: f.cast(tensor[i], "int32") - f.cast(less(i), "int32")
    )


@operator("MatMulInteger")
def _matmul_integer(call: Call) -> Value:
    a = without_zero(call, call.value(0), call.optional(2), len(call.shape(0)) - 2)
    b = without_zero(call, call.value(1), call.optional(3), len(call.shape(1)) - 1)
    return product(call, a, b)


@operator("QLinearMatMul")
def _qlinear_matmul(call: Call) -> Value:
    a = without_zero(call, call.value(0), call.value(2), len(call.shape(0)) - 2)
    b = without_zero(call, call.value(3), call.value(5), len(call.shape(3)) - 1)
    sums = call.as_tensor(product(call, a, b))

    def body(*i: Index) -> Expr:
        one, other = (
            f.cast(call.read(call.value(n), i[-1:] if len(call.shape(n)) <= 1 else i), "float32")
            for n in (1, 4)
        )
        return f.cast(sums[i], "float32") * (one * other)

    return requantized(call, define("scaled", shape_of(sums), body), 6, 7)


def requantized(call: Call, x: Tensor, scale: int, zero: int) -> Value:
    """Numbers rounded to steps of a scale."""
    moved = replace(call, inputs=(x, call.inputs[scale], call.inputs[zero]), attributes={})
    return quantized(moved, x, call.dtype(zero))


_LARGEST_MATRIX = 32
"""Rows of a matrix whose elimination is written out."""
_OF_ROWS = f"matrices of at most {_LARGEST_MATRIX} rows, or known ones"


@operator("Det", limit=_OF_ROWS)
def _det(call: Call) -> Value:
    """The product of the pivots of Gauss's elimination; each step is a few definitions."""
    (*batch, _, _), dtype = call.shape(), call.dtype()
    result = define("one", batch, lambda *_: number(1, dtype))
    for pivot in _pivots(call):
        result = call.broadcast([result, pivot], mul)
    return result


@operator(f"{SCANS}:LogDet", limit=_OF_ROWS)
def _log_det(call: Call) -> Sequence[Value]:
    """The sign of a determinant, and the logarithm of its size, which is beyond no type."""
    (*batch, _, _), dtype = call.shape(), call.dtype()
    if isinstance(known := call.value(0), np.ndarray):
        return [np.asarray(part, known.dtype) for part in np.linalg.slogdet(known)]
    sign = define("sign", batch, lambda *_: number(1, dtype))
    logarithm = define("logarithm", batch, lambda *_: number(0, dtype))
    for pivot in _pivots(call):
        sign = call.broadcast([sign, pivot], lambda x, p: x * f.sign(p))
        logarithm = call.broadcast([logarithm, pivot], lambda x, p: x + f.log(f.abs(p)))
    return sign, logarithm


@operator(f"{SCANS}:Solve", limit=_OF_ROWS)
def _solve(call: Call) -> Value:
    """The X of `A @ X = B`, by Gauss's and Jordan's elimination: a step takes a column of A beside
    B, and at the end B is X. Of a singular A, X is not finite."""
    matrix, right = call.value(0), call.value(1)
    if isinstance(matrix, np.ndarray):
        return product(call, _inverse(call, matrix), right)
    size = _rows(call)
    batch = np.broadcast_shapes(call.shape(0)[:-2], call.shape(1)[:-2])

    def beside(*i: Index) -> Expr:
        *b, r, c = i
        own = call.read(matrix, (*b, r, f.min(c, size - 1)))
        return f.where(as_expr(c) < size, own, call.read(right, (*b, r, f.max(c - size, 0))))

    left = define("beside", (*batch, size, size + call.shape(1)[-1]), beside)
    for row in range(size):
        left = _without_column(left, row)
    return left


def _inverse(call: Call, matrix: Array) -> Array:
    """The inverse of a known matrix, of any number of rows."""
    try:
        return np.linalg.inv(matrix.astype(np.float64)).astype(matrix.dtype)
    except np.linalg.LinAlgError as error:
        raise call.unsupported(f"a known matrix of it has no inverse: {error}") from error


def _rows(call: Call) -> int:
    """The rows of a square matrix."""
    shape = call.shape()
    if shape[-1] != shape[-2]:
        raise call.unsupported(f"a matrix of it is {shape[-2:]}; it may be square")
    if shape[-1] > _LARGEST_MATRIX:
        raise call.unsupported(f"it has {shape[-1]} rows; {_LARGEST_MATRIX} may be")
    return shape[-1]


def _largest(left: Tensor, rows: int, first: int = 0) -> Tensor:
    """Which of the rows from `first` on has the largest element in the first column."""
    batch = shape_of(left)[:-2]
    column = define("column", (*batch, rows), lambda *i: f.abs(left[(*i[:-1], i[-1] + first, 0)]))
    return ops.argmax(column, -1, dtype="int32")


def _without_column(left: Tensor, row: int) -> Tensor:
    """Rows of which but one had zeros in the first column, which is left out."""
    *batch, rows, columns = shape_of(left)
    at = _largest(left, rows - row, row)

    def eliminated(*i: Index) -> Expr:
        *b, r, c = i
        pivot = at[tuple(b)] + row
        # The rows of the pivot and of this step change places.
        own = f.where(f.equal(as_expr(r), pivot), row, as_expr(r))
        share = left[(*b, pivot, c + 1)] / left[(*b, pivot, 0)]
        rest = left[(*b, own, c + 1)] - left[(*b, own, 0)] * share
        return f.where(f.equal(as_expr(r), row), share, rest)

    return define("eliminated", (*batch, rows, columns - 1), eliminated)


def _pivots(call: Call) -> Iterator[Tensor]:
    """The pivots of a matrix, whose product is its determinant."""
    left = call.tensor(0)
    for rows in range(_rows(call), 0, -1):
        pivot, left = _eliminated(left, rows)
        yield pivot


def _eliminated(left: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The signed pivot of a matrix, and the matrix without the pivot's row and column."""
    batch, at = shape_of(left)[:-2], _largest(left, rows)

    def pivot(b: Sequence[Index]) -> Expr:
        return left[(*b, at[tuple(b)], 0)]

    def rest(*i: Index) -> Expr:
        *b, r, c = i
        # The first row stands where the pivot's row was.
        row = f.where(f.equal(at[tuple(b)], r + 1), 0, as_expr(r + 1))
        share = left[(*b, row, 0)] / f.where(f.equal(pivot(b), 0), 1, pivot(b))
        return left[(*b, row, c + 1)] - share * left[(*b, at[tuple(b)], c + 1)]

    made = define("pivot", batch, lambda *b: f.where(f.equal(at[b], 0), pivot(b), -pivot(b)))
    return made, left if rows == 1 else define("eliminated", (*batch, rows - 1, rows - 1), rest)
