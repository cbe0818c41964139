"""Operators of torch that ONNX has not, made of others: special functions, bags."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

FLOAT, HALVES = 1, (10, 16)
"""The numbers of ONNX's float32, and of its halves."""
DOUBLE = 11
"""The number of ONNX's float64."""


def opset() -> Any:
    """ONNX's operators, of a version that the exporter takes."""
    from onnxscript import opset18

    return opset18


def whole(*numbers: int) -> Any:
    """Integers as an array of one axis."""
    return opset().Constant(value_ints=list(numbers))


def array(numbers: np.ndarray) -> Any:
    """Known numbers, of their type."""
    import onnx

    return opset().Constant(value=onnx.numpy_helper.from_array(numbers))


def _exact(number: float) -> Any:
    """A number of type float64."""
    return array(np.array(number, np.float64))


def _polynomial(x: Any, *coefficients: float) -> Any:
    """`c[0] * x^n + … + c[n]`, by Horner's rule."""
    op, result = opset(), _exact(coefficients[0])
    for c in coefficients[1:]:
        result = op.Add(op.Mul(result, x), _exact(c))
    return result


_GILES = (
    (-3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
     1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
     6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
     2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
     1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
     4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
     0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
     0.24015818242558961693, 1.6536545626831027356),
    (2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
     1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
     2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
     6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
     0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
     -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
     3.0838856104922207635),
    (-2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
     -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
     2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
     -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
     7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
     1.0103004648645343977, 4.8499064014085844221),
)  # fmt: skip
"""Coefficients for the middle, the flanks and the ends of the range (Giles 2010)."""


def inverse_error_function(y: Any) -> Any:
    """The x whose `erf(x)` is y, in float64 (Giles 2010, *Approximating the erfinv function*)."""
    op = opset()
    wide, one = op.Cast(y, to=DOUBLE), _exact(1)
    w = op.Neg(op.Log(op.Mul(op.Sub(one, wide), op.Add(one, wide))))
    root = op.Sqrt(w)
    middle = _polynomial(op.Sub(w, _exact(3.125)), *_GILES[0])
    flank = _polynomial(op.Sub(root, _exact(3.25)), *_GILES[1])
    end = _polynomial(op.Sub(root, _exact(5)), *_GILES[2])
    outer = op.Where(op.Less(w, _exact(16)), flank, end)
    x = op.Where(op.Less(w, _exact(6.25)), middle, outer)
    x = op.Where(op.Equal(op.Abs(wide), one), _exact(math.inf), x)
    return op.CastLike(op.Mul(x, wide), y)


_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip
"""Lanczos's coefficients for g = 7."""


def log_gamma(x: Any) -> Any:
    """The logarithm of the absolute gamma function, by Lanczos 1964 and Euler's reflection."""
    op = opset()
    wide = op.Cast(x, to=DOUBLE)
    mirrored = op.Less(wide, _exact(0.5))
    z = op.Sub(op.Where(mirrored, op.Sub(_exact(1), wide), wide), _exact(1))
    total = _exact(_LANCZOS[0])
    for n, c in enumerate(_LANCZOS[1:], 1):
        total = op.Add(total, op.Div(_exact(c), op.Add(z, _exact(n))))
    t = op.Add(z, _exact(7.5))
    power = op.Sub(op.Mul(op.Add(z, _exact(0.5)), op.Log(t)), t)
    right = op.Add(op.Add(power, op.Log(total)), _exact(0.5 * math.log(2 * math.pi)))
    rest = op.Sub(wide, op.Floor(wide))  # the sine has that period, but for its sign
    sine = op.Abs(op.Sin(op.Mul(rest, _exact(math.pi))))
    left = op.Sub(op.Sub(_exact(math.log(math.pi)), op.Log(sine)), right)
    found = op.Where(mirrored, left, right)
    endless = op.IsInf(wide)
    return op.CastLike(op.Where(endless, _exact(math.inf), found), x)


def masked_select(x: Any, mask: Any) -> Any:
    """The elements where a mask is true; it must be known, since their number follows from it."""
    op = opset()
    shape = op.Shape(op.Or(mask, op.CastLike(x, mask)))
    places = op.Transpose(op.NonZero(op.Expand(mask, shape)), perm=[1, 0])
    return op.GatherND(op.Expand(x, shape), places)


