"""Operators against slow NumPy: loops over windows, scatters, and the textbook's formulas."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.errors import LoopwrightError, NotationError, ShapeError
from loopwright.dsl.ops.check import pads_of, per_axis
from loopwright.dsl.tensor import Tensor
from loopwright.dsl.workload import workload
from tests.dsl.compute import Array, compute, draw

ops = lw.ops
T = lw.tensor


def check(out: Tensor, expected: Array, *inputs: Tensor, given: Any = None) -> None:
    values = {t: draw(t) for t in inputs} if given is None else given
    result = compute(out, values)
    assert result.shape == out.shape == expected.shape
    exact = np.asarray(expected, np.float64)
    np.testing.assert_allclose(result.astype(np.float64), exact, rtol=1e-4, atol=1e-4)


def slow_conv(
    x: Array,
    w: Array,
    stride: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """Channels first, any number of spatial axes: one output element at a time."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    outer, inner, *window = w.shape
    spans = [d * (r - 1) + 1 for d, r in zip(dilation, window, strict=True)]
    sizes = [(h - n) // s + 1 for h, n, s in zip(x.shape[2:], spans, stride, strict=True)]
    out = np.zeros((x.shape[0], outer, *sizes))
    for o, *spot in itertools.product(range(outer), *map(range, sizes)):
        first = o // (outer // groups) * inner
        starts = [y * s for y, s in zip(spot, stride, strict=True)]
        ranges = zip(starts, spans, dilation, strict=True)
        patch = x[
            (slice(None), slice(first, first + inner), *(slice(a, a + n, d) for a, n, d in ranges))
        ]
        out[(slice(None), o, *spot)] = (patch * w[o]).reshape(len(x), -1).sum(1)
    return out


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


def last(x: Array) -> Array:
    """NCHW to NHWC."""
    return np.moveaxis(x, 1, -1)


CONVOLUTIONS = [
    # x (N, C, H, W), w (O, C / groups, R, S), stride, padding, dilation, groups
    ((2, 3, 7, 11), (5, 3, 3, 3), 1, 0, 1, 1),
    ((1, 3, 11, 7), (7, 3, 5, 3), 2, (2, 1), 1, 1),
    ((2, 2, 13, 9), (3, 2, 3, 2), (3, 1), ((0, 1), (2, 0)), (2, 3), 1),
    ((1, 6, 7, 5), (9, 2, 3, 3), 1, 1, 1, 3),
    ((2, 5, 7, 5), (5, 1, 3, 3), 2, 1, 1, 5),
    ((1, 3, 5, 7), (6, 1, 2, 3), 1, 0, 2, 3),
    ((3, 7, 5, 5), (11, 7, 1, 1), 2, 0, 1, 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0, 1, 1),
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv2d_is_the_sum_over_the_window(case: tuple[Any, ...], layout: str) -> None:
    x_shape, w_shape, stride, padding, dilation, groups = case
    x, w = draw(T("x", x_shape)), draw(T("w", w_shape))
    options = (per_axis("", "", stride, 2, 1), pads_of("", padding, 2))
    expected = slow_conv(x, w, *options, per_axis("", "", dilation, 2, 1), groups)
    if layout == "NHWC":
        x, w, expected = last(x), w.transpose(2, 3, 1, 0), last(expected)
    a, b = T("x", x.shape), T("w", w.shape, constant=True)
    out = ops.conv2d(a, b, stride, padding, dilation, groups, layout)
    assert out.name == "conv2d"
    check(out, expected, given={a: x, b: w})


@given(
    n=st.integers(1, 2),
    groups=st.integers(1, 3),
    inner=st.integers(1, 3),
    per_group=st.integers(1, 3),
    extent=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2),
    channels_last=st.booleans(),
)
def test_conv2d_of_any_geometry(
    n: int,
    groups: int,
    inner: int,
    per_group: int,
    extent: tuple[int, int],
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]],
    channels_last: bool,
) -> None:
    x = draw(T("x", (n, groups * inner, *extent)))
    w = draw(T("w", (groups * per_group, inner, *window)))
    layout = "NHWC" if channels_last else "NCHW"
    laid_x = last(x) if channels_last else x
    laid_w = w.transpose(2, 3, 1, 0) if channels_last else w
    a, b = T("x", laid_x.shape), T("w", laid_w.shape)
    spans = [d * (r - 1) + 1 for d, r in zip(dilation, window, strict=True)]
    room = [e + sum(p) - s for e, p, s in zip(extent, padding, spans, strict=True)]
    if min(room) < 0:
        with pytest.raises(ShapeError, match="the window spans"):
            ops.conv2d(a, b, stride, padding, dilation, groups, layout)
        return
    expected = slow_conv(x, w, stride, padding, dilation, groups)
    out = ops.conv2d(a, b, stride, padding, dilation, groups, layout)
    check(out, last(expected) if channels_last else expected, given={a: laid_x, b: laid_w})


