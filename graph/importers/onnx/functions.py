"""Operators that ONNX itself defines by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright.graph.importers.onnx.values import Value, shape_of
from loopwright.packages import onnx


def body_of(node: Any, version: int, inputs: Sequence[Value | None]) -> Any:
    """The function that an operator of ONNX stands for, or None."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = [_type(x).SerializeToString() for x in inputs]
    try:
        body = schema.get_context_dependent_function(node.SerializeToString(), types)
    except Exception:  # noqa: BLE001 - it has none for these inputs
        return None
    if not body:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    return function if function.node else None


def default_attributes(node: Any, version: int) -> dict[str, Any]:
    """The attributes that an operator has where a node gives none."""
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    defaults = {name: a.default_value for name, a in schema.attributes.items()}
    return {name: a for name, a in defaults.items() if a.type}


def _type(value: Value | None) -> Any:
    if value is None:
        return onnx.TypeProto()
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(value.dtype)))
    return onnx.helper.make_tensor_type_proto(dtype, shape_of(value))
