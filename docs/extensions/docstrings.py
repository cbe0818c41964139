"""A Sphinx extension: docstrings of this project, which are plain text, as reStructuredText.

An indented block is code, text between backquotes too, and a section such as `Attributes` has an
entry a line: `name: meaning`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_SECTION = re.compile(r"^-{3,}$")
_ENTRY = re.compile(r"^(\*{0,2}\w[\w, *]*):\s")
_CODE = re.compile(r"(`+[^`]+`+)")


def rest(lines: list[str]) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    made: list[str] = []
    in_section = in_entry = literal = False
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if _SECTION.match(line):
            continue
        if _SECTION.match(following):
            made += ["", f".. rubric:: {line.strip()}", ""]
            in_section, in_entry, literal = True, False, False
        elif not line.strip():
            made.append("")
        elif in_section and _ENTRY.match(line):
            name, meaning = line.split(":", 1)
            made += ["", f"- ``{name}``: {_escaped(meaning.strip())}"]
            in_entry = True
        elif in_entry and line.startswith(" "):
            made.append("  " + _escaped(line.strip()))
        elif line.startswith("  "):
            if not literal:
                made += ["", "::", ""]
            made.append(line)
            literal = True
        else:
            if literal:
                made.append("")
            made.append(_escaped(line))
            in_entry = literal = False
    return [*made, ""]


def _escaped(line: str) -> str:
    """A line whose code is marked as such, and in which no other character has a meaning."""
    parts = _CODE.split(line)
    return "".join(
        f"\\ ``{part.strip('`')}``\\ " if number % 2 else re.sub(r"([*|_`\\])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = rest(list(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
