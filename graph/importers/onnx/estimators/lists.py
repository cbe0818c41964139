"""Checks of attributes that are lists, which ONNX itself leaves unchecked."""

from __future__ import annotations

import numpy as np

from loopwright.graph.importers.onnx.call import Call
from loopwright.graph.importers.onnx.values import Array


def same_length(call: Call, prefix: str) -> None:
    """Raises `UnsupportedOperator` where the lists whose names begin so differ in length."""
    given = {n: np.size(v) for n, v in call.attributes.items() if n.startswith(prefix)}
    lengths = {name: size for name, size in given.items() if size}
    if len({*lengths.values()}) > 1:
        least, most = (how(lengths, key=lengths.__getitem__) for how in (min, max))
        raise call.unsupported(
            f"its {least} has {lengths[least]} numbers and its {most} {lengths[most]}; "
            "each may have as many"
        )


def in_range(call: Call, name: str, numbers: Array, end: int | Array) -> None:
    """Raises `UnsupportedOperator` where some number is not from 0 to `end`, which is outside."""
    wrong = np.flatnonzero((numbers < 0) | (numbers >= end))
    if len(wrong):
        most = np.broadcast_to(end, numbers.shape)[wrong[0]] - 1
        raise call.unsupported(f"{name} has {numbers[wrong[0]]}; it may have 0 to {most} there")


def for_columns(call: Call, name: str, columns: int) -> Array:
    """Real numbers that are an attribute, one for all columns or one for each."""
    given = np.asarray(call.get(name) or [])
    if given.size not in (1, columns):
        raise call.unsupported(
            f"its {name} has {given.size} numbers; it may have one, or {columns}, one a column"
        )
    return given
