"""torch, in the ways in which it does inference without compiling.

plain: tensors as they come, channels first.
channels_last: activations and weights of convolutions in that layout.
packed, packed_last: oneDNN's pointwise operators, which Inductor calls when it freezes a network;
    weights in oneDNN's own layout, activations channels first or last.
opaque: activations too are oneDNN's tensors, in the blocked layout of its choice.
mkl: dense layers by MKL, with packed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peers import UnableError
from suites.row import Arrays, Row

from contenders.contract import Prepared, filled, strides_and_pads
from contenders.placement import place_openmp

place_openmp()

try:
    import torch
    from torch.nn import functional as F  # noqa: N812
except ImportError as missing:
    raise UnableError("torch is not installed") from missing

torch.inference_mode().__enter__()  # for as long as the process lives
_CONVOLUTIONS = ("conv2d", "depthwise_conv2d", "conv2d_transpose")
_CHANNELS = (*_CONVOLUTIONS, "max_pool2d", "avg_pool2d", "global_avg_pool2d")
_NONE: tuple[Any, ...] = ("none", [], "")  # no operator fused


def plain(row: Row, inputs: Arrays, threads: int) -> Prepared:
    return Prepared(_OPERATORS[row.operator](_arguments(row, inputs, threads)))


def channels_last(row: Row, inputs: Arrays, threads: int) -> Prepared:
    if row.operator not in _CHANNELS:
        raise UnableError("no channels")
    a = _arguments(row, inputs, threads)
    return Prepared(_OPERATORS[row.operator](a | {n: _last(a[n]) for n in ("x", "w") if n in a}))


def packed(row: Row, inputs: Arrays, threads: int) -> Prepared:
    a = _arguments(row, inputs, threads)
    if row.operator == "dense":
        x = a["x"]
        w = torch.ops.mkldnn._reorder_linear_weight(a["w"], x.shape[0])
        linear = torch.ops.mkldnn._linear_pointwise
        return Prepared(lambda: linear(x, w, None, *_NONE))
    return _packed_convolution(row, a, a.get("x"))


def packed_last(row: Row, inputs: Arrays, threads: int) -> Prepared:
    a = _arguments(row, inputs, threads)
    return _packed_convolution(row, a, _last(a["x"]) if row.operator in _CHANNELS else None)


def opaque(row: Row, inputs: Arrays, threads: int) -> Prepared:
    if row.operator not in ("conv2d", "depthwise_conv2d"):
        raise UnableError("convolutions only")
    a = _arguments(row, inputs, threads)
    stride, pad, groups = _options(row, a)
    w = torch._C._nn.mkldnn_reorder_conv2d_weight(
        a["w"].to_mkldnn(), pad, stride, [1, 1], groups, list(a["x"].shape)
    )
    x = _blocked(a["x"])
    return Prepared(
        lambda: F.conv2d(x, w, None, stride, pad, 1, groups), lambda y: y.to_dense().numpy()
    )


def mkl(row: Row, inputs: Arrays, threads: int) -> Prepared:
    if row.operator != "dense" or not torch.backends.mkl.is_available():
        raise UnableError("dense layers only")
    a = _arguments(row, inputs, threads)
    x, w, rows = a["x"], a["w"], a["x"].shape[0]
    ready = torch.ops.mkl._mkl_reorder_linear_weight(w, rows)
    linear = torch.ops.mkl._mkl_linear
    return Prepared(lambda: linear(x, ready, w, None, rows))


def _arguments(row: Row, inputs: Arrays, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    return filled(row, {name: torch.from_numpy(a) for name, a in inputs.items()})


def _last(x: Any) -> Any:
    return x.contiguous(memory_format=torch.channels_last)


def _blocked(x: Any) -> Any:
    """An activation as another oneDNN operator would leave it: the result of a convolution that
    copies each channel. Fewer than 8 channels are an image's, which nothing has laid out."""
    channels = x.shape[1]
    if channels < 8:
        return x.to_mkldnn()
    same = torch.eye(channels).reshape(channels, channels, 1, 1).to_mkldnn()
    return F.conv2d(x.to_mkldnn(), same)


