"""Functions in object files: ELF of 64 bits, as LLVM, C compilers and we write it.

The layout is that of the ELF specification (TIS, version 1.2) and of its supplement for AMD64.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOLS, _RELOCATIONS, _EXECUTABLE, _FUNCTION, _WEAK = 2, 4, 4, 2, 2
MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True)
class CodeSection:
    """A section of machine code, the begin and end of its functions by name, `gaps` between them,
    which may have functions without a name, such as LLVM's parallel loops, and the places that a
    linker fills in."""

    code: bytes
    functions: dict[str, tuple[int, int]]
    gaps: tuple[tuple[int, int], ...]
    outside: frozenset[int]


@dataclass(frozen=True)
class ObjectCode:
    """The machine code of an object file, and the processor family that it is for."""

    architecture: str
    sections: tuple[CodeSection, ...]


def read_object(content: bytes) -> ObjectCode | None:
    """The machine code of a file; None where it is none that we know. Weak functions, which every
    module of TVM brings, are left out."""
    try:
        return _read(content)
    except (struct.error, IndexError, ValueError):
        return None


def _read(content: bytes) -> ObjectCode | None:
    header = _HEADER.unpack_from(content)
    if content[:6] != b"\x7fELF\2\1" or header[2] not in MACHINES:
        return None
    table, size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(content, table + size * n) for n in range(count)]

    def bytes_of(number: int) -> bytes:
        start, length = sections[number][4:6]
        return content[start : start + length]

    functions: dict[int, dict[str, tuple[int, int]]] = {}
    weak: dict[int, list[tuple[int, int]]] = {}
    outside: dict[int, list[int]] = {}
    for number, section in enumerate(sections):
        if section[1] == _SYMBOLS:
            names = bytes_of(section[6])
            for name, info, _, where, at, length in _SYMBOL.iter_unpack(bytes_of(number)):
                if info & 15 != _FUNCTION or not length:
                    continue
                if info >> 4 == _WEAK:
                    weak.setdefault(where, []).append((at, at + length))
                    continue
                text = names[name : names.index(0, name)].decode(errors="replace")
                functions.setdefault(where, {})[text] = (at, at + length)
        elif section[1] == _RELOCATIONS:
            places = (at for at, _, _ in _RELOCATION.iter_unpack(bytes_of(number)))
            outside.setdefault(section[7], []).extend(places)
    found = []
    for n, section in enumerate(sections):
        if section[2] & _EXECUTABLE and n in functions:
            code, named = bytes_of(n), functions[n]
            gaps = _gaps([*named.values(), *weak.get(n, ())], len(code))
            found.append(CodeSection(code, named, gaps, frozenset(outside.get(n, ()))))
    return ObjectCode(MACHINES[header[2]], tuple(found))


def _gaps(spans: list[tuple[int, int]], size: int) -> tuple[tuple[int, int], ...]:
    """The bytes between spans, and behind them."""
    begins = [*sorted(begin for begin, _ in spans), size]
    ends = [0, *sorted(end for _, end in spans)]
    return tuple((a, b) for a, b in zip(ends, begins, strict=True) if a < b)
