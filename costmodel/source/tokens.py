"""Symbols of a text: reserved words whole, renamed identifiers and numbers by letters."""

from __future__ import annotations

import functools
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.costmodel.model import Floats, Integers, ModelError
from loopwright.costmodel.source.words import LANGUAGES, reserved

SYMBOLS = 128
"""The most symbols of a vocabulary, as in the paper."""
LONGEST = 1024
"""Symbols of a source that the LSTMs read, the last ones."""

_PARTS = re.compile(
    r"(?P<comment>/\*.*?\*/|//[^\n]*)"
    r"|(?P<line>^[ \t]*\#[^\n]*)"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfFhH]*)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)",
    re.DOTALL | re.MULTILINE,
)
_CALLED = re.compile(r"\s*\(")


def symbols(source: str, language: str) -> list[str]:
    """The symbols of a source in their order.

    Comments and preprocessor lines are left out, and white space in a row is one space or one
    newline. Functions are renamed A, B, … and other identifiers a, b, … in order of appearance.
    Fields such as `.x` keep their names. Raises `ModelError` for an unknown language.
    """
    if language not in LANGUAGES:
        raise ModelError(f"sources in {language!r}: choose one of {', '.join(LANGUAGES)}")
    if not isinstance(source, str):
        raise ModelError(f"a source is {source!r}: give the text of a kernel")
    return list(_kept_symbols(source, language))


@functools.lru_cache(4096)
def _kept_symbols(source: str, language: str) -> tuple[str, ...]:
    """The symbols of a source; a vocabulary is made of the sources that are counted next."""
    return tuple(_symbols(source, reserved(language)))


def _symbols(source: str, kept: frozenset[str]) -> Iterator[str]:
    names: dict[str, str] = {}
    functions = 0
    before = ""
    for part in _PARTS.finditer(source):
        kind, text = part.lastgroup, part.group()
        if kind in ("comment", "line"):
            text = " "
            kind = "space"
        if kind == "space":
            text = "\n" if "\n" in text else " "
            if before != " " and before != "\n":
                yield text
        elif kind == "word" and text in kept:
            yield text
        elif kind == "word" and before != ".":
            if text not in names:
                called = bool(_CALLED.match(source, part.end()))
                count = functions if called else len(names) - functions
                names[text] = _name(count, "A" if called else "a")
                functions += called
            yield from names[text]
        else:
            yield from text
        before = text[-1]


_UNKNOWN_TRIPS = 10.0
_BRACES = re.compile(r"\bfor\s*\([^;{}]*;(?P<until>[^;{}]*);[^;{}]*\)\s*\{|\{|\}")
_TRIPS = re.compile(r"<\s*(\d+)\s*$")


def _repeated(source: str) -> Iterator[tuple[float, str]]:
    """Parts of a source, and how often each runs; a loop's head counts as around it."""
    around, start = [1.0], 0
    for brace in _BRACES.finditer(source):
        yield around[-1], source[start : brace.end()]
        start = brace.end()
        if brace.group() == "}":
            around = around[:-1] or [1.0]
        else:
            trips = 1.0
            if brace["until"] is not None:
                number = _TRIPS.search(brace["until"])
                trips = float(number[1]) if number else _UNKNOWN_TRIPS
            around.append(around[-1] * trips)
    yield around[-1], source[start:]


def _name(place: int, first: str) -> str:
    """The name at a place of a, b, …, z, aa, ab, …, or of capitals."""
    letters = ""
    place += 1
    while place:
        place, digit = divmod(place - 1, 26)
        letters = chr(ord(first) + digit) + letters
    return letters


@dataclass(frozen=True)
class Vocabulary:
    """The symbols that a model knows; all others are one more, that of the unknown.

    Attributes
    ----------
    language: "opencl", "c" or "cuda".
    symbols: in order of their numbers from 1 on; of a corpus at most `SYMBOLS`, the unknown
        included.
    """

    language: str
    symbols: tuple[str, ...]

    @staticmethod
    def of(sources: Sequence[str], language: str) -> Vocabulary:
        """The most frequent symbols of a corpus."""
        counts = Counter(s for source in sources for s in symbols(source, language))
        frequent = sorted(counts, key=lambda s: (-counts[s], s))[: SYMBOLS - 1]
        return Vocabulary(language, tuple(sorted(frequent)))

    @staticmethod
    def whole(language: str) -> Vocabulary:
        """All that a source is made of: the reserved words and the characters of ASCII. Rows that
        count them compare, whatever sources they are of."""
        return Vocabulary(language, tuple(sorted({*reserved(language), *string.printable})))

    def encode(self, source: str) -> Integers:
        """Numbers of the symbols of a source, of shape (symbols,); 0 is the unknown."""
        numbers = {symbol: place for place, symbol in enumerate(self.symbols, 1)}
        return np.array([numbers.get(s, 0) for s in symbols(source, self.language)], np.int64)

    def runs(self, source: str) -> Floats:
        """Runs of each symbol, by the loops around it: (symbols + 1,), float32. Loops up
        to a number run so often; others ten times, as in Hayashi et al. 2015."""
        total = np.zeros(len(self.symbols) + 1)
        for times, text in _repeated(source):
            total += times * self.count([text])[0]
        return total.astype(np.float32)

    def count(self, sources: Sequence[str]) -> Floats:
        """Counts of each symbol in each source: (sources, symbols + 1), float32."""
        size = len(self.symbols) + 1
        rows = [np.bincount(self.encode(s), minlength=size) for s in sources]
        return np.array(rows, np.float32).reshape(len(rows), size)
