"""Functions of elements that take several of ONNX's operators.

Where a plain formula would overflow, or lose what is near zero, another one stands here. In
float64 those beside numbers are taken apart: ONNX has these as attributes, which are float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from loopwright.graph.importers.torch.operators.parts import (
    FLOAT,
    in_double,
    like,
    op,
    own,
    scaled,
)
from loopwright.packages import aten

_SELU = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""Torch's alpha and scale."""


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    apart: dict[Any, tuple[str, Callable[..., Any]]] = {
        aten.celu.default: ("aten_celu", lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1 / alpha)),
        aten.deg2rad.default: ("aten_deg2rad", _times(math.pi / 180)),
        aten.elu.default: ("aten_elu", _elu),
        aten.hardsigmoid.default: ("aten_hardsigmoid", _hard_sigmoid),
        aten.hardtanh.default: ("aten_hardtanh", _clipped),
        aten.isinf.default: ("aten_isinf", lambda x: op.IsInf(x)),
        aten.isneginf.default: ("aten_isneginf", lambda x: op.IsInf(x, detect_positive=0)),
        aten.isposinf.default: ("aten_isposinf", lambda x: op.IsInf(x, detect_negative=0)),
        aten.leaky_relu.default: ("aten_leaky_relu", _leaky),
        aten.log10.default: ("aten_log10", _logarithm(10)),
        aten.log2.default: ("aten_log2", _logarithm(2)),
        aten.rad2deg.default: ("aten_rad2deg", _times(180 / math.pi)),
        aten.selu.default: ("aten_selu", lambda x: _elu(x, *_SELU)),
        aten.softplus.default: ("aten_softplus", _softplus),
    }
    rounded = ("ceil", "floor", "round", "trunc")
    return {
        **{getattr(aten, name).default: _whole(name) for name in rounded},
        **{target: in_double(*both) for target, both in apart.items()},
        aten.addcdiv.default: functools.partial(_plus, op.Div),
        aten.addcmul.default: functools.partial(_plus, op.Mul),
        aten.atan2.default: _angle,
        aten.copysign.Scalar: _with_sign,
        aten.copysign.Tensor: _with_sign,
        aten.div.Scalar_mode: _quotient,
        aten.div.Tensor_mode: _quotient,
        aten.expm1.default: _less_one,
        aten.floor_divide.default: lambda x, y: _quotient(x, y, "floor"),
        aten.floor_divide.Scalar: lambda x, y: _quotient(x, y, "floor"),
        aten.glu.default: _gated,
        aten.heaviside.default: _step,
        aten.hypot.default: _hypotenuse,
        aten.log1p.default: log_of_one_more,
        aten.logaddexp.default: _log_of_sum,
        aten.logaddexp2.default: functools.partial(_log_of_sum, base=2),
        aten.logit.default: _log_odds,
        aten.remainder.Scalar: _remainder,
        aten.remainder.Scalar_Tensor: _remainder,
        aten.remainder.Tensor: _remainder,
        aten.rrelu.default: _between_slopes,
        aten.sgn.default: _sign,
        aten.sign.default: _sign,
        aten.signbit.default: _negative,
        aten.silu.default: lambda x: op.Mul(x, op.Sigmoid(x)),
        aten.sinc.default: _sinc,
        aten.special_expm1.default: _less_one,
        aten.special_sinc.default: _sinc,
        aten.special_xlogy.default: _times_log,
        aten.xlogy.Tensor: _times_log,
    }


def _plus(part: Callable[..., Any], x: Any, a: Any, b: Any, value: float = 1) -> Any:
    return op.Add(x, op.Mul(part(a, b), like(value, x)))


def _less_one(x: Any) -> Any:
    """`exp(x) - 1`, which for small x would have no digits left."""
    return op.Mul(op.Tanh(op.Div(x, like(2, x))), op.Add(op.Exp(x), like(1, x)))


