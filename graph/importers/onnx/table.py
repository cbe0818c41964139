"""The page's table of ONNX operators, made of the table of rules itself.

    python -m loopwright.graph.importers.onnx.table docs/models.md

writes it anew between the marks of the page.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from loopwright.graph.importers.onnx import estimators, microsoft, operators, sequences  # noqa: F401 - fill the table
from loopwright.graph.importers.onnx.call import LIMITS, OPERATORS
from loopwright.graph.importers.onnx.fold import DRAWN
from loopwright.packages import onnx

_MARKS = ("<!-- ONNX operators, by the command below -->", "<!-- end of ONNX operators -->")
_ML = "ai.onnx.ml"
_SEQUENCES = r"Sequence|Optional|String|Regex|ImageDecoder"


def table() -> str:
    """The operators by what they do, and what does not go in, in Markdown."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name, rule in OPERATORS.items():
        module = sys.modules[getattr(rule, "func", rule).__module__]  # some are partial
        kinds[_first_sentence(module.__doc__ or "")].append(name)
    made, unread = _others()
    kinds["Sequences of tensors, of known length"] += sequences.OPERATORS
    rows = [*sorted(kinds.items()), ("Made of others by ONNX's own definition", made)]
    lines = ["| what they do | operators |", "|---|---|"]
    lines += [f"| {what} | {_listed(names)} |" for what, names in rows]
    lines += ["", "| operator | limit |", "|---|---|"]
    lines += [f"| {_listed(names)} | {limit} |" for limit, names in _limits()]
    lines += ["", f"Not read: {_listed([*unread, *_estimators()])}; training."]
    return "\n".join(lines)


def _first_sentence(text: str) -> str:
    return re.split(r"[.:]\s", text.replace("\n", " ") + " ", maxsplit=1)[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names, key=lambda n: (":" in n, n)))


def _limits() -> list[tuple[str, list[str]]]:
    """Each limit, and the operators that have it."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, limit in LIMITS.items():
        found[limit].append(name)
    return sorted(found.items(), key=lambda pair: _listed(pair[1]))


def _others() -> tuple[list[str], list[str]]:
    """ONNX's operators without a rule: those that it makes of others, and those that are left."""
    newest = {s.name: s for s in onnx.defs.get_all_schemas() if not s.domain}
    left = {n: s for n, s in newest.items() if n not in OPERATORS and n != "Constant"}
    made = [n for n, s in left.items() if s.has_function or s.has_context_dependent_function]
    made = [n for n in made if n not in DRAWN and not re.search(_SEQUENCES, n)]
    return made, [n for n in left if n not in made and n not in sequences.OPERATORS]


def _estimators() -> list[str]:
    """The operators of ai.onnx.ml without a rule."""
    every = {f"{s.domain}:{s.name}" for s in onnx.defs.get_all_schemas() if s.domain == _ML}
    return sorted(every - OPERATORS.keys())


def main(path: str) -> None:
    """Write the table into a page."""
    page = Path(path)
    before, rest = page.read_text(encoding="utf-8").split(_MARKS[0])
    _, after = rest.split(_MARKS[1])
    page.write_text(f"{before}{_MARKS[0]}\n\n{table()}\n\n{_MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
