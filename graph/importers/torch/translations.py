"""Operators of torch that its exporter lacks or reads otherwise, by what they are in ONNX."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.graph.importers.torch import recurrences
from loopwright.graph.importers.torch.operators import (
    elementwise,
    experts,
    images,
    integers,
    masks,
    norms,
    paddings,
    parts,
    places,
    ranks,
    scans,
    solutions,
    special,
    statistics,
    windows,
)
from loopwright.graph.importers.torch.operators.parts import op
from loopwright.packages import aten, onnx, torch

_MODULES: tuple[Any, ...] = (
    *(elementwise, experts, images, integers, masks, norms, paddings, ranks, recurrences),
    *(solutions, special, statistics, windows),
)
_STACKS = ("column_", "d", "h", "v")
"""Kinds of stacks, of which the exporter has loops over sequences."""


def translations() -> dict[Any, Callable[..., Any]]:
    """Functions that make ONNX operators of a call, by torch's operator."""
    products = {
        aten.addbmm.default: ("aten_addbmm", _summed_products),
        aten.addmm.default: ("aten_addmm", op.MatMul),
        aten.addmv.default: ("aten_addmv", op.MatMul),
        aten.addr.default: ("aten_addr", lambda a, b: op.Mul(op.Unsqueeze(a, parts.whole(1)), b)),
        aten.baddbmm.default: ("aten_baddbmm", op.MatMul),
    }
    return {
        operator.floordiv: _floor_divided,
        # What `torch._check_tensor_all` asks of data. Nothing reads the answer.
        aten._is_all_true.default: lambda x: parts.own("aten_all")(x),
        aten._is_any_true.default: lambda x: parts.own("aten_any")(x),
        aten.amax.default: lambda x, dim=(), keepdim=False: _reduced("ReduceMax", x, dim, keepdim),
        aten.amin.default: lambda x, dim=(), keepdim=False: _reduced("ReduceMin", x, dim, keepdim),
        aten.argmax.default: _place("ArgMax"),
        aten.argmin.default: _place("ArgMin"),
        aten.arange.start: _range,
        aten.arange.start_step: _range,
        aten.copy.default: places.copied,
        aten.cross_entropy_loss.default: _cross_entropy,
        aten.fill.Scalar: parts.exactly("aten_fill"),
        aten.fmax.default: lambda x, y: _without_nan("Max", x, y),
        aten.fmin.default: lambda x, y: _without_nan("Min", x, y),
        aten.full.default: parts.exactly("aten_full"),
        aten.full_like.default: parts.exactly("aten_full_like"),
        aten.linear.default: _linear,
        aten.log_softmax.int: _in_type("LogSoftmax"),
        aten.softmax.int: _in_type("Softmax"),
        aten.special_log_softmax.default: _in_type("LogSoftmax"),
        aten.special_softmax.default: _in_type("Softmax"),
        aten.linspace.default: parts.exactly("aten_linspace"),
        # The logarithm of a sigmoid that is 0 would be infinite.
        aten.log_sigmoid.default: lambda x: op.Neg(op.Softplus(op.Neg(x))),
        aten.cummax.default: lambda x, dim: scans.extreme("CumMax", x, dim),
        aten.cummin.default: lambda x, dim: scans.extreme("CumMin", x, dim),
        aten.cumprod.default: scans.cumulative_product,
        aten.diagonal.default: places.diagonal,
        aten.diagonal_copy.default: places.diagonal,
        aten.diagonal_scatter.default: places.diagonal_scattered,
        aten.embedding_bag.padding_idx: places.embedding_bag,
        aten.logcumsumexp.default: scans.cumulative_logsumexp,
        aten.masked_fill.Scalar: parts.exactly("aten_masked_fill"),
        aten.masked_select.default: places.masked_select,
        aten.new_full.default: parts.exactly("aten_new_full"),
        aten.pow.Scalar: parts.exactly("aten_pow_scalar"),
        aten.pow.Tensor_Scalar: _by_size("aten_pow_tensor_scalar", "aten_pow"),
        aten.rsub.Scalar: _from_other,
        aten.rsub.Tensor: _from_other,
        aten.scalar_tensor.default: parts.exactly("aten_scalar_tensor"),
        aten.scatter.reduce: places.scattered_by,
        aten.scatter.value_reduce: places.scattered_by,
        aten.scatter_reduce.two: places.scattered,
        aten.split_with_sizes.default: _split,
        aten.squeeze.dim: lambda x, dim: _squeezed(x, [dim]),
        aten.squeeze.dims: _squeezed,
        aten.scaled_dot_product_attention.default: _attention,
        **dict.fromkeys((getattr(aten, f"{each}stack").default for each in _STACKS), _taken_apart),
        **{target: _plus(*both) for target, both in products.items()},
        **dict(pair for module in _MODULES for pair in module.translations().items()),
    }


