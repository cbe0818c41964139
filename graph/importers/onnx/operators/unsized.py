"""Operators that are refused, since the shapes of their results depend on data."""

from __future__ import annotations

from loopwright.graph.errors import ModelError
from loopwright.graph.importers.onnx.call import Call, Value, operator


@operator("NonMaxSuppression", "NonZero", "Unique")
def _refused(call: Call) -> Value:
    raise ModelError(
        f"{call.label}: the shape of its result depends on data, and programs are made for fixed "
        "shapes; end the model before it, and compute it outside"
    )