@pytest.mark.parametrize("layout", ["NCW", "NWC"])
@pytest.mark.parametrize(
    ("shape", "weights", "stride", "padding", "dilation", "groups"),
    [
        ((2, 3, 11), (5, 3, 3), 1, 0, 1, 1),
        ((1, 4, 13), (6, 2, 5), 2, 2, 1, 2),
        ((2, 3, 7), (3, 1, 3), 1, ((2, 0),), 2, 3),
        ((1, 2, 17), (3, 2, 2), (3,), [1], [4], 1),
    ],
)
def test_conv1d_is_the_sum_over_the_window(
    shape: Any, weights: Any, stride: Any, padding: Any, dilation: Any, groups: int, layout: str
) -> None:
    x, w = draw(T("x", shape)), draw(T("w", weights))
    options = (per_axis("", "", stride, 1, 1), pads_of("", padding, 1))
    expected = slow_conv(x, w, *options, per_axis("", "", dilation, 1, 1), groups)
    if layout == "NWC":
        x, w, expected = last(x), w.transpose(2, 1, 0), last(expected)
    a, b = T("x", x.shape), T("w", w.shape)
    out = ops.conv1d(a, b, stride, padding, dilation, groups, layout)
    assert out.name == "conv1d"
    check(out, expected, given={a: x, b: w})


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise_conv2d_is_conv2d_with_a_group_a_channel(multiplier: int, layout: str) -> None:
    x, w = draw(T("x", (2, 5, 9, 7))), draw(T("w", (5 * multiplier, 1, 3, 3)))
    expected = slow_conv(x, w, (2, 2), ((1, 1), (1, 1)), (1, 1), 5)
    if layout == "NHWC":
        x, w, expected = last(x), w.transpose(2, 3, 1, 0), last(expected)
    a, b = T("x", x.shape), T("w", w.shape)
    out = ops.depthwise_conv2d(a, b, 2, 1, layout=layout)
    check(out, expected, given={a: x, b: w})
    assert workload(out) == workload(ops.conv2d(a, b, 2, 1, groups=5, layout=layout))
    assert [i.name for i in out.definition.reduce] == ["r", "s"]


def slow_transpose(
    x: Array, w: Array, stride: tuple[int, int], pads: Any, extra: tuple[int, int]
) -> Array:
    """Every element of x, spread over the result; what is padded is then cut off."""
    n, _, height, width = x.shape
    _, outer, *window = w.shape
    rows = (height - 1) * stride[0] + window[0] + extra[0]
    columns = (width - 1) * stride[1] + window[1] + extra[1]
    out = np.zeros((n, outer, rows, columns))
    for y, z in np.ndindex(height, width):
        spot = np.tensordot(x[:, :, y, z].astype(np.float64), w, axes=1)
        top, left = y * stride[0], z * stride[1]
        out[:, :, top : top + window[0], left : left + window[1]] += spot
    (top, bottom), (left, right) = pads
    return out[:, :, top : rows - bottom, left : columns - right]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("shape", "weights", "stride", "padding", "extra"),
    [
        ((2, 3, 5, 7), (3, 2, 3, 3), 1, 0, 0),
        ((1, 5, 4, 3), (5, 3, 4, 4), 2, 1, 0),
        ((1, 2, 5, 3), (2, 7, 3, 3), 2, 1, 1),
        ((2, 3, 3, 5), (3, 2, 2, 5), (3, 2), (0, 3), (2, 1)),
        ((1, 3, 5, 5), (3, 2, 1, 1), 2, 1, 0),  # more padding than window
        ((1, 2, 3, 3), (2, 2, 3, 2), 3, ((2, 0), (1, 2)), (0, 2)),
    ],
)
def test_conv2d_transpose_scatters_the_window(
    shape: Any, weights: Any, stride: Any, padding: Any, extra: Any, layout: str
) -> None:
    x, w = draw(T("x", shape)), draw(T("w", weights))
    steps, more = per_axis("", "", stride, 2, 1), per_axis("", "", extra, 2, 0)
    expected = slow_transpose(x, w, steps, pads_of("", padding, 2), more)
    if layout == "NHWC":
        x, w, expected = last(x), w.transpose(2, 3, 0, 1), last(expected)
    a, b = T("x", x.shape), T("w", w.shape)
    out = ops.conv2d_transpose(a, b, stride, padding, extra, layout)
    check(out, expected, given={a: x, b: w})


