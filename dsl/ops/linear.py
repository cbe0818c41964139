"""Matrix products."""

from __future__ import annotations

from loopwright.dsl.errors import ShapeError
from loopwright.dsl.functions import cast
from loopwright.dsl.index import Index, indices
from loopwright.dsl.ops.check import any_shape, flags, same_dtype, same_extent, shape_of, sum_types
from loopwright.dsl.ops.elementwise import axes_of, broadcast_shapes, read, with_bias
from loopwright.dsl.tensor import Tensor


def dense(
    x: Tensor, w: Tensor, bias: Tensor | None = None, accumulate: str | None = None
) -> Tensor:
    """A fully connected layer: `out[n, o] += x[n, k] * w[o, k]`, then `+ bias[o]`.

    Parameters
    ----------
    x: (…, K), any number of leading axes.
    w: (O, K), as torch's Linear keeps it.
    bias: (O,), of the result's dtype, or cast to `accumulate`.
    accumulate: a wider dtype to multiply, sum and return in; by default that of x.

    Returns
    -------
    (…, O)
    """
    shape = any_shape("dense", "x", x, least=1)
    _, inner = shape_of("dense", "w", w, ("O", "K"))
    same_extent("dense", ("K, the last axis of x,", shape[-1]), ("K of w", inner))
    same_dtype("dense", accumulate, x=x, w=w, bias=bias)
    wide, dtype = sum_types(x, accumulate)
    rows = axes_of(shape[:-1])
    o, k = indices("o k")
    out = Tensor("dense")
    out[(*rows, o)] += cast(x[(*rows, k)], wide) * cast(w[o, k], wide)
    return with_bias("dense", out, bias, -1, dtype)


def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    accumulate: str | None = None,
) -> Tensor:
    """A product of two matrices: `out[i, j] += a[i, k] * b[k, j]`.

    Parameters
    ----------
    a: (M, K), or (K, M) if `transpose_a`.
    b: (K, N), or (N, K) if `transpose_b`.
    accumulate: a wider dtype to multiply, sum and return in; by default that of a.

    Returns
    -------
    (M, N)
    """
    flags("matmul", transpose_a=transpose_a, transpose_b=transpose_b)
    shape_of("matmul", "a", a, "KM" if transpose_a else "MK")
    shape_of("matmul", "b", b, "NK" if transpose_b else "KN")
    return _matmul("matmul", a, b, (transpose_a, transpose_b), accumulate)


def batch_matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    accumulate: str | None = None,
) -> Tensor:
    """Matrix products side by side: `out[b, i, j] += a[b, i, k] * b[b, k, j]`.

    Parameters
    ----------
    a: (…, M, K), or (…, K, M) if `transpose_a`; the leading axes of a and b broadcast.
    b: (…, K, N), or (…, N, K) if `transpose_b`.
    accumulate: a wider dtype to multiply, sum and return in; by default that of a.

    Returns
    -------
    (…, M, N)
    """
    flags("batch_matmul", transpose_a=transpose_a, transpose_b=transpose_b)
    any_shape("batch_matmul", "a", a, least=2)
    any_shape("batch_matmul", "b", b, least=2)
    return _matmul("batch_matmul", a, b, (transpose_a, transpose_b), accumulate)


def _matmul(
    op: str, a: Tensor, b: Tensor, transposed: tuple[bool, bool], accumulate: str | None
) -> Tensor:
    a_shape, b_shape = any_shape(op, "a", a), any_shape(op, "b", b)
    batch = broadcast_shapes([a_shape[:-2], b_shape[:-2]])
    if batch is None:
        raise ShapeError(
            f"{op}: the leading axes of a {a_shape} and b {b_shape} do not broadcast; they must "
            "be equal or 1"
        )
    inner_a, inner_b = a_shape[-2 if transposed[0] else -1], b_shape[-1 if transposed[1] else -2]
    same_extent(op, ("K of a", inner_a), ("K of b", inner_b))
    same_dtype(op, accumulate, a=a, b=b)
    lead = axes_of(batch)
    i = Index("i", a_shape[-1 if transposed[0] else -2])
    j = Index("j", b_shape[-2 if transposed[1] else -1])
    k = Index("k", inner_a)
    x = read(a, (*lead, *((k, i) if transposed[0] else (i, k))))
    y = read(b, (*lead, *((j, k) if transposed[1] else (k, j))))
    out = Tensor(op)
    dtype = accumulate or a.dtype
    out[(*lead, i, j)] += cast(x, dtype) * cast(y, dtype)
    return out
