"""What the operators refuse, and how they say it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright.dsl.errors import LoopwrightError, NotationError, ShapeError

ops = lw.ops
T = lw.tensor

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
    (lambda: ops.conv2d(X, W, layout="NHWC"), ShapeError, "as NHWC takes HWIO"),
    (lambda: ops.conv2d(X, W, accumulate="int32"), ShapeError, "x is float32, whose fractions"),
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
    (lambda: ops.dense(T("x", ()), T("w", (7, 4))), ShapeError, "needs 1 or more axes"),
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
    (lambda: ops.batch_matmul(T("a", (5,)), T("b", (5, 7))), ShapeError, "needs 2 or more axes"),
    (
        lambda: ops.cumsum(X, reverse="yes"),
        NotationError,
        "cumsum: reverse is str 'yes'; it is True",
    ),
    (lambda: ops.cummax(X, 1, 2), NotationError, "cummax: reverse is int 2; it is True or False"),
    (lambda: ops.topk(X, 2, largest=None), NotationError, "topk: largest is None"),
    (lambda: ops.sort(X, descending="no"), NotationError, "sort: descending is str 'no'"),
    (lambda: ops.argmax(X, keepdims=0.5), NotationError, "argmax: keepdims is float 0.5"),
    (lambda: ops.attention(X, X, X, causal=X), NotationError, "attention: causal is "),
    (lambda: ops.matmul(X, X, "b"), NotationError, "matmul: transpose_a is str 'b'"),
    (lambda: ops.global_avg_pool2d(X, ()), NotationError, r"keepdims is tuple \(\); it is True"),
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