def _options(row: Row, a: Mapping[str, Any]) -> tuple[list[int], list[int], int]:
    stride, pad = strides_and_pads(a)
    groups = a["x"].shape[1] if row.operator == "depthwise_conv2d" else a.get("groups", 1)
    return [stride] * 2, [pad] * 2, groups


def _packed_convolution(row: Row, a: Mapping[str, Any], x: Any) -> Prepared:
    if row.operator not in _CONVOLUTIONS:
        raise UnableError("no weights to pack")
    ops, one = torch.ops.mkldnn, [1, 1]
    stride, pad, groups = _options(row, a)
    shape = list(x.shape)
    if row.operator == "conv2d_transpose":
        none = [0, 0]
        w = ops._reorder_convolution_transpose_weight(
            a["w"], pad, none, stride, one, groups, shape
        )
        spread = ops._convolution_transpose_pointwise
        return Prepared(lambda: spread(x, w, None, pad, none, stride, one, groups, *_NONE))
    w = ops._reorder_convolution_weight(a["w"], pad, stride, one, groups, shape)
    convolve = ops._convolution_pointwise
    return Prepared(lambda: convolve(x, w, None, pad, stride, one, groups, *_NONE))


def _product(a: Mapping[str, Any]) -> Callable[[], Any]:
    one, other = a["a"], a["b"].mT if a.get("transpose_b") else a["b"]
    out = torch.empty((*one.shape[:-1], other.shape[-1]))
    return lambda: torch.matmul(one, other, out=out)


def _convolution(a: Mapping[str, Any], groups: int) -> Callable[[], Any]:
    x, w, (stride, pad) = a["x"], a["w"], strides_and_pads(a)
    return lambda: F.conv2d(x, w, None, stride, pad, 1, groups)


def _transposed(a: Mapping[str, Any]) -> Callable[[], Any]:
    x, w, (stride, pad) = a["x"], a["w"], strides_and_pads(a)
    return lambda: F.conv_transpose2d(x, w, None, stride, pad)


def _pool(function: Callable[..., Any], a: Mapping[str, Any]) -> Callable[[], Any]:
    x, window, (stride, pad) = a["x"], a["window"], strides_and_pads(a)
    return lambda: function(x, window, stride, pad)


def _einsum(a: Mapping[str, Any]) -> Callable[[], Any]:
    spec, operands = a["spec"], [v for n, v in a.items() if n != "spec"]
    # As a view of another order the result would not be what the others make.
    return lambda: torch.einsum(spec, *operands).contiguous()


_OPERATORS: dict[str, Callable[[dict[str, Any]], Callable[[], Any]]] = {
    "matmul": _product,
    "batch_matmul": _product,
    "einsum": _einsum,
    "dense": lambda a: lambda: F.linear(a["x"], a["w"]),
    "conv2d": lambda a: _convolution(a, a.get("groups", 1)),
    "depthwise_conv2d": lambda a: _convolution(a, a["x"].shape[1]),
    "conv2d_transpose": _transposed,
    "softmax": lambda a: lambda: F.softmax(a["x"], -1),
    "layer_norm": lambda a: (
        lambda: F.layer_norm(a["x"], a["x"].shape[-1:], a["scale"], a["shift"])
    ),
    "attention": lambda a: (
        lambda: F.scaled_dot_product_attention(a["q"][None], a["k"][None], a["v"][None])[0]
    ),
    "max_pool2d": lambda a: _pool(F.max_pool2d, a),
    "avg_pool2d": lambda a: _pool(F.avg_pool2d, a),
    "global_avg_pool2d": lambda a: lambda: a["x"].mean((2, 3)),
}