def test_conv2d_transpose_is_the_adjoint_of_conv2d() -> None:
    x, w = T("x", (1, 3, 11, 9)), T("w", (5, 3, 3, 4))
    y = T("y", (1, 5, 6, 4))
    a, b, c = draw(x), draw(w), draw(y)
    forward = compute(ops.conv2d(x, w, 2, 1), {x: a, w: b})
    back = compute(ops.conv2d_transpose(y, w, 2, 1, (0, 1)), {y: c, w: b})
    np.testing.assert_allclose((forward * c).sum(), (a * back).sum(), rtol=1e-4)


@pytest.mark.parametrize("name", ["conv2d", "conv1d", "depthwise", "transpose", "dense"])
def test_a_bias_is_added_to_every_result(name: str) -> None:
    bias = T("bias", (5,))
    x, w = {
        "conv2d": (T("x", (2, 5, 7, 3)), T("w", (5, 5, 3, 3))),
        "conv1d": (T("x", (2, 5, 7)), T("w", (5, 5, 3))),
        "depthwise": (T("x", (2, 5, 7, 3)), T("w", (5, 1, 3, 3))),
        "transpose": (T("x", (2, 5, 7, 3)), T("w", (5, 5, 3, 3))),
        "dense": (T("x", (2, 3, 5)), T("w", (5, 5))),
    }[name]
    op: Any = {
        "depthwise": ops.depthwise_conv2d,
        "transpose": ops.conv2d_transpose,
    }.get(name) or getattr(ops, name)
    values = {x: draw(x), w: draw(w)}
    plain = compute(op(x, w), values)
    shape = [
        5 if axis == (plain.ndim - 1 if name == "dense" else 1) else 1
        for axis in range(plain.ndim)
    ]
    out = op(x, w, bias=bias)
    assert out.name == "bias_add"
    check(out, plain + draw(bias).reshape(shape), given={**values, bias: draw(bias)})


@pytest.mark.parametrize(
    ("narrow", "wide"), [("int8", "int32"), ("uint8", "int32"), ("float16", "float32")]
)
def test_products_accumulate_in_a_wider_type(narrow: str, wide: str) -> None:
    x, w, b = T("x", (1, 67, 5, 5), narrow), T("w", (3, 67, 3, 3), narrow), T("b", (3,), narrow)
    values = {t: draw(t) for t in (x, w, b)}
    a, k, c = (values[t].astype(np.float64) for t in (x, w, b))
    ones = ((0, 0), (0, 0))
    exact = slow_conv(a, k, (1, 1), ones, (1, 1), 1) + c.reshape(1, 3, 1, 1)
    out = ops.conv2d(x, w, bias=b, accumulate=wide)
    assert out.dtype == wide
    check(out, exact, given=values)
    p, q = T("p", (3, 211), narrow), T("q", (5, 211), narrow)
    pair = {p: draw(p), q: draw(q)}
    product = pair[p].astype(np.float64) @ pair[q].astype(np.float64).T
    check(ops.dense(p, q, accumulate=wide), product, given=pair)
    check(ops.matmul(p, q, transpose_b=True, accumulate=wide), product, given=pair)
    check(ops.batch_matmul(p, q, transpose_b=True, accumulate=wide), product, given=pair)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
