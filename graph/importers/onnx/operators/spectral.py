"""Fourier transforms, as products with the matrix of their roots of unity: n² products for n
samples."""

from __future__ import annotations

import numpy as np

from loopwright.dsl import functions as f
from loopwright.dsl.expr import Expr
from loopwright.dsl.index import Index, as_affine
from loopwright.graph.importers.onnx.call import Call, operator
from loopwright.graph.importers.onnx.values import Array, Value, define

_LONGEST = 4096
"""Samples of a transform, whose matrix then has 256 MiB."""
PRODUCTS = f"lengths and axes must be known; n² products for n samples, at most {_LONGEST}"


def _roots(
    call: Call, length: int, given: int, parts: int, inverse: bool, onesided: bool
) -> Array:
    """The matrix `[k, n, p, c]` that takes part c of sample n to part p of bin k; part 0 is real.

    Parameters
    ----------
    length: of the transform, whose further samples are zeros.
    given: samples that there are.
    parts: 1 for real samples, 2 for complex ones.
    """
    if length > _LONGEST:
        raise call.unsupported(f"it transforms {length} samples; {_LONGEST} may be")
    real = onesided and inverse
    k = np.arange(length // 2 + 1 if onesided and not inverse else length)[:, None]
    n = np.arange(min(given, length // 2 + 1 if real else length))
    angle = 2 * np.pi * ((k * n) % length) / length * (1 if inverse else -1)
    cos, sin = np.cos(angle), np.sin(angle)
    matrix = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    if real:  # the bins that are left out are conjugates of these
        matrix = matrix[:, :, :1] * np.where((n == 0) | (2 * n == length), 1, 2)[:, None, None]
    return matrix[..., :parts] / (length if inverse else 1)


@operator("DFT", limit=PRODUCTS)
def _dft(call: Call) -> Value:
    x, shape = call.tensor(0), call.shape()
    inverse, onesided = bool(call.get("inverse", 0)), bool(call.get("onesided", 0))
    if call.version >= 20:
        axis = call.checked_axis(call.integer(2, -2), len(shape))
    else:
        axis = call.axis(1)
    default = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    roots = _roots(call, call.integer(1, default), shape[axis], shape[-1], inverse, onesided)
    table = call.as_tensor(roots.astype(x.dtype))
    bins, samples, parts, _ = roots.shape
    n, c = Index("n", samples), Index("c", shape[-1])
    new = [bins if d == axis else m for d, m in enumerate(shape[:-1])]

    def body(*i: Index) -> Expr:
        at = [n if d == axis else k for d, k in enumerate(i[:-1])]
        return f.sum(x[(*at, c)] * table[i[axis], n, i[-1], c])

    return define("dft", (*new, parts), body)


@operator("STFT", limit=PRODUCTS)
def _stft(call: Call) -> Value:
    x, (batch, samples, *rest) = call.tensor(0), call.shape()
    step, parts = call.integer(1), rest[0] if rest else 1
    window = call.optional(2)
    length = call.integer(3, call.shape(2)[0] if window is not None else samples)
    roots = _roots(call, length, length, parts, False, bool(call.get("onesided", 1)))
    if isinstance(window, np.ndarray):
        roots = roots * window[:, None, None]
    table = call.as_tensor(roots.astype(x.dtype))
    if window is not None and not isinstance(window, np.ndarray):
        plain, given = table, call.tensor(2)
        table = define("windowed", roots.shape, lambda k, n, p, c: plain[k, n, p, c] * given[n])
    n, c = Index("n", length), Index("c", parts)

    def body(b: Index, t: Index, k: Index, p: Index) -> Expr:
        at = (b, t * step + n, c) if rest else (b, t * step + n)
        return f.sum(x[tuple(at)] * table[k, n, p, c if rest else as_affine(0)])

    frames = (samples - length) // step + 1
    if not rest:
        c = Index("c", 1)
    return define("stft", (batch, frames, roots.shape[0], 2), body)


@operator("MelWeightMatrix", limit="its inputs must be known")
def _mel_weight_matrix(call: Call) -> Value:
    for number in range(len(call.inputs)):
        call.required(number)
    raise AssertionError("what follows from known values alone is computed before")