def _floor_divided(x: Any, y: Any) -> Any:
    """A quotient of sizes, as of `-(-n // 8)`: the exporter's rounds negative ones to zero."""
    x, y = (op.Constant(value_int=n) if isinstance(n, int) else n for n in (x, y))
    return op.Div(op.Sub(x, op.Mod(x, y)), y)


def _by_size(of_number: str, of_tensor: str) -> Callable[..., Any]:
    """A function of a tensor and a number: what the exporter has for one that is known, and for a
    size what it has for two tensors."""

    def made(x: Any, y: Any) -> Any:
        if isinstance(y, (int, float)):
            return parts.own(of_number)(x, y)
        return parts.own(of_tensor)(x, op.CastLike(y, x))

    return made


def _taken_apart(*_: Any) -> Any:
    """An operator's parts, which the exporter takes for one that is not implemented."""
    raise NotImplementedError


def _cross_entropy(
    x: Any, target: Any, *options: Any, label_smoothing: float = 0.0, **named: Any
) -> Any:
    """A loss of classes. ONNX has none of smooth labels, nor of one sample: the exporter takes the
    operator's parts where a function says that it is not implemented."""
    smoothing = options[3] if len(options) > 3 else label_smoothing
    if smoothing or not target.dtype.is_integer() or len(x.shape) == 1:
        raise NotImplementedError("ONNX has no cross entropy of smooth labels, nor of one sample")
    return parts.own("aten_cross_entropy_loss")(x, target, *options, **named)


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """A product plus a bias. The exporter has two operators for one of more than two axes, which
    would round halves twice."""
    if bias is None or len(x.shape) == 2 or x.dtype not in parts.HALVES:
        return parts.own("aten_linear")(x, weight, bias)
    return scans.named("Linear", op.Gemm(x, weight, bias, transB=1))


