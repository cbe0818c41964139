"""Conditions of a node and of an input, and the messages where they do not hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.dsl.dtypes import DTYPES, numpy_dtype
from loopwright.graph.errors import ModelError, UnsupportedOperator
from loopwright.graph.importers.onnx.call import Call
from loopwright.graph.importers.onnx.values import Value, dtype_of
from loopwright.packages import onnx

_SHOWN = 100  # characters of an attribute up to which a message has it whole


@dataclass(frozen=True)
class _Schema:
    """The schema of an operator in ONNX: `counts` of what it has, least and most; its attributes'
    types by name, and which must be given; the letter of each input's type, and the kinds that it
    may be of. An input of any number or type has no letter. Whether each input is the first one or
    one of any number, and must be given: files leave out others that a definition asks for."""

    counts: tuple[tuple[str, int, int], ...]
    attributes: Mapping[str, tuple[int, bool]]
    inputs: tuple[tuple[str, frozenset[str]], ...]
    needed: tuple[bool, ...]


@lru_cache(maxsize=1024)
def _schema(op: str, version: int, domain: str) -> _Schema | None:
    try:
        found = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None
    options = onnx.defs.OpSchema.FormalParameterOption
    types = {c.type_param_str: c.allowed_type_strs for c in found.type_constraints}
    return _Schema(
        (
            ("inputs", found.min_input, found.max_input),
            ("outputs", found.min_output, found.max_output),
        ),
        {name: (a.type.value, a.required) for name, a in found.attributes.items()},
        tuple(
            (
                x.type_str if x.is_homogeneous else "",
                frozenset(
                    _kind(t) for t in types.get(x.type_str, [x.type_str]) if t.startswith("tensor")
                ),
            )
            for x in found.inputs
        ),
        tuple(
            x.option == options.Variadic or (not n and x.option == options.Single)
            for n, x in enumerate(found.inputs)
        ),
    )


def _kind(dtype: str) -> str:
    """A type as a number, by its name or by ONNX's; the bytes are another matter."""
    name = dtype.removeprefix("tensor(").removesuffix(")")
    if name == "double" or re.fullmatch(r"b?float(16|32|64)?", name):
        return "floats"
    if re.fullmatch(r"u?int\d+", name):
        return "integers"
    return {"bool": "booleans", "object": "string"}.get(name, name)


def check_node(node: Any, label: str, version: int, inputs: Sequence[Value | None]) -> None:
    """Raise `ModelError` unless a node has as many inputs and outputs, of the element types, and
    those attributes, that ONNX wants of its operator."""
    schema = _schema(node.op_type, version, node.domain)
    if schema is None:
        return
    for (what, least, most), found in zip(schema.counts, (len(node.input), len(node.output))):
        if not least <= found <= most:
            allowed = f"{least}" if most == least else f"{least} to {most}"
            if found < least and most > 100:  # any number
                allowed = f"at least {least}"
            raise ModelError(f"{label} has {found} {what}; it may have {allowed}")
    for number, name in enumerate(node.input):
        if not name and schema.needed[min(number, len(schema.needed) - 1)]:
            raise UnsupportedOperator(
                f"{label}: its input {number} is left out; name a value there"
            )
    given = {a.name: a.type for a in node.attribute}
    kinds = onnx.AttributeProto.AttributeType
    for name, (wanted, required) in schema.attributes.items():
        if required and name not in given:
            raise ModelError(f"{label} lacks its attribute {name}, of type {kinds.Name(wanted)}")
        if given.get(name, 0) not in (0, wanted):  # old files give no types
            raise ModelError(
                f"{label}: its attribute {name} is of type {kinds.Name(given[name])}; it may be "
                f"of {kinds.Name(wanted)}"
            )
    _check_types(schema, label, inputs)


def _check_types(schema: _Schema, label: str, inputs: Sequence[Value | None]) -> None:
    """Raise `ModelError` for an input of another kind, or for two of one letter whose types
    differ. Integers of other sizes than an operator's version allows are left to the rule, and so
    are truth values in their place, which torch's exporter writes."""
    seen: dict[str, str] = {}
    for number, value in enumerate(inputs):
        letter, kinds = schema.inputs[min(number, len(schema.inputs) - 1)]
        if value is None:
            continue
        dtype = str(value.dtype)
        kind = "integers" if dtype == "bool" and "integers" in kinds else _kind(dtype)
        if kinds and kind not in kinds:
            raise ModelError(
                f"{label}: its input {number} is {dtype}; it may be {', '.join(sorted(kinds))}"
            )
        if letter and seen.setdefault(letter, dtype) != dtype:
            raise ModelError(
                f"{label}: its input {number} is {dtype} and one before it {seen[letter]}; they "
                "may be of one type"
            )


def not_as_defined(call: Call) -> str:
    """Message for a call that its rule cannot make sense of."""
    shown = [f"{x.dtype} {x.shape}" if x is not None else "left out" for x in call.inputs]
    attributes = "".join(
        f", {name}={value}" if len(str(value)) <= _SHOWN else f", a long {name}"
        for name, value in call.attributes.items()
        if isinstance(value, (int, float, str, list))
    )
    return (
        f"{call.label} is not as ONNX {call.version} defines it: its inputs are "
        f"{', '.join(shown)}{attributes}; see onnx.ai/onnx/operators for what they may be"
    )


def dtype_of_input(name: str, kind: int) -> str:
    """The element type of an input, by ONNX's number. Raises `UnsupportedOperator`."""
    names = {n: label.lower() for label, n in onnx.TensorProto.DataType.items()}
    dtype = dtype_of(kind) if names.get(kind, "undefined") != "undefined" else ""
    if dtype not in DTYPES:
        raise UnsupportedOperator(
            f"input {name} is of the element type {names.get(kind, kind)}; allowed are "
            f"{', '.join(DTYPES)}"
        )
    return dtype


def empty_input(value: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array for an input of a shape without elements. Raises `UnsupportedOperator`."""
    dtype = dtype_of_input(value.name, value.type.tensor_type.elem_type)
    return np.zeros(shape, numpy_dtype(dtype))