def log_of_one_more(x: Any) -> Any:
    """`log(1 + x)`, which for small x would have no digits left."""
    near = op.Where(op.Less(op.Abs(x), like(1, x)), x, like(0, x))
    exact = op.Mul(like(2, x), op.Atanh(op.Div(near, op.Add(near, like(2, x)))))
    return op.Where(op.Equal(near, x), exact, op.Log(op.Add(x, like(1, x))))


def _gated(x: Any, dim: int = -1) -> Any:
    first, second = op.Split(x, axis=dim, num_outputs=2)
    return op.Mul(first, op.Sigmoid(second))


def _log_of_sum(x: Any, y: Any, base: float = math.e) -> Any:
    """`log(base^x + base^y)` from the greater one on, as two infinities have one, too."""
    apart = op.Where(op.Equal(x, y), like(0, x), op.Abs(op.Sub(x, y)))
    factor = like(math.log(base), x)
    return op.Add(op.Max(x, y), op.Div(op.Softplus(op.Neg(op.Mul(apart, factor))), factor))


def _log_odds(x: Any, eps: float | None = None) -> Any:
    """`log(x / (1 - x))`, which is NaN of NaN, with `eps` too."""
    if eps is not None:
        x = op.Min(op.Max(x, like(eps, x)), like(1 - eps, x))
    return op.Log(op.Div(x, op.Sub(like(1, x), x)))


def _times_log(x: Any, y: Any) -> Any:
    """`x log(y)`, which is 0 where x is, unless y is NaN."""
    none = op.And(op.Equal(x, like(0, x)), op.Equal(y, y))
    return op.Where(none, like(0, x), op.Mul(x, op.Log(y)))


def _angle(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), from -π to π, with C's zeros and infinities."""
    rise, run, none = op.Abs(y), op.Abs(x), like(0, x)
    # 0/0 is no angle, and neither is inf/inf: these are as 0/1 and 1/1.
    equal = op.Where(op.Equal(rise, none), none, like(1, x))
    angle = op.Atan(op.Where(op.Equal(rise, run), equal, op.Div(rise, run)))
    angle = op.Where(_negative(x), op.Sub(like(math.pi, x), angle), angle)
    return op.Where(_negative(y), op.Neg(angle), angle)


def _negative(x: Any) -> Any:
    """Whether x is below zero, or the zero below."""
    none = like(0, x)
    if x.dtype.is_integer():
        return op.Less(x, none)
    return op.Less(op.Where(op.Equal(x, none), op.Div(like(1, x), x), x), none)


def _with_sign(x: Any, y: Any) -> Any:
    """The size of x with the sign of y."""
    if isinstance(y, (int, float)):
        return op.Neg(op.Abs(x)) if math.copysign(1, y) < 0 else op.Abs(x)
    return op.Where(_negative(y), op.Neg(op.Abs(x)), op.Abs(x))


def _sign(x: Any) -> Any:
    """1, 0 or -1; 0 of NaN."""
    sign = op.Sign(x)
    return op.Where(op.Equal(x, x), sign, like(0, x)) if x.dtype.is_floating_point() else sign


def _whole(name: str) -> Callable[..., Any]:
    """A whole number near each element, which an integer is itself."""
    return lambda x: op.Identity(x) if x.dtype.is_integer() else own(f"aten_{name}")(x)


def _step(x: Any, at_zero: Any) -> Any:
    """1 above zero, and 0 below and of NaN."""
    zero = like(0, x)
    return op.Where(op.Equal(x, zero), at_zero, op.CastLike(op.Greater(x, zero), x))


def _hypotenuse(x: Any, y: Any) -> Any:
    """`√(x² + y²)`, whose squares may be beyond the type."""
    x, y = op.Abs(x), op.Abs(y)
    infinite = op.Or(op.IsInf(x), op.IsInf(y))  # beside NaN, too, as in C
    most = op.Where(infinite, like(math.inf, x), op.Max(x, y))
    plain = op.Or(infinite, op.Equal(most, like(0, x)))
    share = op.Div(op.Min(x, y), op.Where(plain, like(1, x), most))
    return op.Where(plain, most, op.Mul(most, op.Sqrt(op.Add(op.Mul(share, share), like(1, x)))))


