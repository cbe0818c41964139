"""What must hold of a node and of an input, and the messages where it does not."""

from __future__ import annotations

from typing import Any

from loopwright.dsl.dtypes import DTYPES
from loopwright.graph.errors import ModelError, UnsupportedOperator
from loopwright.graph.importers.onnx.call import Call, dtype_of


def check_node(node: Any, label: str, version: int) -> None:
    """Raise `ModelError` unless a node has as many inputs and outputs, and those attributes, that
    ONNX wants of its operator."""
    import onnx

    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return
    for what, found, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= found <= most:
            allowed = f"{least}" if most == least else f"{least} to {most}"
            if found < least and most > 100:  # any number
                allowed = f"at least {least}"
            raise ModelError(f"{label} has {found} {what}; it may have {allowed}")
    kinds = onnx.AttributeProto.AttributeType
    given = {a.name: a.type for a in node.attribute}
    for name, attribute in schema.attributes.items():
        wanted = attribute.type.value
        if name not in given and attribute.required:
            raise ModelError(f"{label} lacks its attribute {name}, of type {kinds.Name(wanted)}")
        if given.get(name, 0) not in (0, wanted):  # old files give no types
            raise ModelError(
                f"{label}: its attribute {name} is of type {kinds.Name(given[name])}; it may be "
                f"of {kinds.Name(wanted)}"
            )


def not_as_defined(call: Call) -> str:
    """Message for a call that its rule cannot make sense of."""
    shown = [f"{x.dtype} {x.shape}" if x is not None else "left out" for x in call.inputs]
    attributes = "".join(
        f", {name}={value}"
        for name, value in call.attributes.items()
        if isinstance(value, (int, float, str, list))
    )
    return (
        f"{call.label} is not as ONNX {call.version} defines it: its inputs are "
        f"{', '.join(shown)}{attributes}; see onnx.ai/onnx/operators for what they may be"
    )


def dtype_of_input(name: str, kind: int) -> str:
    """The element type of an input, by ONNX's number. Raises `UnsupportedOperator`."""
    import onnx

    names = {n: label.lower() for label, n in onnx.TensorProto.DataType.items()}
    dtype = dtype_of(kind) if names.get(kind, "undefined") != "undefined" else ""
    if dtype not in DTYPES:
        raise UnsupportedOperator(
            f"input {name} is of the element type {names.get(kind, kind)}; allowed are "
            f"{', '.join(DTYPES)}"
        )
    return dtype
