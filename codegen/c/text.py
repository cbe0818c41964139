"""Pieces of C text: names, and expressions that know how tightly they bind."""

from __future__ import annotations

import re

from loopwright.c_names import is_variable

OTHER, SUM, PRODUCT, UNARY, ATOM = range(5)
"""Binding strength of an expression; a looser one than asked for gets parentheses."""

# What generated code itself calls, or names.
_TAKEN = re.compile(
    r"chunk|group|data|with|end|status|(exp|exp2|expm1|log|log2|log10|log1p|sqrt|sin|cos|tan|asin"
    r"|acos|atan|sinh|cosh|tanh|asinh|acosh|atanh|erf|floor|ceil|trunc|rint|fabs|pow|atan2|fmod)f?"
)


class Text(str):
    """C source of an expression."""

    level: int

    def __new__(cls, text: str, level: int = ATOM) -> Text:
        """Text that binds as tightly as `level` says."""
        made = super().__new__(cls, text)
        made.level = level
        return made

    def inside(self, level: int) -> str:
        """The text where something of a level is wanted."""
        return str(self) if self.level >= level else f"({self})"


def call(function: str, *parts: str) -> Text:
    """A call of a C function."""
    return Text(f"{function}({', '.join(parts)})")


def product(x: Text, y: Text) -> Text:
    """x · y."""
    return Text(f"{x.inside(PRODUCT)} * {y.inside(UNARY)}", PRODUCT)


def c_name(name: str, taken: set[str]) -> str:
    """A name for a variable of C, as near as can be to `name`, that is not taken."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not is_variable(text) or _TAKEN.fullmatch(text):
        text = f"x_{text}"
    while text in taken:
        text += "_"
    return text


def comment(text: str) -> str:
    """Text that may stand in a comment of C."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