def _quotient(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """A quotient as it is, or rounded to zero or down: torch's from what is left over, since the
    quotient itself may be rounded up to a whole number."""
    x, y = _of_one_type(x, y)
    if x.dtype.is_integer():
        whole_numbers = {"trunc": op.Div, "floor": own("aten_floor_divide")}
        return whole_numbers.get(rounding_mode or "", own("aten_div"))(x, y)
    plain = op.Div(x, y)
    if rounding_mode is None:
        return plain
    if rounding_mode == "trunc":
        return own("aten_trunc")(plain)
    left, none = op.Mod(x, y, fmod=1), like(0, x)
    exact = op.Div(op.Sub(x, left), y)
    exact = op.Where(_turned(left, y), op.Sub(exact, like(1, x)), exact)
    below = op.Floor(exact)
    is_above = op.Greater(op.Sub(exact, below), like(0.5, x))
    floored = op.Where(is_above, op.Add(below, like(1, x)), below)
    return op.Where(op.Equal(y, none), plain, floored)


def _remainder(x: Any, y: Any) -> Any:
    """The rest of a quotient that is rounded down: exact, as that of one rounded to zero is."""
    x, y = _of_one_type(x, y)
    if x.dtype.is_integer():
        return op.Mod(x, y)
    left = op.Mod(x, y, fmod=1)
    return op.Where(_turned(left, y), op.Add(left, y), left)


def _turned(left: Any, y: Any) -> Any:
    """Whether what is left over by y has the other sign."""
    none = like(0, left)
    other = op.Not(op.Equal(op.Less(left, none), op.Less(y, none)))
    return op.And(op.Not(op.Equal(left, none)), other)


def _of_one_type(*operands: Any) -> tuple[Any, ...]:
    """Two operands, of which one may be a number or a size, in the type of the other; integers
    beside a float in float32."""
    first = next(n for n in operands if not isinstance(n, (int, float)))
    kind = first.dtype
    if kind.is_integer() and any(isinstance(n, float) for n in operands):
        kind, first = type(kind)(FLOAT), op.Cast(first, to=FLOAT)

    def cast(x: Any) -> Any:
        if getattr(x, "dtype", None) == kind:
            return x
        made = like(x, first) if isinstance(x, (int, float)) else op.CastLike(x, first)
        made.dtype = kind
        return made

    return tuple(map(cast, operands))


def _sinc(x: Any) -> Any:
    turned = op.Mul(x, like(math.pi, x))
    none = op.Equal(x, like(0, x))
    return op.Where(none, like(1, x), op.Div(op.Sin(turned), op.Where(none, like(1, x), turned)))


def _times(factor: float) -> Callable[..., Any]:
    return lambda x: scaled(x, factor)


def _logarithm(base: int) -> Callable[..., Any]:
    return lambda x: op.Div(op.Log(x), like(math.log(base), x))


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    below = scaled(_less_one(scaled(op.Min(x, like(0, x)), input_scale)), alpha * scale)
    return op.Where(op.Greater(x, like(0, x)), scaled(x, scale), below)


def _leaky(x: Any, negative_slope: float = 0.01) -> Any:
    return op.Where(op.Greater(x, like(0, x)), x, scaled(x, negative_slope))


def _between_slopes(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any) -> Any:
    """A slope below zero that is drawn between two in training, and in their middle here."""
    return _leaky(x, (lower + upper) / 2)


def _clipped(x: Any, min_val: float = -1, max_val: float = 1) -> Any:
    return op.Clip(x, like(min_val, x), like(max_val, x))


def _hard_sigmoid(x: Any) -> Any:
    return op.Div(_clipped(op.Add(x, like(3, x)), 0, 6), like(6, x))


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    inside = scaled(x, beta)
    soft = op.Div(op.Softplus(inside), like(beta, x))
    return op.Where(op.Greater(inside, like(threshold, x)), x, soft)
