"""Functions of float64 beside numbers, taken apart.

ONNX's operators have such numbers as attributes, and these have the digits of a float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright.graph.importers.torch.elementwise import less_one
from loopwright.graph.importers.torch.special import DOUBLE, like, opset, whole

_SELU = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""Torch's alpha and scale."""


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    from torch.ops import aten

    apart: dict[Any, tuple[str, Callable[..., Any]]] = {
        aten.celu.default: ("aten_celu", lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1 / alpha)),
        aten.deg2rad.default: ("aten_deg2rad", _times(math.pi / 180)),
        aten.elu.default: ("aten_elu", _elu),
        aten.group_norm.default: ("aten_group_norm", _group_norm),
        aten.hardsigmoid.default: ("aten_hardsigmoid", _hard_sigmoid),
        aten.hardtanh.default: ("aten_hardtanh", _clipped),
        aten.instance_norm.default: ("aten_instance_norm", _instance_norm),
        aten.leaky_relu.default: ("aten_leaky_relu", _leaky),
        aten.log10.default: ("aten_log10", _logarithm(10)),
        aten.log2.default: ("aten_log2", _logarithm(2)),
        aten.rad2deg.default: ("aten_rad2deg", _times(180 / math.pi)),
        aten.selu.default: ("aten_selu", lambda x: _elu(x, *_SELU)),
        aten.softplus.default: ("aten_softplus", _softplus),
        aten._native_batch_norm_legit.no_stats: (
            "aten__native_batch_norm_no_stats",
            lambda x, w, b, _, __, eps: _thrice(_by_statistics(x, w, b, None, None, eps)),
        ),
        aten._native_batch_norm_legit_no_training.default: (
            "aten__native_batch_norm_no_training",
            lambda x, w, b, mean, variance, _, eps: _thrice(
                _by_statistics(x, w, b, mean, variance, eps)
            ),
        ),
    }
    products = {
        aten.addbmm.default: ("aten_addbmm", _summed_products),
        aten.addmm.default: ("aten_addmm", _product),
        aten.addmv.default: ("aten_addmv", _product),
        aten.addr.default: ("aten_addr", _outer_product),
        aten.baddbmm.default: ("aten_baddbmm", _product),
    }
    return {
        **{target: in_double(*both) for target, both in apart.items()},
        **{target: _plus(*both) for target, both in products.items()},
    }


def multiply_before(graph: Any, node: Any) -> None:
    """Give a sum or difference of float64 the product with its factor as an operand."""
    import torch

    if getattr(node.target, "overloadpacket", None) not in (
        torch.ops.aten.add,
        torch.ops.aten.sub,
    ):
        return
    first, second = node.args
    value = getattr(second, "meta", {}).get("val", second)
    if any(getattr(v, "dtype", torch.float64) != torch.float64 for v in (value, node.meta["val"])):
        return
    factor = node.kwargs["alpha"]
    if hasattr(second, "meta"):
        with graph.inserting_before(node):
            product = graph.call_function(torch.ops.aten.mul.Tensor, (second, factor))
        product.meta["val"] = value
    else:
        product = second * factor
    node.args, node.kwargs = (first, product), {}


def in_double(name: str, formula: Callable[..., Any]) -> Callable[..., Any]:
    """A function of operators for float64, and for other types the exporter's of that name."""

    def translated(x: Any, *args: Any, **options: Any) -> Any:
        return (formula if x.dtype == DOUBLE else _own(name))(x, *args, **options)

    return translated


def _own(name: str) -> Any:
    """The exporter's function of a name."""
    from onnxscript.function_libs.torch_lib.ops import core, nn

    return getattr(core, name, None) or getattr(nn, name)


def layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    """A norm over the last axes, `shape` long."""
    return _moved(_normalized(x, range(-len(shape), 0), eps), weight, bias)