def test_dense_multiplies_the_last_axis_by_rows_of_w(shape: tuple[int, ...]) -> None:
    x, w, b = T("x", shape), T("w", (5, 7)), T("b", (5,))
    expected = draw(x) @ draw(w).T
    check(ops.dense(x, w), expected, x, w)
    check(ops.dense(x, w, b), expected + draw(b), x, w, b)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("lead_a", "lead_b"), [((), ()), ((3,), (3,)), ((2, 1), (5,)), ((), (2, 3)), ((1,), (1,))]
)
def test_matrix_products_transpose_and_broadcast(
    transpose_a: bool, transpose_b: bool, lead_a: Any, lead_b: Any
) -> None:
    a = T("a", (*lead_a, *((5, 3) if transpose_a else (3, 5))))
    b = T("b", (*lead_b, *((7, 5) if transpose_b else (5, 7))))
    x = draw(a).swapaxes(-1, -2) if transpose_a else draw(a)
    y = draw(b).swapaxes(-1, -2) if transpose_b else draw(b)
    check(ops.batch_matmul(a, b, transpose_a, transpose_b), x @ y, a, b)
    if not lead_a and not lead_b:
        check(ops.matmul(a, b, transpose_a, transpose_b), x @ y, a, b)


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


def slow_softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_softmax_sums_to_one_along_its_axis(axis: int) -> None:
    x = T("x", (3, 5, 7))
    values = {x: draw(x) * 500}  # far beyond what exp can hold
    expected = slow_softmax(values[x], axis)
    check(ops.softmax(x, axis), expected, given=values)
    small = {x: draw(x)}
    check(ops.log_softmax(x, axis), np.log(slow_softmax(small[x], axis)), given=small)
    assert np.isfinite(compute(ops.log_softmax(x, axis), values)).all()


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm_has_mean_zero_and_variance_one(axis: int, affine: bool) -> None:
    x = T("x", (3, 5, 7))
    shape = x.shape[axis:]
    scale, shift = T("scale", shape), T("shift", shape)
    over = tuple(range(axis % 3, 3))
    a = draw(x).astype(np.float64)
    unit = (a - a.mean(over, keepdims=True)) / np.sqrt(a.var(over, keepdims=True) + 1e-5)
    if affine:
        out = ops.layer_norm(x, scale, shift, axis)
        check(out, unit * draw(scale) + draw(shift), x, scale, shift)
    else:
        check(ops.layer_norm(x, axis=axis), unit, x)


@pytest.mark.parametrize("axis", [1, -1, 0])
def test_batch_norm_uses_the_statistics_of_training(axis: int) -> None:
    x = T("x", (5, 3, 2, 7))
    c = x.shape[axis]
    mean, variance, scale, shift = (T(n, (c,)) for n in ("mean", "variance", "scale", "shift"))
    values = {t: draw(t) for t in (x, mean, variance, scale, shift)}
    values[variance] = np.abs(values[variance])
    spread = [c if d == axis % 4 else 1 for d in range(4)]
    a, m, v, g, b = (values[t].astype(np.float64) for t in values)
    unit = (a - m.reshape(spread)) / np.sqrt(v.reshape(spread) + 1e-3)
    full = unit * g.reshape(spread) + b.reshape(spread)
    check(ops.batch_norm(x, mean, variance, scale, shift, axis, 1e-3), full, given=values)
    del values[scale], values[shift]
    check(ops.batch_norm(x, mean, variance, axis=axis, epsilon=1e-3), unit, given=values)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "added", "both"])
