"""Words for what is told."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence

_LONGEST = 60  # characters of a value in a message


def counted(number: float, noun: str) -> str:
    """A number with its noun: `1 trial`, `8 trials`, `0.5 minutes`."""
    shown = str(number) if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun}{'' if number == 1 else 's'}"


def brief(value: object) -> str:
    """A value of a wrong type, for a message: the shape of an array, the text of what is short."""
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    if shape and isinstance(shape, Sequence):
        return f"{kind} of shape {tuple(shape)}"
    text = " ".join(repr(value).split())
    if len(text) > _LONGEST:
        return f"{'' if text.startswith(kind) else f'{kind} '}{text[:_LONGEST]}…"
    return text if value is None or text.startswith(kind) else f"{kind} {text}"


def among(value: object, words: Collection[str]) -> bool:
    """Return whether a value is one of some words. Arrays would be compared element by element."""
    return isinstance(value, str) and value in words


def quoted(value: object) -> str:
    """A text in quotes, and a value of a wrong type as `brief` shows it, for a message."""
    return repr(value) if isinstance(value, str) else brief(value)


def no_element(value: object) -> str:
    """Message for a value that stands where an element of a tensor is wanted."""
    hint = "give a number, an element such as A[i, j], or an index"
    if hasattr(value, "definition"):
        hint = "write its indices, T[i, j]"
    elif hasattr(value, "__array__"):
        shape = getattr(value, "shape", None)
        hint = (
            "a definition has no data: write the elements of a tensor, "
            f'lw.tensor("T", {shape})[…], and give the array to the library\'s call'
        )
    return f"{brief(value)} is not an element expression: {hint}"


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """A value as a notebook shows it: a table with a title and a row for each of its parts."""
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th>"
        f'<td style="text-align: left; white-space: pre-wrap">{html.escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"


def assigned(values: Mapping[str, object]) -> str:
    """Values with their names: n=4, m=7."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