def _plus(name: str, product: Callable[..., Any]) -> Callable[..., Any]:
    """A function `beta * x + alpha * product(a, b)`, which does not look at x where beta is 0."""

    def added(x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
        if x.dtype != DOUBLE and beta != 0:
            return _own(name)(x, a, b, beta=beta, alpha=alpha)
        result = _scaled(product(a, b), alpha)
        return opset().Add(_scaled(x, beta), result) if beta else result

    return added


def _product(a: Any, b: Any) -> Any:
    return opset().MatMul(a, b)


def _summed_products(a: Any, b: Any) -> Any:
    op = opset()
    return op.ReduceSum(op.MatMul(a, b), whole(0), keepdims=0)


def _outer_product(a: Any, b: Any) -> Any:
    op = opset()
    return op.Mul(op.Unsqueeze(a, whole(1)), b)


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1 else opset().Mul(x, like(factor, x))


def _times(factor: float) -> Callable[..., Any]:
    return lambda x: _scaled(x, factor)


def _logarithm(base: int) -> Callable[..., Any]:
    return lambda x: opset().Div(opset().Log(x), like(math.log(base), x))


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    op = opset()
    below = _scaled(less_one(_scaled(op.Min(x, like(0, x)), input_scale)), alpha * scale)
    return op.Where(op.Greater(x, like(0, x)), _scaled(x, scale), below)


def _leaky(x: Any, negative_slope: float = 0.01) -> Any:
    op = opset()
    return op.Where(op.Greater(x, like(0, x)), x, _scaled(x, negative_slope))


def _clipped(x: Any, min_val: float = -1, max_val: float = 1) -> Any:
    return opset().Clip(x, like(min_val, x), like(max_val, x))


def _hard_sigmoid(x: Any) -> Any:
    op = opset()
    return op.Div(_clipped(op.Add(x, like(3, x)), 0, 6), like(6, x))


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    op = opset()
    inside = _scaled(x, beta)
    soft = op.Div(op.Softplus(inside), like(beta, x))
    return op.Where(op.Greater(inside, like(threshold, x)), x, soft)


def _group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, _: Any = None
) -> Any:
    op = opset()
    made = _normalized(op.Reshape(x, whole(0, groups, -1)), [-1], eps)
    return _of_channels(op.Reshape(made, op.Shape(x)), weight, bias, len(x.shape))


def _instance_norm(  # noqa: PLR0913 - as torch has it
    x: Any,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Any:
    if not use_input_stats:
        return _by_statistics(x, weight, bias, running_mean, running_var, eps)
    rank = len(x.shape)
    return _of_channels(_normalized(x, range(2, rank), eps), weight, bias, rank)


def _by_statistics(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Any:
    """A norm by known statistics of channels, or by those of the batch."""
    op, rank = opset(), len(x.shape)
    if mean is None:
        made = _normalized(x, [d for d in range(rank) if d != 1], eps)
    else:
        apart = op.Sub(x, _channels(mean, rank))
        made = op.Div(apart, op.Sqrt(op.Add(_channels(variance, rank), like(eps, x))))
    return _of_channels(made, weight, bias, rank)


def _thrice(x: Any) -> tuple[Any, Any, Any]:
    """A result with two more, which are for gradients."""
    return x, opset().Identity(x), opset().Identity(x)


def _normalized(x: Any, axes: Sequence[int], eps: float) -> Any:
    """A tensor of mean 0 and of variance 1 along some axes."""
    op, along = opset(), whole(*axes)
    apart = op.Sub(x, op.ReduceMean(x, along))
    variance = op.ReduceMean(op.Mul(apart, apart), along)
    return op.Div(apart, op.Sqrt(op.Add(variance, like(eps, x))))


def _of_channels(x: Any, weight: Any, bias: Any, rank: int) -> Any:
    channels = (None if each is None else _channels(each, rank) for each in (weight, bias))
    return _moved(x, *channels)


def _channels(x: Any, rank: int) -> Any:
    """A vector of one number a channel, as it goes with a tensor of that rank."""
    return opset().Reshape(x, whole(-1, *[1] * (rank - 2)))


def _moved(x: Any, weight: Any, bias: Any) -> Any:
    op = opset()
    x = x if weight is None else op.Mul(x, weight)
    return x if bias is None else op.Add(x, bias)
