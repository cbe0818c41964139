"""Tensors and expressions as plain JSON data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopwright.dsl import expr as e
from loopwright.dsl import functions as f
from loopwright.dsl.dtypes import check_dtype
from loopwright.dsl.elements import BINARY, REDUCERS, UNARY
from loopwright.dsl.errors import NotationError
from loopwright.dsl.index import Affine, Index, Quotient, as_affine, indices
from loopwright.dsl.size import Size, merged
from loopwright.dsl.tensor import Tensor

INFINITIES = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


@dataclass(frozen=True)
class Names:
    """Names in place of the own ones, where things are written under others."""

    tensors: Mapping[Tensor, str] = field(default_factory=dict)
    dims: Mapping[str, str] = field(default_factory=dict)
    indices: Mapping[str, str] = field(default_factory=dict)


_OWN = Names()


def tensor_to_json(tensor: Tensor, names: Names = _OWN) -> dict[str, Any]:
    """One tensor, with its definition if it has one; reads name their tensor."""
    data: dict[str, Any] = {
        "name": names.tensors.get(tensor, tensor.name),
        "shape": [extent_to_json(n, names) for n in tensor.shape or ()],
        "dtype": tensor.dtype,
    }
    if tensor.constant:
        data["constant"] = True
    if (d := tensor.definition) is not None:
        for kind, loops in (("axes", d.axes), ("reduce", d.reduce)):
            data[kind] = [
                [names.indices.get(i.name, i.name), extent_to_json(d.extents[i], names)]
                for i in loops
            ]
        data["reducer"] = d.reducer
        data["body"] = expr_to_json(d.body, names)
    return data


def tensor_from_json(
    data: dict[str, Any], known: Mapping[str, Tensor], dims: Mapping[str, Size]
) -> Tensor:
    """The tensor that `tensor_to_json` wrote; definitions are checked as if typed in."""
    constant = bool(data.get("constant", False))
    shape = [extent_from_json(n, dims) for n in data["shape"]]
    tensor = Tensor(data["name"], shape, data["dtype"], constant)
    if "body" not in data:
        return tensor
    extents = {name: extent_from_json(n, dims) for name, n in (*data["axes"], *data["reduce"])}
    open_ones = {name: n for name, n in extents.items() if isinstance(n, Size)}
    known_ones = {name: n for name, n in extents.items() if not isinstance(n, Size)}
    ranges = {i.name: i for i in indices(" ".join(open_ones), **known_ones)}
    ranges |= {name: Index(name, n) for name, n in open_ones.items()}  # type: ignore[arg-type]
    body = expr_from_json(data["body"], known, ranges, dims)
    axes = tuple(ranges[name].affine() for name, _ in data["axes"])
    if data["reducer"] is not None:
        if data["reducer"] not in (*REDUCERS, *e.ORDERS):
            raise NotationError(f"a damaged workload: no reducer {data['reducer']!r}")
        body = e.Reduce(data["reducer"], body)
    tensor[axes] = body
    return tensor


def extent_to_json(extent: int | Size, names: Names = _OWN) -> int | list[Any]:
    """An integer, or a size as the JSON of its expression."""
    return affine_to_json(extent.form, names.dims) if isinstance(extent, Size) else extent


def extent_from_json(data: int | list[Any], dims: Mapping[str, Size]) -> int | Size:
    """The extent that `extent_to_json` wrote, in dims by their names."""
    if not isinstance(data, list):
        return data
    form = affine_from_json(data, {name: Index(name) for name in dims})
    used = [dims[name] for name in dict.fromkeys(i.name for i in form.indices())]
    return Size(form, merged(tuple(d for size in used for d in size.dims)))


def expr_to_json(x: e.Expr, names: Names = _OWN) -> list[Any]:
    """An expression as nested lists `[operator, operands…]`."""

    def place(value: Affine) -> list[Any]:
        return affine_to_json(value, names.indices)

    def inside(*parts: e.Expr) -> list[Any]:
        return [expr_to_json(part, names) for part in parts]

    if isinstance(x, e.Const):
        text = str(x.value)
        return ["const", text if text in INFINITIES else x.value, x.type]
    if isinstance(x, e.Extent):
        return ["size", extent_to_json(x.size, names), x.type]
    if isinstance(x, e.Read):
        return ["read", names.tensors.get(x.tensor, x.tensor.name), [*map(place, x.index)]]
    if isinstance(x, e.Gather):
        pairs = zip(x.table.index, x.at, strict=True)
        places = [place(p) if at is None else {"at": expr_to_json(at, names)} for p, at in pairs]
        table = x.table.tensor
        return ["gather", names.tensors.get(table, table.name), places]
    if isinstance(x, e.IndexValue):
        return ["index", place(x.value)]
    if isinstance(x, e.Unary):
        return [x.op, *inside(x.x)]
    if isinstance(x, e.Binary):
        return [x.op, *inside(x.x, x.y)]
    if isinstance(x, e.Select):
        return ["where", *inside(x.cond, x.x, x.y)]
    if isinstance(x, e.Cast):
        return ["cast", *inside(x.x), x.type]
    raise NotationError(f"{type(x).__name__} cannot be written as JSON")


def expr_from_json(
    data: list[Any],
    known: Mapping[str, Tensor],
    ranges: Mapping[str, Index],
    dims: Mapping[str, Size],
) -> e.Expr:
    """The expression that `expr_to_json` wrote, built by the checked constructors."""
    op, *rest = data

    def sub(part: list[Any]) -> e.Expr:
        return expr_from_json(part, known, ranges, dims)

    if op == "const":
        value, dtype = rest
        return e.as_expr(INFINITIES.get(value, value), like=e.Const(0, check_dtype(dtype)))
    if op == "size":
        return e.as_expr(extent_from_json(rest[0], dims), like=e.Const(0, check_dtype(rest[1])))
    if op == "read":
        name, index = rest
        return known[name][tuple(affine_from_json(a, ranges) for a in index)]
    if op == "gather":
        name, places = rest
        index = [
            sub(p["at"]) if isinstance(p, dict) else affine_from_json(p, ranges) for p in places
        ]
        return e.gather(known[name], tuple(index))
    if op == "index":
        return e.IndexValue(affine_from_json(rest[0], ranges))
    if op == "where":
        return f.where(*(sub(part) for part in rest))
    if op == "cast":
        return e.Cast(sub(rest[0]), check_dtype(rest[1]))
    if op in UNARY:
        return e.unary(op, sub(rest[0]))
    if op in BINARY:
        return e.binary(op, sub(rest[0]), sub(rest[1]))
    raise NotationError(f"a damaged workload: no operator {op!r}")


def affine_to_json(value: Affine, names: Mapping[str, str]) -> list[Any]:
    """`[[[atom, coefficient], …], constant]`; an atom is a name or `[value, "//" or "%", n]`."""
    terms = []
    for atom, coefficient in value.terms:
        if isinstance(atom, Index):
            terms.append([names.get(atom.name, atom.name), coefficient])
        else:
            sign = "//" if isinstance(atom, Quotient) else "%"
            terms.append([[affine_to_json(atom.value, names), sign, atom.divisor], coefficient])
    return [terms, value.const]


def affine_from_json(data: list[Any], ranges: Mapping[str, Index]) -> Affine:
    """The index expression that `affine_to_json` wrote."""
    terms, const = data
    total = as_affine(const)
    for atom, coefficient in terms:
        if isinstance(atom, str):
            total = total + ranges[atom] * coefficient
        else:
            inner, sign, divisor = atom
            value = affine_from_json(inner, ranges)
            if sign not in ("//", "%"):
                raise NotationError(f"a damaged workload: no index operator {sign!r}")
            part = value // divisor if sign == "//" else value % divisor
            total = total + part * coefficient
    return total
