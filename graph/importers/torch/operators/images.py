"""Images of another size, as torch computes them: ONNX reads sizes of scales in another way.

Torch rounds a size in float64, and multiplies by what ONNX divides by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.graph.importers.torch.operators.parts import DOUBLE, array, op, whole
from loopwright.graph.importers.torch.operators.scans import named
from loopwright.packages import aten

_INT64 = 7
"""The number of ONNX's type."""


def translations() -> dict[Any, Callable[..., Any]]:
    """Functions that make operators of ONNX, and one of ours, by torch's operator."""
    nearest = (aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d)
    smooth = {
        aten.upsample_linear1d: "linear",
        aten.upsample_bilinear2d: "linear",
        aten.upsample_trilinear3d: "linear",
        aten.upsample_bicubic2d: "cubic",
    }
    return {
        **{each.vec: _nearest for each in nearest},
        **{each.vec: _smooth(mode) for each, mode in smooth.items()},
        aten._upsample_bilinear2d_aa.default: _filtered("linear"),
        aten._upsample_bicubic2d_aa.default: _filtered("cubic", cubic_coeff_a=-0.5),
    }


def _nearest(x: Any, output_size: Any = None, scale_factors: Any = None) -> Any:
    """Elements as they are."""
    return _resized(x, output_size, scale_factors, "nearest", "asymmetric")


def _smooth(mode: str, **options: float) -> Callable[..., Any]:
    def resized(x: Any, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
        places = "align_corners" if align_corners else "half_pixel"
        return _resized(x, output_size, scale_factors, mode, places, **options)

    return resized


def _filtered(mode: str, **options: float) -> Callable[..., Any]:
    """An image that is filtered before it shrinks."""
    smooth = _smooth(mode, antialias=1, exclude_outside=1, **options)

    def resized(x: Any, output_size: Any, align_corners: bool, *factors: float | None) -> Any:
        known = [s for s in factors if s is not None]
        return smooth(x, output_size, align_corners, known or None)

    return resized


def _resized(
    x: Any,
    output_size: Any,
    factors: Sequence[float] | None,
    mode: str,
    places: str,
    **options: float,
) -> Any:
    scales = None
    if factors is not None:
        exact = array(np.array(factors, np.float64))
        sizes = op.Mul(op.Cast(op.Shape(x, start=2), to=DOUBLE), exact)
        output_size = op.Cast(op.Floor(sizes), to=_INT64)
        scales = array(np.array([1, 1, *factors], np.float64))
    elif isinstance(output_size, Sequence):
        ends = [whole(n) if isinstance(n, int) else op.Reshape(n, whole(-1)) for n in output_size]
        output_size = op.Concat(*ends, axis=0)
    sizes = op.Concat(op.Shape(x, start=0, end=2), output_size, axis=0)
    return named(
        "Interpolate",
        op.Resize(
            x,
            None,
            scales,
            sizes,
            mode=mode,
            coordinate_transformation_mode=places,
            nearest_mode="floor",
            **{"cubic_coeff_a": -0.75, **options},
        ),
    )
