"""Pooling against loops over windows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.ops.check import pads_of, per_axis
from tests.dsl.compute import Array, check, draw, last

ops = lw.ops
T = lw.tensor


def slow_pool(
    x: Array,
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: int,
    f: Callable[..., Any],
) -> Array:
    spans = [dilation * (r - 1) + 1 for r in window]
    sizes = [(h - n) // s + 1 for h, n, s in zip(x.shape[2:], spans, stride, strict=True)]
    out = np.zeros((*x.shape[:2], *sizes))
    for y, z in np.ndindex(*sizes):
        top, left = y * stride[0], z * stride[1]
        patch = x[:, :, top : top + spans[0] : dilation, left : left + spans[1] : dilation]
        out[:, :, y, z] = f(patch, axis=(2, 3))
    return out


POOLS = [
    (2, None, 0, 1),
    ((3, 2), (2, 1), 0, 1),
    (3, 2, 1, 1),
    ((2, 3), 2, ((0, 1), (1, 0)), 2),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("case", POOLS)
def test_max_pool2d_takes_the_greatest(case: tuple[Any, ...], dtype: str, layout: str) -> None:
    window, stride, padding, dilation = case
    x = draw(T("x", (2, 3, 7, 11), dtype)) - (0 if dtype == "float32" else 100)
    lowest = -np.inf if dtype == "float32" else -128
    padded = np.pad(x, ((0, 0), (0, 0), *pads_of("", padding, 2)), constant_values=lowest)
    taps = per_axis("", "", window, 2, 1)
    steps = taps if stride is None else per_axis("", "", stride, 2, 1)
    expected = slow_pool(padded, taps, steps, dilation, np.max)
    if layout == "NHWC":
        x, expected = last(x), last(expected)
    t = T("x", x.shape, dtype)
    out = ops.max_pool2d(t, window, stride, padding, dilation, layout)
    assert out.dtype == dtype
    check(out, expected, given={t: x.astype(dtype)})


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("case", [case for case in POOLS if case[3] == 1] + [(3, 2, (1, 0), 1)])
def test_avg_pool2d_takes_the_mean(case: tuple[Any, ...], include: bool, layout: str) -> None:
    window, stride, padding, _ = case
    x = draw(T("x", (2, 3, 7, 11)))
    widths = ((0, 0), (0, 0), *pads_of("", padding, 2))
    padded = np.pad(x, widths, constant_values=0 if include else np.nan)
    taps = per_axis("", "", window, 2, 1)
    steps = taps if stride is None else per_axis("", "", stride, 2, 1)
    expected = slow_pool(padded, taps, steps, 1, np.nanmean)
    if layout == "NHWC":
        x, expected = last(x), last(expected)
    t = T("x", x.shape)
    check(ops.avg_pool2d(t, window, stride, padding, include, layout), expected, given={t: x})


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_global_avg_pool2d_takes_the_mean_of_a_channel(keepdims: bool, layout: str) -> None:
    x = T("x", (2, 3, 5, 7))
    axes = (1, 2) if layout == "NHWC" else (2, 3)
    expected = draw(x).mean(axis=axes, keepdims=keepdims)
    check(ops.global_avg_pool2d(x, keepdims, layout), expected, x)
