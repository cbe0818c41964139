"""Axes of ONNX files that are named by arithmetic of other names, as `past + sequence`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from typing import Any

from loopwright.dsl.errors import NotationError
from loopwright.dsl.size import Size

_NAME = re.compile(r"[^\W\d]\w*")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def size_of_sum(word: str, known: Mapping[str, Size]) -> Size | None:
    """The size of an axis whose name is a sum, a difference, a product or a quotient of known
    ones and integers; None for any other name.

    `past + 1 ↦ lw.dim("past", 0, 64) + 1`
    """
    try:
        made = _value(ast.parse(word.strip(), mode="eval").body, known)
    except (SyntaxError, ValueError, KeyError, NotationError):
        return None
    return made if isinstance(made, Size) else None


def words_in(word: str) -> list[str]:
    """The names in the name of an axis: `2*half + past` has two."""
    return _NAME.findall(word)


def renamed(word: str, names: Mapping[str, str]) -> str:
    """The name of an axis with other names in it."""
    return _NAME.sub(lambda found: names.get(found[0], found[0]), word)


def _value(x: ast.expr, known: Mapping[str, Size]) -> Any:
    """What an expression is. Raises `KeyError` for one of another kind, or an unknown name."""
    if isinstance(x, ast.Name):
        return known[x.id]
    if isinstance(x, ast.Constant) and type(x.value) is int:
        return x.value
    if isinstance(x, ast.BinOp):
        return _OPERATORS[type(x.op)](_value(x.left, known), _value(x.right, known))
    raise KeyError(ast.dump(x))