def test_attention_is_a_softmax_of_scaled_scores(lead: tuple[int, ...], kind: str) -> None:
    q, k, v = T("q", (*lead, 5, 3)), T("k", (*lead, 7, 3)), T("v", (*lead, 7, 2))
    mask = T("mask", (5, 7), "bool" if kind in ("bool", "both") else "float32")
    values = {t: draw(t) for t in (q, k, v)}
    a, b, c = (values[t].astype(np.float64) for t in values)
    scores = a @ b.swapaxes(-1, -2) / math.sqrt(3)
    if kind in ("bool", "both"):
        values[mask] = draw(mask)
        values[mask][:, 0] = True
        scores = np.where(values[mask], scores, -np.inf)
    if kind == "added":
        values[mask] = draw(mask)
        scores = scores + values[mask]
    causal = kind in ("causal", "both")
    if causal:
        scores = np.where(np.tri(5, 7, dtype=bool), scores, -np.inf)
    out = ops.attention(q, k, v, mask if mask in values else None, causal)
    check(out, slow_softmax(scores, -1) @ c, given=values)
    order = ["q", "k", "mask", "v"] if mask in values else ["q", "k", "v"]
    assert [t.name for t in workload(out).inputs] == order


def test_attention_takes_a_scale_and_shares_keys_between_heads() -> None:
    q, k, v = T("q", (2, 3, 5, 4)), T("k", (2, 1, 7, 4)), T("v", (1, 7, 2))
    scores = draw(q) @ draw(k).swapaxes(-1, -2) * 0.5
    check(ops.attention(q, k, v, scale=0.5), slow_softmax(scores, -1) @ draw(v), q, k, v)


ERF = np.vectorize(math.erf)
UNARY: list[tuple[Callable[..., Tensor], Callable[[Array], Array]]] = [
    (ops.relu, lambda x: np.maximum(x, 0)),
    (ops.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    (lambda x: ops.clip(x, -0.5, 0.25), lambda x: np.clip(x, -0.5, 0.25)),
    (ops.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    (ops.tanh, np.tanh),
    (ops.gelu, lambda x: x / 2 * (1 + ERF(x / math.sqrt(2)))),
    (ops.silu, lambda x: x / (1 + np.exp(-x))),
]


@pytest.mark.parametrize(("op", "function"), UNARY)
@pytest.mark.parametrize("shape", [(), (7,), (3, 1, 5)])
def test_activations_work_on_each_element(
    op: Callable[..., Tensor], function: Callable[[Array], Array], shape: tuple[int, ...]
) -> None:
    x = T("x", shape)
    check(op(x), function(draw(x).astype(np.float64)), x)


BINARY: list[tuple[Callable[..., Tensor], Callable[..., Array]]] = [
    (ops.add, np.add),
    (ops.sub, np.subtract),
    (ops.mul, np.multiply),
    (ops.div, np.divide),
    (ops.maximum, np.maximum),
    (ops.minimum, np.minimum),
]


@pytest.mark.parametrize(("op", "function"), BINARY)
@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((3, 5), (3, 5)),
        ((3, 5), (5,)),
        ((3, 1), (1, 5)),
        ((), (3,)),
        ((2, 1, 3), (5, 1)),
        ((1,), (1,)),
    ],
)
def test_two_operands_broadcast_as_in_numpy(
    op: Callable[..., Tensor], function: Callable[..., Array], one: Any, two: Any
) -> None:
    x, y = T("x", one), T("y", two)
    values = {x: draw(x), y: draw(y) + 2}
    check(op(x, y), np.asarray(function(values[x], values[y])), given=values)
    assert op(x, y).name == op.__name__


@pytest.mark.parametrize(("op", "function"), BINARY)
def test_numbers_take_the_type_of_the_tensor(
    op: Callable[..., Tensor], function: Callable[..., Array]
) -> None:
    x = T("x", (3,), "float16")
    values = {x: draw(x) + np.float16(2)}
    assert op(x, 2).dtype == "float16"
    np.testing.assert_allclose(compute(op(x, 2), values), function(values[x], 2), rtol=2e-3)
    np.testing.assert_allclose(compute(op(2.5, x), values), function(2.5, values[x]), rtol=2e-3)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_bias_add_runs_along_an_axis(axis: int) -> None:
    x = T("x", (2, 3, 5))
    bias = T("bias", (x.shape[axis],))
    shape = [-1 if d == axis % 3 else 1 for d in range(3)]
    check(ops.bias_add(x, bias, axis), draw(x) + draw(bias).reshape(shape), x, bias)


