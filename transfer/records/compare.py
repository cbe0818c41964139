"""In what two workloads differ, by their JSON, for people who wonder why keys do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_FIELDS = ("shape", "dtype", "constant", "reducer", "body", "reduce")


@dataclass(frozen=True)
class Difference:
    """One field of two things: what was found, what was wanted, and how much it matters."""

    field: str
    found: object
    wanted: object
    weight: float = 1.0

    def __str__(self) -> str:
        if self.field.endswith("formula"):
            return f"{self.field} is another"
        return f"{self.field} {_plain(self.found)} instead of {_plain(self.wanted)}"


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Difference]:
    """The fields in which one workload (its `to_json`) differs from another, names apart.

    Tensors are compared in order and called by their names in `wanted`. Another formula, or
    another number of tensors, weighs more than any change of shapes.
    """
    one, other = nameless(found), nameless(wanted)
    if len(one) != len(other):
        return [Difference("number of tensors", len(one), len(other), 1000.0)]
    result = [d for pair in zip(one, other) for d in _of_tensors(*pair)]
    if not result and _outputs(found) != _outputs(wanted):
        result = [Difference("outputs", found["outputs"], wanted["outputs"])]
    return result


def nameless(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tensors of a workload's JSON, with numbers for the names of tensors and indices in
    their formulas; each keeps its `name`."""
    numbers = {t["name"]: f"t{n}" for n, t in enumerate(workload["tensors"])}
    return [_nameless(tensor, numbers) for tensor in workload["tensors"]]


def _outputs(workload: Mapping[str, Any]) -> list[int]:
    names = [tensor["name"] for tensor in workload["tensors"]]
    return [names.index(name) for name in workload["outputs"]]


def _nameless(tensor: Mapping[str, Any], tensors: Mapping[str, str]) -> dict[str, Any]:
    axes = [*tensor.get("axes", ()), *tensor.get("reduce", ())]
    indices = {name: f"i{n}" for n, (name, _) in enumerate(axes)}
    return {
        "name": tensor["name"],
        "shape": tensor["shape"],
        "dtype": tensor["dtype"],
        "constant": tensor.get("constant", False),
        "reducer": tensor.get("reducer"),
        "body": _renamed(tensor.get("body"), tensors, indices),
        "reduce": [extent for _, extent in tensor.get("reduce", ())],
    }


def _renamed(part: Any, tensors: Mapping[str, str], indices: Mapping[str, str]) -> Any:
    """A formula is `[operator, operands…]`, a read `["read", tensor, indices]`, and a term of an
    index `[name, coefficient]`."""
    if not isinstance(part, list):
        return part
    inner = [_renamed(p, tensors, indices) for p in part]
    if part[:1] == ["read"]:
        return ["read", tensors.get(part[1], part[1]), *inner[2:]]
    if len(part) == 2 and isinstance(part[0], str) and isinstance(part[1], int):
        return [indices.get(part[0], part[0]), part[1]]
    return inner


def _of_tensors(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    name = other["name"]
    for field in _FIELDS:
        if one[field] == other[field]:
            continue
        if field == "body":
            yield Difference(f"{name}'s formula", one[field], other[field], 100.0)
        elif field == "shape":
            yield Difference(f"{name}'s shape", one[field], other[field], _distance(one, other))
        else:
            yield Difference(f"{name}'s {field}", one[field], other[field], 3.0)


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Distance of two shapes: the factors between their extents, as logarithms."""
    if len(one["shape"]) != len(other["shape"]):
        return 10.0
    return sum(abs(math.log(a / b)) for a, b in zip(one["shape"], other["shape"]) if a and b)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return str(value)
