"""Conditions that ONNX says in prose alone: words of attributes, and shapes of inputs.

`check_form` holds a call to both tables before its rule reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from loopwright.graph.importers.onnx.call import Call
from loopwright.graph.importers.onnx.values import shape_of

WORDS = {
    "auto_pad": "NOTSET SAME_UPPER SAME_LOWER VALID",
    "direction": "forward reverse bidirectional",
    "BitShift.direction": "LEFT RIGHT",
    "approximate": "none tanh",
    "round_mode": "up down nearest",
    "padding_mode": "zeros border reflection",
    "DepthToSpace.mode": "DCR CRD",
    "SpaceToDepth.mode": "DCR CRD",
    "GridSample.mode": "linear nearest cubic bilinear bicubic",
    "Pad.mode": "constant reflect edge wrap",
    "Resize.mode": "nearest linear cubic",
    "RoiAlign.mode": "avg max",
    "TensorScatter.mode": "linear circular",
    "Upsample.mode": "nearest linear bilinear cubic",
    "ScatterElements.reduction": "none add mul max min",
    "ScatterND.reduction": "none add mul max min",
    "keep_aspect_ratio_policy": "stretch not_larger not_smaller",
    "nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil",
    "RoiAlign.coordinate_transformation_mode": "half_pixel output_half_pixel",
    "Resize.coordinate_transformation_mode": "half_pixel half_pixel_symmetric pytorch_half_pixel "
    "align_corners asymmetric tf_crop_and_resize tf_half_pixel_for_nn",
}
"""The words that an attribute may be, by its name or by "operator.name"."""


def _recurrent(gates: int, x: str, state: str) -> str:
    return (
        f"{x}; ways {gates}*hidden width; ways {gates}*hidden hidden; ways {2 * gates}*hidden; "
        f"batch; {state}; {state}; ways 3*hidden"
    )


_IMAGE = "batch channels ..."
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SHAPES = {
    "Conv": "batch group*inner ...; group*outer inner ...; group*outer",
    "ConvInteger": "batch group*inner ...; group*outer inner ...",
    "QLinearConv": "batch group*inner ...; *; *; group*outer inner ...; *; *; *; *; group*outer",
    "ConvTranspose": "batch group*inner ...; group*inner outer ...; group*outer",
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool", "LRN"), _IMAGE),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _IMAGE),
    "MaxUnpool": "*image; *image",
    "InstanceNormalization": f"{_IMAGE}; channels; channels",
    "DepthToSpace": "batch blocksize*blocksize*depth height width",
    "SpaceToDepth": "batch depth blocksize*height blocksize*width",
    "Gemm": "rows columns; more others",
    "Trilu": "* rows columns",
    "Det": "* rows rows",
    "OneHot": "*; *; 2",
    "RoiAlign": "batch channels height width; regions 4; regions",
    "MaxRoiPool": "batch channels height width; regions 5",
    **dict.fromkeys(("Scatter", "ScatterElements"), "*; *updates; *updates"),
    **{op: _recurrent(n, "steps batch width", "ways batch hidden") for op, n in _GATES.items()},
    **{
        f"{op} by batch": _recurrent(n, "batch steps width", "batch ways hidden")
        for op, n in _GATES.items()
    },
}
"""The shapes of inputs. A name is one extent wherever it stands, `*` any number of axes,
`*name` the same axes wherever it stands, `...` as many axes wherever it stands."""


def check_form(call: Call) -> None:
    """Raise `UnsupportedOperator` where a call is not as the tables say."""
    for name, value in call.attributes.items():
        words = (WORDS.get(f"{call.op}.{name}") or WORDS.get(name, "")).split()
        if words and isinstance(value, str) and value not in words:
            raise call.unsupported(f"its {name} is {value!r}; it may be {', '.join(words)}")
    key = f"{call.op} by batch" if call.get("layout", 0) else call.op
    form = SHAPES.get(key)
    if form is None:
        return
    bound: dict[str, tuple[int, ...]] = {n: (m,) for n, m in _named(call).items()}
    for number, axes in enumerate(form.split("; ")):
        if number < len(call.inputs) and (given := call.inputs[number]) is not None:
            shape = shape_of(given)
            if not _fits(axes.split(), shape, bound):
                raise call.unsupported(
                    f"its input {number} is {shape}; it may be ({_shown(axes, bound)}) here"
                )


def _named(call: Call) -> Mapping[str, int]:
    """The extents that attributes give."""
    found = {"group": call.get("group", 1), "blocksize": call.get("blocksize")}
    if call.op in _GATES:
        found["ways"] = 2 if call.get("direction") == "bidirectional" else 1
        found["hidden"] = call.get("hidden_size")
    return {name: int(n) for name, n in found.items() if n is not None}


def _fits(axes: list[str], shape: tuple[int, ...], bound: dict[str, tuple[int, ...]]) -> bool:
    """Return whether a shape is of such axes, and bind their names to its extents."""
    several = [n for n, a in enumerate(axes) if a == "..." or a.startswith("*")]
    if several:
        (at,) = several
        end = len(shape) - (len(axes) - at - 1)
        if end < at:
            return False
        name, inner = axes[at], shape[at:end]
        known = bound.setdefault(name, inner) if name != "*" else inner
        if len(known) != len(inner) or (name != "..." and known != inner):
            return False
        axes, shape = axes[:at] + axes[at + 1 :], shape[:at] + shape[end:]
    return len(axes) == len(shape) and all(_is(a, n, bound) for a, n in zip(axes, shape))


def _is(axis: str, extent: int, bound: dict[str, tuple[int, ...]]) -> bool:
    """Return whether an extent is that of an axis, and bind the one name that is not known."""
    factor, unknown = _parts(axis, bound)
    if not unknown:
        return extent == factor
    if factor < 1 or extent % factor:
        return False
    bound[unknown[0]] = (extent // factor,)
    return True


def _parts(axis: str, bound: Mapping[str, tuple[int, ...]]) -> tuple[int, list[str]]:
    """The product of the known factors of an axis, and the names of the others."""
    names = axis.split("*")
    known = [int(n) if n.isdigit() else bound[n][0] for n in names if n.isdigit() or n in bound]
    return math.prod(known), [n for n in names if not n.isdigit() and n not in bound]


def _shown(axes: str, bound: Mapping[str, tuple[int, ...]]) -> str:
    """Axes with the extents that are known."""
    shown: list[str] = []
    for axis in axes.split():
        if axis == "..." or axis.startswith("*"):
            known = bound.get(axis) if axis != "..." else None
            shown += map(str, known) if known is not None else ["..."]
        else:
            factor, unknown = _parts(axis, bound)
            factors = [str(factor)] if factor != 1 or not unknown else []
            shown.append("*".join((*factors, *unknown)))
    return ", ".join(shown) + ("," if len(shown) == 1 else "")