def test_a_layer_of_operators_is_one_workload() -> None:
    x, w, b = T("x", (1, 3, 7, 7)), T("w", (3, 3, 3, 3), constant=True), T("b", (3,))
    out = ops.relu(ops.add(ops.conv2d(x, w, padding=1, bias=b), x))
    made = workload(out)
    assert [t.name for t in made.stages] == ["x_pad", "conv2d", "bias_add", "add", "relu"]
    assert [t.name for t in made.inputs] == ["x", "w", "b"]
    plain = slow_conv(draw(x), draw(w), (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    check(out, np.maximum(plain + draw(b).reshape(1, 3, 1, 1) + draw(x), 0), x, w, b)


X, W = T("x", (1, 4, 7, 7)), T("w", (6, 4, 3, 3))
REFUSED: list[tuple[Callable[[], Any], type[LoopwrightError], str]] = [
    (
        lambda: ops.conv2d(T("x", (4, 7, 7)), W),
        ShapeError,
        r"conv2d: x has 3 axes.*\(N, C, H, W\)",
    ),
    (lambda: ops.conv2d(X, T("w", (6, 4, 3))), ShapeError, r"conv2d: w has 3 .*\(O, I, H, W\)"),
    (lambda: ops.conv2d(X, W, layout="NWHC"), NotationError, "'NWHC'; use 'NCHW' or 'NHWC'"),
    (lambda: ops.conv1d(X, W, layout="NCHW"), NotationError, "conv1d: layout"),
    (
        lambda: ops.conv2d(X, W, stride=0),
        NotationError,
        "conv2d: stride is 0; give an integer ≥ 1",
    ),
    (
        lambda: ops.conv2d(X, W, stride=(1, 2, 3)),
        NotationError,
        r"stride is \(1, 2, 3\).* or 2 of",
    ),
    (lambda: ops.conv2d(X, W, stride=1.5), NotationError, "stride is 1.5"),
    (lambda: ops.conv2d(X, W, dilation=True), NotationError, "dilation is True"),
    (lambda: ops.conv2d(X, W, padding=-1), NotationError, "conv2d: padding is -1"),
    (lambda: ops.conv2d(X, W, padding=((1, 2, 3), 1)), NotationError, "padding is"),
    (lambda: ops.conv2d(X, W, padding="same"), NotationError, "padding is 'same'"),
    (lambda: ops.conv2d(X, W, groups=0), NotationError, "groups is 0"),
    (lambda: ops.conv2d(X, W, groups=2), ShapeError, "conv2d: x .* has 4 channels in 2 groups"),
    (lambda: ops.conv2d(X, T("w", (5, 2, 3, 3)), groups=2), ShapeError, "divide by the groups"),
    (lambda: ops.conv2d(X, T("w", (5, 4, 9, 1))), ShapeError, "window spans 9 but H of x.* 7"),
    (lambda: ops.conv2d(X, T("w", (6, 4, 3, 3), "int8")), ShapeError, "x is float32, w is int8"),
    (
        lambda: ops.conv2d(X, W, bias=T("b", (5,))),
        ShapeError,
        "conv2d: axis 1 .* is 6 but .* is 5",
    ),
    (lambda: ops.conv2d(X, W, bias=T("b", (6, 1))), ShapeError, "conv2d: bias has 2 axes"),
    (lambda: ops.conv2d(X, W, bias=T("b", (6,), "int32")), ShapeError, "bias is int32"),
    (lambda: ops.conv2d(X, W, accumulate="f64"), NotationError, "'f64' is not supported"),
    (lambda: ops.conv2d(T("u"), W), ShapeError, "conv2d: x is Tensor.*has a shape"),
    (lambda: ops.depthwise_conv2d(X, W), ShapeError, "depthwise_conv2d: x .* 4 groups"),
    (lambda: ops.conv2d_transpose(X, W), ShapeError, "C of x is 4 but C of w is 6"),
    (
        lambda: ops.conv2d_transpose(X, T("w", (4, 2, 3, 3)), 2, 0, 2),
        NotationError,
        "output_padding is 2, stride 2; it must be less",
    ),
    (
        lambda: ops.conv2d_transpose(X, T("w", (4, 2, 3, 3)), 1, 5),
        ShapeError,
        "conv2d_transpose: padding .* leaves nothing",
    ),
    (
        lambda: ops.dense(T("x", (3, 5)), T("w", (7, 4))),
        ShapeError,
        "dense: K.* is 5 but K of w is 4",
    ),
    (lambda: ops.dense(T("x", ()), T("w", (7, 4))), ShapeError, "needs 1 axes or more"),
    (lambda: ops.matmul(X, W), ShapeError, r"matmul: a has 4 axes.*\(M, K\)"),
    (
        lambda: ops.matmul(T("a", (3, 5)), T("b", (3, 5))),
        ShapeError,
        "K of a is 5 but K of b is 3",
    ),
    (
        lambda: ops.batch_matmul(T("a", (2, 3, 5)), T("b", (3, 5, 7))),
        ShapeError,
        "do not broadcast",
    ),
    (lambda: ops.batch_matmul(T("a", (5,)), T("b", (5, 7))), ShapeError, "needs 2 axes or more"),
    (lambda: ops.max_pool2d(X, 0), NotationError, "max_pool2d: window is 0"),
    (lambda: ops.max_pool2d(X, 9), ShapeError, "max_pool2d: the window spans 9"),
    (lambda: ops.max_pool2d(T("x", (7, 7)), 2), ShapeError, "max_pool2d: x has 2 axes"),
    (lambda: ops.avg_pool2d(T("x", (1, 1, 4, 4), "int8"), 2), ShapeError, "avg_pool2d: x is int8"),
    (lambda: ops.softmax(X, 4), NotationError, "softmax: axis is 4; .* from -4 to 3"),
    (lambda: ops.softmax(T("x", (3,), "int32")), ShapeError, "softmax: x is int32; lw.cast"),
    (lambda: ops.softmax(T("x", ())), ShapeError, "softmax: x has shape"),
    (
        lambda: ops.layer_norm(X, T("g", (5,))),
        ShapeError,
        r"scale has shape \(5,\); it needs \(7,\)",
    ),
    (lambda: ops.batch_norm(X, T("m", (5,)), T("v", (4,))), ShapeError, "is 4 but C of mean is 5"),
    (
        lambda: ops.add(X, T("y", (3,))),
        ShapeError,
        r"add: the shapes do not broadcast: x .*y \(3,\)",
    ),
    (lambda: ops.add(1, 2), ShapeError, "at least one must be a tensor"),
    (lambda: ops.add(X, T("y", (7,), "int8")), NotationError, r"add: float32 \+ int8"),
    (lambda: ops.gelu(T("x", (3,), "int8")), NotationError, "gelu: the number 0.5"),
    (
        lambda: ops.bias_add(X, T("b", (7,))),
        ShapeError,
        "axis 1 .* is 4 but the extent of bias is 7",
    ),
    (
        lambda: ops.attention(T("q", (5, 3)), T("k", (7, 4)), T("v", (7, 2))),
        ShapeError,
        "attention: D of q is 3 but D of k is 4",
    ),
    (
        lambda: ops.attention(T("q", (5, 3)), T("k", (7, 3)), T("v", (6, 2))),
        ShapeError,
        "S of k is 7 but S of v is 6",
    ),
    (
        lambda: ops.attention(T("q", (5, 3)), T("k", (7, 3)), T("v", (7, 2)), T("m", (5, 6))),
        ShapeError,
        r"mask \(5, 6\) does not broadcast",
    ),
    (
        lambda: ops.attention(
            T("q", (5, 3)), T("k", (7, 3)), T("v", (7, 2)), T("m", (5, 7), "int8")
        ),
        NotationError,
        "mask is int8; use bool, or float32",
    ),
]


@pytest.mark.parametrize(("attempt", "kind", "message"), REFUSED)
def test_arguments_that_do_not_fit_are_explained(
    attempt: Callable[[], Any], kind: type[LoopwrightError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        attempt()


def test_integers_of_numpy_are_options_too() -> None:
    two: Any = np.int64(2)
    assert ops.conv2d(X, W, stride=two, padding=[two, 1]).shape == (1, 6, 5, 4)
