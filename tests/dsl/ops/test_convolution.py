"""Convolutions against loops over windows, and scatters for the transposed one."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loopwright as lw
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.ops.check import pads_of, per_axis
from loopwright.dsl.workload import workload
from tests.dsl.compute import Array, check, compute, draw, last

ops = lw.ops
T = lw.tensor


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


def test_a_layer_of_operators_is_one_workload() -> None:
    x, w, b = T("x", (1, 3, 7, 7)), T("w", (3, 3, 3, 3), constant=True), T("b", (3,))
    out = ops.relu(ops.add(ops.conv2d(x, w, padding=1, bias=b), x))
    made = workload(out)
    assert [t.name for t in made.stages] == ["x_pad", "conv2d", "bias_add", "add", "relu"]
    assert [t.name for t in made.inputs] == ["x", "w", "b"]
    plain = slow_conv(draw(x), draw(w), (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    check(out, np.maximum(plain + draw(b).reshape(1, 3, 1, 1) + draw(x), 0), x, w, b)
