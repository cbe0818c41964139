"""Special functions that ONNX has not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from loopwright.graph.importers.torch.operators.elementwise import log_of_one_more
from loopwright.graph.importers.torch.operators.parts import DOUBLE, exact, op
from loopwright.packages import aten


def translations() -> dict[Any, Callable[..., Any]]:
    """The function that makes ONNX operators of a call, by torch's operator."""
    return {
        aten.digamma.default: digamma,
        aten.erfc.default: complementary_error_function,
        aten.erfinv.default: inverse_error_function,
        aten.lgamma.default: log_gamma,
        aten.special_erfcx.default: scaled_complement,
        aten.special_log_ndtr.default: log_of_normal_share,
    }


def _polynomial(x: Any, *coefficients: float) -> Any:
    """`c[0] * x^n + … + c[n]`, by Horner's rule."""
    result = exact(coefficients[0])
    for c in coefficients[1:]:
        result = op.Add(op.Mul(result, x), exact(c))
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
    wide, one = op.Cast(y, to=DOUBLE), exact(1)
    w = op.Neg(op.Log(op.Mul(op.Sub(one, wide), op.Add(one, wide))))
    root = op.Sqrt(w)
    middle = _polynomial(op.Sub(w, exact(3.125)), *_GILES[0])
    flank = _polynomial(op.Sub(root, exact(3.25)), *_GILES[1])
    end = _polynomial(op.Sub(root, exact(5)), *_GILES[2])
    outer = op.Where(op.Less(w, exact(16)), flank, end)
    x = op.Where(op.Less(w, exact(6.25)), middle, outer)
    x = op.Where(op.Equal(op.Abs(wide), one), exact(math.inf), x)
    return op.CastLike(op.Mul(x, wide), y)


_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip
"""Lanczos's coefficients for g = 7."""


def log_gamma(x: Any) -> Any:
    """The logarithm of the absolute gamma function, by Lanczos 1964 and Euler's reflection."""
    wide = op.Cast(x, to=DOUBLE)
    mirrored, z = _beyond_half(wide)
    t = op.Add(z, exact(7.5))
    power = op.Sub(op.Mul(op.Add(z, exact(0.5)), op.Log(t)), t)
    total, _ = _lanczos(z)
    right = op.Add(op.Add(power, op.Log(total)), exact(0.5 * math.log(2 * math.pi)))
    sine = op.Abs(op.Sin(op.Mul(_rest(wide), exact(math.pi))))
    left = op.Sub(op.Sub(exact(math.log(math.pi)), op.Log(sine)), right)
    found = op.Where(mirrored, left, right)
    endless = op.IsInf(wide)
    return op.CastLike(op.Where(endless, exact(math.inf), found), x)


def digamma(x: Any) -> Any:
    """The derivative of `log_gamma`, which has no number at 0 and below it at whole ones."""
    wide = op.Cast(x, to=DOUBLE)
    mirrored, z = _beyond_half(wide)
    t = op.Add(z, exact(7.5))
    total, slope = _lanczos(z)
    right = op.Add(op.Sub(op.Log(t), op.Div(exact(7), t)), op.Div(slope, total))
    rest = _rest(wide)
    turned = op.Div(exact(math.pi), op.Tan(op.Mul(rest, exact(math.pi))))
    pole = op.And(op.Equal(rest, exact(0)), op.Less(wide, exact(0)))
    left = op.Where(pole, exact(math.nan), op.Sub(right, turned))
    return op.CastLike(op.Where(mirrored, left, right), x)


def _beyond_half(x: Any) -> tuple[Any, Any]:
    """Whether x is below one half, and x or its mirror image above that, less 1."""
    mirrored = op.Less(x, exact(0.5))
    return mirrored, op.Where(mirrored, op.Neg(x), op.Sub(x, exact(1)))


