"""Element expressions as C.

Halves are computed in float and rounded after every operation, as everywhere. They and truth
values are stored as integers. What C has no operator for is a function of elements.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright.codegen.c.places import Places
from loopwright.codegen.c.text import ATOM, OTHER, PRODUCT, SUM, UNARY, Text, call, product
from loopwright.codegen.library.header import C_TYPES
from loopwright.dsl.dtypes import HALVES, is_float, is_unsigned, limits, numpy_dtype
from loopwright.dsl.expr import COMPARISONS, Binary, Cast, Const, Expr, Gather, Select, Unary
from loopwright.dsl.traversal import children
from loopwright.schedule.tree.grammar import Buffer, Load, Position

_SUFFIX = {
    f"{kind}{bits}": f"{kind[0]}{bits}"
    for kind in ("int", "uint", "float")
    for bits in (8, 16, 32, 64)
}
_OWN = ("min", "max", "floordiv", "mod", "rsqrt", "sigmoid")
"""Functions of floats that elements.h has."""
_C_NAMES = {"abs": "fabs", "round": "rint"}
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_LEVELS = {"add": SUM, "sub": SUM, "mul": PRODUCT, "div": PRODUCT}
_LOGICAL = {"and": "&&", "or": "||"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}


def computed_type(dtype: str) -> str:
    """The type in which elements of a type are computed: a type of the notation."""
    return "float32" if dtype in HALVES else dtype


class Values:
    """Writes element expressions; `name` gives the C name of a buffer."""

    def __init__(self, places: Places, name: Callable[[Buffer], str]) -> None:
        self.places, self.name = places, name

    def stored(self, x: Expr, dtype: str) -> Text:
        """A value as a buffer of a type holds it."""
        if isinstance(x, (Load, Gather)) and x.dtype == dtype:
            return self._element(x)
        value = self.value(x)
        if dtype in HALVES:
            return call(f"lw_to_{dtype}", value)
        return value

    def value(self, x: Expr) -> Text:
        """A value in the type that it is computed in."""
        if isinstance(x, Const):
            return constant(x)
        if isinstance(x, Position):
            return _cast("int32", self.places.linear(x.value))
        if isinstance(x, (Load, Gather)):
            element = self._element(x)
            return call(f"lw_of_{x.dtype}", element) if x.dtype in HALVES else element
        parts = [self.value(child) for child in children(x)]
        if isinstance(x, Select):
            condition, yes, no = (part.inside(SUM) for part in parts)
            return Text(f"{condition} ? {yes} : {no}", OTHER)
        if isinstance(x, Cast):
            return self._converted(parts[0], x.x.dtype, x.type)
        if isinstance(x, Unary):
            return _rounded(_unary(x.op, parts[0], x.dtype), x.dtype)
        assert isinstance(x, Binary), x
        value = _binary(x.op, parts[0], parts[1], x.x.dtype)
        return value if x.dtype == "bool" else _rounded(value, x.dtype)

    def _element(self, x: Load | Gather) -> Text:
        """An element as its buffer holds it."""
        if isinstance(x, Load):
            at = self.places.offset(x.buffer, x.index, x.clamped)
            return Text(f"{self.name(x.buffer)}[{at}]")
        table = x.table
        text, step = self.places.offset(table.buffer, table.index, table.clamped).inside(SUM), 1
        for named, size in zip(reversed(x.at), reversed(x.shape), strict=True):
            if named is not None:
                place = call(f"lw_place_{_SUFFIX[named.dtype]}", self.value(named), str(size))
                text += f" + {place if step == 1 else product(Text(str(step)), place)}"
            step *= size
        return Text(f"{self.name(table.buffer)}[{text.removeprefix('0 + ')}]")

    def _converted(self, value: Text, source: str, dtype: str) -> Text:
        if dtype == "bool":
            return value if source == "bool" else Text(f"{value.inside(SUM)} != 0", OTHER)
        if is_float(source) and not is_float(dtype) and dtype not in ("int32", "int64", "uint64"):
            value = _cast("int64" if dtype == "uint32" else "int32", value)  # then wrap, as NumPy
        return _rounded(_cast(computed_type(dtype), value), dtype)


def _cast(dtype: str, value: Text) -> Text:
    return Text(f"({C_TYPES[dtype]}){value.inside(UNARY)}", UNARY)


def _rounded(value: Text, dtype: str) -> Text:
    return call(f"lw_round_{dtype}", value) if dtype in HALVES else value


def _infix(x: Text, sign: str, y: Text, level: int) -> Text:
    if level == OTHER:
        return Text(f"{x.inside(SUM)} {sign} {y.inside(SUM)}", OTHER)
    return Text(f"{x.inside(level)} {sign} {y.inside(level + 1)}", level)


def _binary(op: str, x: Text, y: Text, dtype: str) -> Text:
    """An operator of two values of a type; not yet rounded to a half."""
    if dtype == "bool" and op in _LOGICAL:
        return _infix(x, _LOGICAL[op], y, OTHER)
    if op in COMPARISONS:
        return _infix(x, COMPARISONS[op], y, OTHER)
    kind = computed_type(dtype)
    if is_float(kind):
        if op in _OPERATORS:
            return _infix(x, _OPERATORS[op], y, _LEVELS[op])
        return _function(op, kind, x, y)
    if op in _BITWISE:
        return _cast(kind, _infix(x, _BITWISE[op], y, OTHER))
    return call(f"lw_{op}_{_SUFFIX[kind]}", x, y)


def _unary(op: str, x: Text, dtype: str) -> Text:
    if op == "not":
        if dtype == "bool":
            return Text(f"!{x.inside(ATOM)}", UNARY)
        return _cast(dtype, Text(f"~{x.inside(ATOM)}", UNARY))
    kind = computed_type(dtype)
    if not is_float(kind):
        return call(f"lw_{op}_{_SUFFIX[kind]}", x)
    return Text(f"-{x.inside(ATOM)}", UNARY) if op == "neg" else _function(op, kind, x)


def _function(op: str, kind: str, *parts: Text) -> Text:
    """A function of floats."""
    if op in _OWN:
        return call(f"lw_{op}_{_SUFFIX[kind]}", *parts)
    return call(_C_NAMES.get(op, op) + ("f" if kind == "float32" else ""), *parts)


def constant(x: Const) -> Text:
    """A constant, with as many digits as its type needs."""
    kind = computed_type(x.type)
    if kind == "bool":
        return Text(str(int(x.value)))
    if is_float(kind):
        with np.errstate(over="ignore"):
            value: Any = np.asarray(x.value, numpy_dtype(x.type)).astype(kind)[()]
        if math.isnan(value):
            return Text("NAN")
        text = "INFINITY" if math.isinf(value) else _digits(abs(value), kind)
        return Text(f"-{text}", UNARY) if math.copysign(1.0, value) < 0 else Text(text)
    number, bits = int(x.value), numpy_dtype(kind).itemsize * 8
    wide = f"{'U' if is_unsigned(kind) else ''}INT{bits}_C" if bits == 64 else ""
    if number == limits(kind)[0] < 0:  # C has no literal for it
        return (
            Text(f"-{wide}({-(number + 1)}) - 1", SUM) if wide else Text(f"{number + 1} - 1", SUM)
        )
    text = f"{wide}({abs(number)})" if wide else str(abs(number))
    text += "u" if kind == "uint32" else ""
    return Text(f"-{text}", UNARY) if number < 0 else Text(text)


def _digits(value: Any, kind: str) -> str:
    text = str(value)
    text = text if any(sign in text for sign in ".e") else f"{text}.0"
    return text + ("f" if kind == "float32" else "")
