"""The operators in plain NumPy: in float64 they say what is right.

Nothing here is shared with Loopwright, whose results are compared with these too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from suites.row import Row

from contenders.contract import filled, strides_and_pads

Array = np.ndarray
Arguments = Mapping[str, Any]


def reference(row: Row) -> Array:
    """The result of a row, in float64."""
    inputs = {name: a.astype(np.float64) for name, a in row.inputs().items()}
    return OPERATORS[row.operator](filled(row, inputs))


def error(found: Array, expected: Array) -> float:
    """The largest deviation as a share of the largest magnitude."""
    if found.shape != expected.shape:
        return float("inf")
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def product(a: Arguments) -> Array:
    one = a["a"].swapaxes(-1, -2) if a.get("transpose_a") else a["a"]
    other = a["b"].swapaxes(-1, -2) if a.get("transpose_b") else a["b"]
    return one @ other


def einsum(a: Arguments) -> Array:
    return np.einsum(a["spec"], *(v for n, v in a.items() if n != "spec"), optimize=True)


def _windows(x: Array, size: tuple[int, int], stride: int, pad: int, fill: float) -> Array:
    """(N, C, Y, X, R, S)"""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return sliding_window_view(padded, size, axis=(2, 3))[:, :, ::stride, ::stride]


def _conv2d(a: Arguments) -> Array:
    return _convolved(a["x"], a["w"], *strides_and_pads(a), a.get("groups", 1))


def _convolved(x: Array, w: Array, stride: int, pad: int, groups: int) -> Array:
    windows = _windows(x, w.shape[2:], stride, pad, 0.0)
    n, _, height, width, *_ = windows.shape
    windows = windows.reshape(n, groups, -1, *windows.shape[2:])
    grouped = w.reshape(groups, -1, *w.shape[1:])
    y = np.einsum("ngcyxrs,gocrs->ngoyx", windows, grouped, optimize=True)
    return y.reshape(n, -1, height, width)


def _conv2d_transpose(a: Arguments) -> Array:
    x, w = a["x"], a["w"]
    stride, pad = strides_and_pads(a)
    n, c, height, width = x.shape
    spread = np.zeros((n, c, (height - 1) * stride + 1, (width - 1) * stride + 1), x.dtype)
    spread[:, :, ::stride, ::stride] = x
    turned = w[:, :, ::-1, ::-1].swapaxes(0, 1)
    return _convolved(spread, turned, 1, w.shape[2] - 1 - pad, 1)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(a: Arguments) -> Array:
    centred = a["x"] - a["x"].mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * a["scale"] + a["shift"]


def _attention(a: Arguments) -> Array:
    scores = a["q"] @ a["k"].swapaxes(-1, -2) / np.sqrt(a["q"].shape[-1])
    return _softmax(scores) @ a["v"]


def _pool(a: Arguments, fill: float) -> Array:
    window = a["window"]
    return _windows(a["x"], (window, window), *strides_and_pads(a), fill)


OPERATORS: dict[str, Callable[[Arguments], Array]] = {
    "matmul": product,
    "batch_matmul": product,
    "einsum": einsum,
    "dense": lambda a: a["x"] @ a["w"].T,
    "conv2d": _conv2d,
    "depthwise_conv2d": lambda a: _conv2d({**a, "groups": a["x"].shape[1]}),
    "conv2d_transpose": _conv2d_transpose,
    "softmax": lambda a: _softmax(a["x"]),
    "layer_norm": _layer_norm,
    "attention": _attention,
    "max_pool2d": lambda a: _pool(a, -np.inf).max((-1, -2)),
    "avg_pool2d": lambda a: _pool(a, 0.0).mean((-1, -2)),
    "global_avg_pool2d": lambda a: a["x"].mean((2, 3)),
}
