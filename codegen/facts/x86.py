"""Instructions of x86-64, as far as compilers write them for user programs.

The encoding is that of Intel's manual, volume 2, chapter 2 and appendix A.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

from loopwright.codegen.facts.instruction import Instruction, Reader, Use, Way

_FRAMES = ((b"\x48\x83\xec", 1), (b"\x48\x81\xec", 4), (b"\x48\x83\xc4", 1))
"""SUB RSP, n and ADD RSP, -n: their beginnings, and bytes of the number."""
_FRAME_POINTER = b"\x48\x89\xe5"
"""MOV RBP, RSP."""
_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_BYTE_BEHIND = frozenset((0x6B, 0x80, 0x82, 0x83, 0xC0, 0xC1, 0xC6))
_WORD_BEHIND = frozenset((0x69, 0x81, 0xC7))
_BYTE = frozenset((0x6A, 0xA8, 0xCD, *range(0xB0, 0xB8), *range(0x04, 0x40, 8)))
_WORD = frozenset((0x68, 0xA9, *range(0x05, 0x40, 8)))
_WITH_OPERAND = frozenset(
    [n for n in range(0x40) if n & 7 < 4]
    + [0x63, 0x69, 0x6B, *range(0x80, 0x90), 0xC0, 0xC1, 0xC6, 0xC7]
    + [*range(0xD0, 0xD4), *range(0xD8, 0xE0), 0xF6, 0xF7, 0xFE, 0xFF]
)
_NO_OPERAND_0F = frozenset(
    (0x05, 0x06, 0x08, 0x09, 0x0E, 0x77, 0xA0, 0xA1, 0xA2, 0xA8, 0xA9, 0xAA)
    + (*range(0x30, 0x38), *range(0xC8, 0xD0))
)
_BYTE_BEHIND_0F = frozenset((0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6))
_HINTS_0F = frozenset((0x0D, *range(0x18, 0x20)))
_STORES = frozenset(
    (0x00, 0x01, 0x08, 0x09, 0x10, 0x11, 0x18, 0x19, 0x20, 0x21, 0x28, 0x29, 0x30, 0x31)
    + (0x80, 0x81, 0x83, 0x88, 0x89, 0xC0, 0xC1, 0xC6, 0xC7, 0xD0, 0xD1, 0xD2, 0xD3, 0xFE)
)
_VECTOR_STORES = {
    1: frozenset((0x11, 0x13, 0x17, 0x29, 0x2B, 0x7F, 0xD6, 0xE7)),
    2: frozenset((0x2E, 0x2F, 0x63, 0x8A, 0x8B, 0x8E)),
    3: frozenset((0x14, 0x15, 0x16, 0x17, 0x19, 0x1B, 0x1D, 0x39, 0x3B)),
}
"""Vector instructions that write to memory, by the map of their codes."""
_SSE = frozenset(
    (*range(0x10, 0x18), *range(0x28, 0x30), *range(0x50, 0x80), *range(0xD0, 0x100))
    + (0xC2, 0xC4, 0xC5, 0xC6)
)
_FUSED = frozenset(n for h in (0x90, 0xA0, 0xB0) for n in range(h + 6, h + 16))
_NUMBERS = frozenset(
    [(3, 0xF0), *((2, n) for n in range(0xF2, 0xF8)), *((3, n) for n in range(0x30, 0x34))]
    + [(1, n) for n in (*range(0x41, 0x4C), *range(0x90, 0x94), 0x98, 0x99)]
)
"""Instructions on integers and on masks, by map and code: ANDN, MULX, SHLX, KMOV, …"""
_SIZES = (1, 2, 5)
"""Bytes of an operand in memory, by its mode, but for those of an index."""
_VEX_SIZES = {0xC5: 3, 0xC4: 4, 0x62: 5}
"""Bytes of prefix and code, by the first one."""
_BYTE_BEHIND_VEX = frozenset((0x70, 0x71, 0x72, 0x73, 0xC2, 0xC4, 0xC5, 0xC6))
_MANDATORY = (0, 0x66, 0xF3, 0xF2)


def decode(code: bytes, at: int) -> Instruction | None:
    """The instruction at a place: see `Reader`."""
    try:
        return _decode(code, at)
    except IndexError:
        return None


def _decode(code: bytes, at: int) -> Instruction | None:
    prefix, narrow, rex = 0, False, 0
    op = code[at]
    while op in _PREFIXES:
        if op == 0x66:
            narrow = True
        if op in (0x66, 0xF2, 0xF3):
            prefix = op if op != 0x66 or not prefix else prefix
        at += 1
        op = code[at]
    if op in (0xC4, 0xC5, 0x62):
        return _vex(code, at, op)
    if op & 0xF0 == 0x40:
        rex = op
        narrow = narrow and not rex & 8
        at += 1
        op = code[at]
    at += 1
    if op == 0x0F:
        return _escaped(code, at, prefix, rex)
    if op in _WITH_OPERAND:
        modrm = code[at]
        end, access = _operand(code, at, rex)
        if op in _BYTE_BEHIND or (op == 0xF6 and not modrm & 0x30):
            end += 1
        elif op in _WORD_BEHIND or (op == 0xF7 and not modrm & 0x30):
            end += 2 if narrow else 4
        if access:
            access = _of_numbers(op, modrm >> 3 & 7, access)
        if op == 0xFF and modrm >> 3 & 7 in (4, 5):
            return None  # a jump to where data say
        return end, Way.PLAIN, 0, 0, 0, access
    return _without(code, at, op, narrow, bool(rex & 8))


def _without(code: bytes, at: int, op: int, narrow: bool, wide: bool) -> Instruction | None:
    """An instruction of one byte, but for numbers behind it."""
    if 0x70 <= op < 0x80 or 0xE0 <= op < 0xE4:
        return at + 1, Way.BRANCH, at + 1 + _signed(code[at]), 0, 0, 0
    if op == 0xEB:
        return at + 1, Way.JUMP, at + 1 + _signed(code[at]), 0, 0, 0
    if op in (0xE8, 0xE9):
        end = _behind(code, at, 4)
        target = end + int.from_bytes(code[at:end], "little", signed=True)
        return end, Way.JUMP if op == 0xE9 else Way.PLAIN, target, 0, 0, 0
    if op in (0xC2, 0xC3, 0xCC, 0xF4):
        return at + 2 * (op == 0xC2), Way.END, 0, 0, 0, 0
    if op in _BYTE:
        return _behind(code, at, 1), Way.PLAIN, 0, 0, 0, 0
    if op in _WORD:
        return _behind(code, at, 2 if narrow else 4), Way.PLAIN, 0, 0, 0, 0
    if 0xB8 <= op < 0xC0:
        return _behind(code, at, 8 if wide else 2 if narrow else 4), Way.PLAIN, 0, 0, 0, 0
    if 0x50 <= op < 0x60 or 0x90 <= op < 0xA0 or 0xA4 <= op < 0xB0 or 0xF5 <= op < 0xFE:
        return at, Way.PLAIN, 0, 0, 0, 0
    return (at, Way.PLAIN, 0, 0, 0, 0) if op == 0xC9 else None


def _escaped(code: bytes, at: int, prefix: int, rex: int) -> Instruction | None:
    """An instruction behind 0F: jumps, conditional moves, SSE."""
    op = code[at]
    at += 1
    if 0x80 <= op < 0x90:
        end = _behind(code, at, 4)
        return end, Way.BRANCH, end + int.from_bytes(code[at:end], "little", signed=True), 0, 0, 0
    if op == 0x0B:
        return at, Way.END, 0, 0, 0, 0
    if op in _NO_OPERAND_0F:
        return at, Way.PLAIN, 0, 0, 0, 0
    table = {0x38: 2, 0x3A: 3}.get(op, 1)
    if table > 1:
        op = code[at]
        at += 1
    end, access = _operand(code, at, rex)
    if table == 3 or (table == 1 and op in _BYTE_BEHIND_0F):
        end = _behind(code, end, 1)
    if table == 1 and op not in _SSE:
        stores = 0x90 <= op < 0xA0 or op in (0xB0, 0xB1, 0xC0, 0xC1)
        access = 0 if op in _HINTS_0F else _moved(access, stores)
        return end, Way.PLAIN, 0, 0, 0, access
    stores = op in _VECTOR_STORES[table] or (table == 1 and op == 0x7E and prefix != 0xF3)
    scalar = prefix in (0xF2, 0xF3) and table == 1
    width = (8 if prefix == 0xF2 else 4) if scalar else 16
    return end, Way.PLAIN, 0, width, 0, _moved(access, stores)


def _vex(code: bytes, at: int, op: int) -> Instruction | None:
    """An instruction of AVX, AVX2, FMA or AVX-512."""
    size = _VEX_SIZES[op]
    if at + size > len(code) or (form := _form(code[at : at + size])) is None:
        return None
    behind, width, fused, stores, rex = form
    at += size
    if behind < 0:  # VZEROUPPER
        return at, Way.PLAIN, 0, 0, 0, 0
    end, access = _operand(code, at, rex)
    if stores and access:
        access ^= Use.LOAD | Use.STORE
    return end + behind, Way.PLAIN, 0, width, fused, access


@functools.cache
def _form(head: bytes) -> tuple[int, int, int, bool, int] | None:
    """Facts of the prefix and the code of an instruction: bytes behind its operand, those of its
    vectors, fused products, whether it writes to memory, X and B as in a REX prefix. None where
    they are none."""
    *prefix, op = head
    if prefix[0] == 0xC5:
        last, table, wide, rex = prefix[1], 1, False, 0
    else:
        first, last = prefix[1:3]
        table, wide = first & (0x1F if prefix[0] == 0xC4 else 7), bool(last & 0x80)
        rex = ~first >> 5 & 3  # which are inverted here
    length = prefix[3] >> 5 & 3 if prefix[0] == 0x62 else last >> 2 & 1
    mandatory = _MANDATORY[last & 3]
    if table == 1 and op == 0x77:
        return -1, 0, 0, False, 0
    if not 1 <= table <= 6 or table == 4:
        return None
    immediate = table == 3 or (table == 1 and op in _BYTE_BEHIND_VEX)
    if (table, op) in _NUMBERS:
        return int(immediate), 0, 0, (table, op) == (1, 0x91), rex
    width, fused = 16 << min(length, 2), 0
    item = 2 if table in (5, 6) else 8 if wide else 4
    if table in (2, 6) and op in _FUSED and mandatory == 0x66:
        if op & 1 and op & 15 > 7:  # of one element
            width = item
        fused = width // item
    elif table == 1 and mandatory in (0xF2, 0xF3) and (op in (0x10, 0x11) or 0x51 <= op < 0x60):
        width = 8 if mandatory == 0xF2 else 4
    moves = table == 1 and op == 0x7E and mandatory == 0x66
    return int(immediate), width, fused, moves or op in _VECTOR_STORES.get(table, ()), rex


def _operand(code: bytes, at: int, rex: int) -> tuple[int, int]:
    """The place behind an operand, and its access: 0 of a register, `LOAD` of memory, with
    `BY_STACK` or `BY_FRAME`. `rex` has the bits X and B."""
    modrm = code[at]
    if modrm >= 0xC0:
        return at + 1, 0
    mode, base = modrm >> 6, modrm & 7
    end, access = at + _SIZES[mode], Use.LOAD
    if base == 4:
        sib = code[at + 1]
        base = sib & 7
        end += 5 if base == 5 and not mode else 1
        if base == 4 and not rex & 1 and sib >> 3 & 7 == 4 and not rex & 2:
            access |= Use.BY_STACK
    elif base == 5:
        if not mode:
            end += 4  # behind RIP
        elif not rex & 1:
            access |= Use.BY_FRAME
    if end > len(code):
        raise IndexError
    return end, access


def _of_numbers(op: int, register: int, access: int) -> int:
    """Access of an instruction on integers whose operand is memory."""
    if op == 0x8D:
        return 0  # an address alone
    compares = (op in (0x80, 0x81, 0x83) and register == 7) or (op == 0xFF and register > 1)
    writes = op in _STORES or op == 0xFF or (op in (0xF6, 0xF7) and register in (2, 3))
    return _moved(access, writes and not compares)


def _moved(access: int, stores: bool) -> int:
    return access ^ (Use.LOAD | Use.STORE) if stores and access else access


def _behind(code: bytes, at: int, count: int) -> int:
    """The place behind `count` bytes, which must be there."""
    if at + count > len(code):
        raise IndexError
    return at + count


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _stack_bytes(code: bytes, begin: int, end: int, known: Collection[int]) -> int:
    most = 0
    for start, size in _FRAMES:
        at = code.find(start, begin, end)
        while at >= 0:
            if at in known:
                behind = at + len(start)
                taken = int.from_bytes(code[behind : behind + size], "little", signed=True)
                most = max(most, -taken if start[2] == 0xC4 else taken)
            at = code.find(start, at + 1, end)
    return most


def _has_frame_pointer(code: bytes, begin: int, end: int, known: Collection[int]) -> bool:
    at = code.find(_FRAME_POINTER, begin, end)
    while at >= 0 and at not in known:
        at = code.find(_FRAME_POINTER, at + 1, end)
    return at >= 0


X86 = Reader(decode, _stack_bytes, _has_frame_pointer)
