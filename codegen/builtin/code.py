"""Machine code as it is collected: places, labels, blocks of items, functions, constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from loopwright.codegen.builtin import encode as x86

FRAME = -2
"""The base of an operand in the frame."""

Place = tuple[int, int]
"""Memory: a number and bytes behind it; or `FRAME` and bytes; or `x86.RIP` and a constant."""

One = tuple[int, int, int]
"""A place and `x86.ONE`: one element for all lanes."""


@dataclass(frozen=True)
class VectorSet:
    """The vector instructions of a processor: `lanes` of a vector, `registers`, of which tiles may
    have `homes` at most. `extended` has masks by comparisons, and operands of one element for all
    lanes."""

    lanes: int
    registers: int
    homes: tuple[int, ...]
    extended: bool


AVX2 = VectorSet(8, 16, (14, 11, 8, 0), False)
AVX512 = VectorSet(16, 32, (30, 26, 20, 12, 0), True)


class Uncovered(Exception):  # noqa: N818 - a reason, not an error
    """Part of a tree that is not covered here: another code generator takes it."""


class Crowded(Uncovered):
    """Too few vector registers, beside those of register tiles."""


@dataclass(eq=False)
class Block:
    """A run of items that is known where it stands before it is known what it holds."""

    items: list[tuple] = field(default_factory=list)  # type: ignore[type-arg]


@dataclass(eq=False)
class Label:
    """A place that is jumped to."""

    at: int = -1
    aligned: bool = True
    jumps: list[int] = field(default_factory=list)


@dataclass
class Code:
    """Machine code: bytes, the functions in it, and the places of calls to others.

    `homes` are the registers of its vectors that register tiles may have.
    """

    vectors: VectorSet
    homes: int
    text: bytearray = field(default_factory=bytearray)
    symbols: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[int, str]] = field(default_factory=list)
    constants: list[tuple[int, bytes]] = field(default_factory=list)

    def finish(self) -> None:
        """Place the constants behind the code, and calls of functions that are inside."""
        self.text += x86.nothing(-len(self.text) % 64)
        places: dict[bytes, int] = {}
        for at, value in self.constants:
            if value not in places:
                places[value] = len(self.text)
                self.text += value
            rest = int.from_bytes(self.text[at : at + 4], "little", signed=True)
            struct.pack_into("<i", self.text, at, places[value] - at - 4 - rest)
        self.constants.clear()
        for at, name in [c for c in self.calls if c[1] in self.symbols]:
            struct.pack_into("<i", self.text, at, self.symbols[name] - at - 4)
        self.calls = [c for c in self.calls if c[1] not in self.symbols]
