"""Checks the prose of the documents: sentences of at most 40 words, and no words of our own.

    python tools/prose.py        prints what is wrong, and ends with 1 if anything is

A colon or a semicolon ends a sentence, too. `docs/lab` keeps findings as they were written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 40
WORDS = {
    "machine at hand": "host",
    "nursery": "fork server",
    "champion": "incumbent",
    "finalists": "those of the final comparison",
    "hasty": "zero-shot",
    "weights of three bytes": "int24 block weight compression",
    "leave zeros out": "skip zeros",
    "leaves zeros out": "skips zeros",
    "known ahead": "constant",
    "sayable": "supported",
    "whole_axis": "Winograd per polyphase component",
}
"""What the documents once called things, and the terms of the glossary."""

_CODE = re.compile(r"^(`{3,}).*?^\1|<!--.*?-->", re.MULTILINE | re.DOTALL)
_BLOCKS = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
_SKIPPED = re.compile(r"\s*[|#]|    ")


def pages() -> Iterator[Path]:
    """Every page that is read by users or by those who work on the code."""
    yield from ROOT.glob("*.md")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if not {"lab", "generated"} & set(page.relative_to(ROOT).parts):
            yield page


def faults(text: str) -> Iterator[str]:
    """What is wrong with a page."""
    for block in _BLOCKS.split(_CODE.sub("", text)):
        prose = " ".join(x for x in block.split("\n") if not _SKIPPED.match(x))
        for sentence in re.split(r"(?<=[.:;!?])\)?\s+", prose):
            words = sentence.split()
            if len(words) > MOST:
                yield f"{len(words)} words, at most {MOST}: {' '.join(words[:8])} …"
        for word, term in WORDS.items():
            if re.search(rf"\b{word}\b", prose, re.IGNORECASE):
                yield f"{word!r}: say {term!r}"


def main() -> int:
    """Print the faults of all pages; 1 if there are any."""
    found = [
        f"{page.relative_to(ROOT)}: {f}"
        for page in pages()
        for f in faults(page.read_text(encoding="utf-8"))
    ]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