def embedding_bag(  # noqa: PLR0913 - as torch has it
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The sum, the mean or the greatest of the rows that each bag names.

    Bags of one length, which two axes of indices are, become an axis. Others are sums over all
    rows, each with a mask: a bag takes the rows from its offset to the next one's.
    """
    op = opset()
    (count,), (bags,), width = indices.shape, offsets.shape, weight.shape[-1]
    bags -= int(include_last_offset)
    padding = -1 if padding_idx is None else padding_idx  # -1 is none
    rows, factor = op.Gather(weight, indices), None
    seen = op.CastLike(op.Not(op.Equal(indices, like(padding, indices))), rows)
    length = _spacing(offsets)
    if length is not None and length * bags == count:
        rows = op.Reshape(rows, whole(bags, length, width))
        mask = op.Reshape(seen, whole(bags, length, 1))
        if per_sample_weights is not None:
            factor = op.Reshape(per_sample_weights, whole(bags, length, 1))
    else:
        places = op.Range(like(0, offsets), like(count, offsets), like(1, offsets))
        starts = op.Slice(offsets, whole(0), whole(bags), whole(0))
        ends = op.Slice(offsets, whole(1), whole(bags + 1), whole(0))
        if not include_last_offset:
            ends = op.Concat(ends, op.Unsqueeze(like(count, offsets), whole(0)), axis=0)
        inside = op.And(
            op.GreaterOrEqual(places, op.Unsqueeze(starts, whole(1))),
            op.Less(places, op.Unsqueeze(ends, whole(1))),
        )
        mask = op.Unsqueeze(op.Mul(op.CastLike(inside, rows), seen), whole(2))
        rows = op.Unsqueeze(rows, whole(0))
        if per_sample_weights is not None:
            factor = op.Unsqueeze(per_sample_weights, whole(0, 2))
    zero, one = like(0, rows), like(1, rows)
    number = op.ReduceSum(mask, whole(1), keepdims=0)
    if mode == 2:
        found = op.Where(op.Greater(mask, zero), rows, like(-math.inf, rows))
        greatest = op.ReduceMax(found, whole(1), keepdims=0)
        result = op.Where(op.Greater(number, zero), greatest, zero)
    else:
        rows = rows if factor is None else op.Mul(rows, factor)
        result = op.ReduceSum(op.Mul(rows, mask), whole(1), keepdims=0)
        if mode == 1:
            result = op.Div(result, op.Max(number, one))
    return result, *(op.Identity(offsets) for _ in range(3))  # these are for gradients


def like(number: float, x: Any) -> Any:
    """A number of the type of a tensor."""
    return opset().CastLike(_exact(number), x)


def exactly(name: str) -> Callable[..., Any]:
    """The exporter's function of a name, whose numbers are rounded once, to the type that they
    get there: it makes each a float32 first."""
    from onnxscript.function_libs.torch_lib.ops import core

    def translated(*args: Any, **options: Any) -> Any:
        if name == "aten_full" and options.get("dtype", -1) == -1:
            return core.aten_full(*args)  # of the number's own type
        exact = (_exact(x) if isinstance(x, float) else x for x in args)
        return getattr(core, name)(*exact, **options)

    return translated


def in_double(name: str, formula: Callable[..., Any]) -> Callable[..., Any]:
    """A function of operators for float64, and for other types the exporter's of that name."""

    def translated(x: Any, *args: Any, **options: Any) -> Any:
        return (formula if x.dtype == DOUBLE else own(name))(x, *args, **options)

    return translated


def own(name: str) -> Any:
    """The exporter's function of a name."""
    from onnxscript.function_libs.torch_lib.ops import core, nn

    return getattr(core, name, None) or getattr(nn, name)


def scaled(x: Any, factor: float) -> Any:
    """A tensor times a number."""
    return x if factor == 1 else opset().Mul(x, like(factor, x))


def scattered(
    x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> Any:
    """Elements joined with those that are written to their places; a mean is a sum and a count."""
    from onnxscript.function_libs.torch_lib.ops import core

    if reduce != "mean":
        return core.aten_scatter_reduce(x, dim, index, src, reduce, include_self)
    op, none, one = opset(), like(0, x), like(1, x)
    own = op.Expand(one if include_self else none, op.Shape(x))
    each = op.Expand(one, op.Shape(index))
    count = op.ScatterElements(own, index, each, axis=dim, reduction="add")
    first = x if include_self else op.Where(op.Equal(count, none), x, none)
    total = op.ScatterElements(first, index, src, axis=dim, reduction="add")
    count = op.Max(count, one)
    whole_part = op.Sub(total, op.Mod(total, count)) if x.dtype.is_integer() else total
    return op.Div(whole_part, count)


def _spacing(offsets: Any) -> int | None:
    """Distance of known offsets from 0 on, where they are a range."""
    made = offsets.producer()
    if made is None or made.op_type != "Range":
        return None
    start, _, step = map(_number, made.inputs)
    return step if start == 0 else None


def _number(x: Any) -> int | None:
    """The number that a value is known to be, through casts."""
    while (made := x.producer()) is not None and made.op_type == "Cast":
        x = made.inputs[0]
    return None if x.const_value is None else int(x.const_value.numpy())
