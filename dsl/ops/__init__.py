"""Operators, each a few lines of the notation: a library, and examples of how to write one."""

from loopwright.dsl.ops.attention import attention
from loopwright.dsl.ops.convolution import conv1d, conv2d, conv2d_transpose, depthwise_conv2d
from loopwright.dsl.ops.einsum import einsum  # noqa: F401 - who writes lw.ops.einsum means it
from loopwright.dsl.ops.elementwise import (
    add,
    bias_add,
    clip,
    div,
    gelu,
    leaky_relu,
    maximum,
    minimum,
    mul,
    relu,
    sigmoid,
    silu,
    sub,
    tanh,
)
from loopwright.dsl.ops.linear import batch_matmul, dense, matmul
from loopwright.dsl.ops.normalization import batch_norm, layer_norm, log_softmax, softmax
from loopwright.dsl.ops.pooling import avg_pool2d, global_avg_pool2d, max_pool2d
from loopwright.dsl.ops.scan import cummax, cummin, cumprod, cumsum
from loopwright.dsl.ops.selection import argmax, argmin, argsort, sort, topk


def __dir__() -> list[str]:
    """Operators alone; not the modules that have them."""
    return sorted(__all__)


__all__ = [
    "add",
    "argmax",
    "argmin",
    "argsort",
    "attention",
    "avg_pool2d",
    "batch_matmul",
    "batch_norm",
    "bias_add",
    "clip",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dense",
    "depthwise_conv2d",
    "div",
    "gelu",
    "global_avg_pool2d",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "matmul",
    "max_pool2d",
    "maximum",
    "minimum",
    "mul",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "sort",
    "sub",
    "tanh",
    "topk",
]