def _lanczos(z: Any) -> tuple[Any, Any]:
    """Lanczos's series, and its derivative."""
    total, slope = exact(_LANCZOS[0]), exact(0)
    for n, c in enumerate(_LANCZOS[1:], 1):
        behind = op.Add(z, exact(n))
        term = op.Div(exact(c), behind)
        total, slope = op.Add(total, term), op.Sub(slope, op.Div(term, behind))
    return total, slope


def _rest(x: Any) -> Any:
    """The distance of x from the nearest whole number: of a small x, x itself."""
    return op.Where(op.Less(op.Abs(x), exact(0.5)), x, op.Sub(x, op.Round(x)))


_TAIL = (
    -1.8902306008944537e-09, 4.06088214696972e-09, 1.1172352263623759e-08,
    -3.9171820510271855e-08, 1.4448658046252676e-09, 1.5334345920908177e-07,
    -2.495832761719667e-07, -1.6849800720653297e-07, 1.2500276612569754e-06,
    -1.27231190486887e-06, -2.947986876998259e-06, 8.562623420121286e-06, 1.3772664134464417e-07,
    -3.0187884551394243e-05, 3.17451797494374e-05, 7.14010141275703e-05, -0.0001743029472030762,
    -9.37350311709817e-05, 0.000673678795580235, -0.00014624686337800336, -0.002345812500482853,
    0.001758933557799016, 0.008824938557060623, -0.009872689366389959, -0.0468956102311753,
    0.04734330684190443, 0.6726432239776567, -0.6717940840566923,
)  # fmt: skip
"""Coefficients of a polynomial of `t - 1` for t from 0 to 2, which is fitted at Chebyshev's nodes
to the logarithm of `2 erfcx(z) / t`, where t is `4 / (2 + z)`."""


def _tail(z: Any) -> tuple[Any, Any]:
    """A factor, and the logarithm of another, whose product is `erfcx(z)` for z from 0 on."""
    t = op.Div(exact(4), op.Add(z, exact(2)))
    return op.Mul(t, exact(0.5)), _polynomial(op.Sub(t, exact(1)), *_TAIL)


def _of_sides(x: Any, scale: float, low: Callable[..., Any], high: Callable[..., Any]) -> Any:
    """A function of the tail of `|x| * scale`, and of that one's square, on each side of zero."""
    wide = op.Mul(op.Cast(x, to=DOUBLE), exact(scale))
    z = op.Abs(wide)
    square = op.Mul(z, z)
    sides = (of(*_tail(z), square) for of in (low, high))
    return op.CastLike(op.Where(op.Less(wide, exact(0)), *sides), x)


def _small(t: Any, logarithm: Any, square: Any) -> Any:
    return op.Mul(t, op.Exp(op.Sub(logarithm, square)))


def complementary_error_function(x: Any) -> Any:
    """`1 - erf(x)` with all digits where that is near 0, too."""
    return _of_sides(x, 1, lambda *z: op.Sub(exact(2), _small(*z)), _small)


def scaled_complement(x: Any) -> Any:
    """`exp(x²) erfc(x)`, of which neither factor need be a number."""

    def high(t: Any, logarithm: Any, square: Any) -> Any:
        return op.Mul(t, op.Exp(logarithm))

    def low(t: Any, logarithm: Any, square: Any) -> Any:
        return op.Sub(op.Mul(exact(2), op.Exp(square)), high(t, logarithm, square))

    return _of_sides(x, 1, low, high)


def log_of_normal_share(x: Any) -> Any:
    """The logarithm of the share of a normal distribution below x, where that would be 0, too."""

    def low(t: Any, logarithm: Any, square: Any) -> Any:
        half = op.Log(op.Mul(exact(0.5), t))
        return op.Add(half, op.Sub(logarithm, square))

    def high(*z: Any) -> Any:
        return log_of_one_more(op.Mul(exact(-0.5), _small(*z)))

    return _of_sides(x, math.sqrt(0.5), low, high)
