"""Object files of trees by the built-in code generator, or the reason why there is none.

They are ELF for x86-64, to be linked like a compiler's, or mapped. The System V ABI, its
supplement for AMD64 and the ELF specification (TIS, version 1.2) have the layout. The section
`MARK`, which is empty, tells that nothing but calls has to be resolved, so that
`library/mapped.py` can load the file without a linker.
"""

from __future__ import annotations

import struct

from loopwright.codegen.builtin.code import AVX2, AVX512, Code, Uncovered, VectorSet
from loopwright.codegen.builtin.emit import emit_tree
from loopwright.codegen.library.linker import architecture
from loopwright.codegen.library.mapped import MARK
from loopwright.codegen.target import cpu_features, has_avx512
from loopwright.schedule.target import Target
from loopwright.schedule.tree.grammar import Tree

_AVX2 = frozenset(("avx2", "fma"))
_AVX512 = frozenset(("avx512f", "avx512vl", "avx512dq"))
"""Features of the processor, in the words of /proc/cpuinfo."""


def vector_set(target: Target) -> VectorSet:
    """The vectors of the programs of a target. Raises `Uncovered`."""
    features = set(cpu_features(target))
    if architecture(target.triple) != "x86_64" or not features >= _AVX2:
        raise Uncovered("processors other than x86-64 with AVX2 and FMA")
    if not has_avx512(target):
        return AVX2
    if not features >= _AVX512:
        raise Uncovered("AVX-512 without AVX512VL and AVX512DQ")
    return AVX512


def compile_builtin(tree: Tree, target: Target) -> tuple[bytes | None, str]:
    """The object file of a tree of one config, or None and what of the tree is not covered."""
    try:
        return object_file(emit_tree(tree, target.threads, vector_set(target))), ""
    except Uncovered as reason:
        return None, str(reason)


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_CALL = 4  # R_X86_64_PLT32
_PROGBITS, _SYMTAB, _STRTAB, _RELA = 1, 2, 3, 4
_LOCAL, _GLOBAL = 0x02, 0x12  # functions
_UNDEFINED = 0x10


def object_file(code: Code) -> bytes:
    """An object file with the functions of `code`; calls of others are left to the linker."""
    names = bytearray(b"\0")

    def name(text: str) -> int:
        names.extend(text.encode() + b"\0")
        return len(names) - len(text) - 1

    local = {s: at for s, at in code.symbols.items() if "." in s}
    public = {s: at for s, at in code.symbols.items() if "." not in s}
    missing = list(dict.fromkeys(called for _, called in code.calls))
    ends = sorted([*code.symbols.values(), len(code.text)])
    symbols = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    for group, kind in ((local, _LOCAL), (public, _GLOBAL)):
        for symbol, at in group.items():
            size = next(e for e in ends if e > at) - at
            symbols.append(_SYMBOL.pack(name(symbol), kind, 0, 1, at, size))
    number = {}
    for symbol in missing:
        number[symbol] = len(symbols)
        symbols.append(_SYMBOL.pack(name(symbol), _UNDEFINED, 0, 0, 0, 0))
    calls = (_RELOCATION.pack(at, number[s] << 32 | _CALL, -4) for at, s in code.calls)
    parts = [
        (".text", _PROGBITS, 6, bytes(code.text), 0, 0, 64, 0),
        (".rela.text", _RELA, 0x40, b"".join(calls), 3, 1, 8, _RELOCATION.size),
        (".symtab", _SYMTAB, 0, b"".join(symbols), 4, 1 + len(local), 8, _SYMBOL.size),
        (".strtab", _STRTAB, 0, bytes(names), 0, 0, 1, 0),
        (".note.GNU-stack", _PROGBITS, 0, b"", 0, 0, 1, 0),
        (MARK, _PROGBITS, 0, b"", 0, 0, 1, 0),
    ]
    titles = bytearray(b"\0")
    body, headers = bytearray(_HEADER.size), [_SECTION.pack(*(0,) * 10)]
    parts.append((".shstrtab", _STRTAB, 0, b"", 0, 0, 1, 0))
    for title, kind, flags, data, link, info, align, entry in parts:
        place = len(titles)
        titles += title.encode() + b"\0"
        data = bytes(titles) if title == ".shstrtab" else data
        body += bytes(-len(body) % align)
        row = (place, kind, flags, 0, len(body), len(data), link, info, align, entry)
        headers.append(_SECTION.pack(*row))
        body += data
    body += bytes(-len(body) % 8)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    size, count = _SECTION.size, len(headers)
    head = (identity, 1, 62, 1, 0, 0, len(body), 0, _HEADER.size, 0, 0, size, count, count - 1)
    _HEADER.pack_into(body, 0, *head)
    return bytes(body + b"".join(headers))