def _plus(name: str, product: Callable[..., Any]) -> Callable[..., Any]:
    """A function `beta * x + alpha * product(a, b)`, which does not look at x where beta is 0."""

    def added(x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
        if x.dtype != parts.DOUBLE and beta != 0:
            return parts.own(name)(x, a, b, beta=beta, alpha=alpha)
        result = parts.scaled(product(a, b), alpha)
        return op.Add(parts.scaled(x, beta), result) if beta else result

    return added


def _summed_products(a: Any, b: Any) -> Any:
    return op.ReduceSum(op.MatMul(a, b), parts.whole(0), keepdims=0)


def _range(*ends: Any, dtype: Any = -1, **_: Any) -> Any:
    """Numbers in equal steps: known floats are those that torch computes, in float64."""
    if any(isinstance(n, float) for n in ends) and all(isinstance(n, (int, float)) for n in ends):
        numbers = parts.array(torch.arange(*ends, dtype=torch.float64).numpy())
        kind = parts.FLOAT if dtype in (None, -1) else dtype
        return op.Cast(numbers, to=kind)
    own = parts.own("aten_arange_start_step" if len(ends) > 2 else "aten_arange_start")
    return own(*ends, dtype=dtype)


def _split(x: Any, sizes: Sequence[Any], dim: int = 0) -> tuple[Any, ...]:
    """Parts of an axis, of known or of open sizes."""
    along, start, pieces = parts.whole(dim), parts.whole(0), []
    for size in sizes:
        own = parts.whole(size) if isinstance(size, int) else op.Reshape(size, parts.whole(-1))
        end = op.Add(start, own)
        pieces.append(op.Slice(x, start, end, along))
        start = end
    return tuple(pieces)


def _squeezed(x: Any, dims: Any) -> Any:
    """A tensor without those of some axes that have one element: an open one may have more."""
    rank = len(x.shape)
    axes = sorted({d % rank for d in dims}) if rank else []
    ones = [d for d in axes if x.shape[d] == 1 or not isinstance(x.shape[d], int)]
    return scans.named("Squeeze", op.Squeeze(x, parts.whole(*ones))) if ones else op.Identity(x)


def _in_type(name: str) -> Callable[..., Any]:
    """A function along an axis, of the type that is asked for: it computes in that one."""

    def made(x: Any, dim: int, dtype: Any = None) -> Any:
        rank = len(x.shape)
        x = x if dtype in (None, -1) else op.Cast(x, to=dtype)
        if rank:
            return getattr(op, name)(x, axis=dim)
        return op.Squeeze(
            getattr(op, name)(op.Unsqueeze(x, parts.whole(0)), axis=0), parts.whole(0)
        )

    return made


def _reduced(name: str, x: Any, dim: Any, keepdim: bool) -> Any:
    """A reduction along some axes, or, where none is said, of all."""
    axes = [dim] if isinstance(dim, int) else list(dim)
    along = (op.Constant(value_ints=axes),) if axes else ()
    return getattr(op, name)(x, *along, keepdims=int(keepdim))


def _place(name: str) -> Callable[..., Any]:
    """The place of an extreme along an axis, or, where none is said, among all elements."""

    def found(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is not None or not keepdim or not x.shape:
            return parts.own(f"aten_{name.lower()}")(x, dim, keepdim)
        place = getattr(op, name)(op.Reshape(x, parts.whole(-1)), axis=0, keepdims=1)
        return op.Reshape(place, parts.whole(*[1] * len(x.shape)))

    return found


def _without_nan(name: str, x: Any, y: Any) -> Any:
    """The larger or smaller of two numbers, one of them where the other is NaN."""
    if not x.dtype.is_floating_point():
        return parts.own(f"aten_{name.lower()}imum")(x, y)
    return op.Where(op.IsNaN(x), y, op.Where(op.IsNaN(y), x, getattr(op, name)(x, y)))


def _from_other(x: Any, other: Any, alpha: Any = 1) -> Any:
    """A number or tensor minus a tensor: the exporter has calls that are none where types differ,
    and rounds factors."""
    if isinstance(other, float) and x.dtype.name.startswith(("INT", "UINT")):
        x = op.Cast(x, to=parts.FLOAT)
    less = x if alpha == 1 else op.Mul(x, parts.like(alpha, x))
    other = parts.like(other, x) if isinstance(other, (int, float)) else op.CastLike(other, x)
    return op.Sub(other, less)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention over any number of axes, in which a query that may see no key gets zeros.

    Heads that share keys and values become more queries of one head.
    """
    rows, size = query.shape[-2:]
    keys = key.shape[-2]
    lead = list(query.shape[:-2])
    shared = lead[-1] // key.shape[-3] if enable_gqa else 1
    halves = query.dtype in parts.HALVES
    if halves:  # scores may be beyond them
        query, key = norms.wide(query), norms.wide(key)

    def reshaped(x: Any, shape: Any) -> Any:
        return op.Reshape(x, op.Constant(value_ints=[int(n) for n in shape]))

    def constant(number: float, like: Any = query) -> Any:
        return parts.like(number, like)

    if scale is None and not isinstance(size, int):
        factor = op.Reciprocal(op.Sqrt(op.CastLike(op.Shape(query, start=-1), query)))
    else:
        factor = constant(1 / math.sqrt(size) if scale is None else scale)
    together = [*lead[:-1], lead[-1] // shared, shared * rows] if shared > 1 else [*lead, rows]
    if shared > 1:
        query = reshaped(query, [*together, size])
    scores = op.Mul(op.Einsum(query, key, equation="...qe,...ke->...qk"), factor)
    seen = None
    if is_causal:
        causal = np.tril(np.ones((rows, keys), bool))
        attn_mask = op.Constant(value=onnx.numpy_helper.from_array(causal))
    if attn_mask is not None:
        scores = reshaped(scores, [*lead, rows, keys]) if shared > 1 else scores
        last = op.Constant(value_ints=[-1])
        if is_causal or attn_mask.dtype.name == "BOOL":
            scores = op.Where(attn_mask, scores, constant(-math.inf))
            seen = op.Greater(op.ReduceMax(op.CastLike(attn_mask, query), last), constant(0.0))
        else:
            attn_mask = norms.wide(attn_mask) if halves else attn_mask
            scores = op.Add(scores, attn_mask)
            seen = op.Greater(op.ReduceMax(attn_mask, last), constant(-math.inf))
    weights = op.Softmax(scores, axis=-1)
    weights = op.CastLike(weights, value) if halves else weights
    if shared > 1:
        weights = reshaped(weights, [*together, keys])
    result = op.MatMul(weights, value)
    if shared > 1:
        result = reshaped(result, [*lead, rows, value.shape[-1]])
    return result if seen is None else op.Where(seen, result, constant(0.0, value))
