"""Instructions of AArch64 (A64): those of branches, memory, vectors and the stack pointer.

The encoding is that of the Arm Architecture Reference Manual, section C4.1.
"""

from __future__ import annotations

from collections.abc import Collection

from loopwright.codegen.facts.instruction import Instruction, Reader, Use, Way

_STACK, _FRAME = 31, 29
_WIDTHS = (1, 2, 4, 8, 16)


def decode(code: bytes, at: int) -> Instruction | None:
    """The instruction at a place: see `Reader`."""
    if at + 4 > len(code):
        return None
    word, end = int.from_bytes(code[at : at + 4], "little"), at + 4
    kind = word >> 25 & 15
    if kind in (10, 11):
        return _branch(word, at)
    if kind & 5 == 4:
        return end, Way.PLAIN, 0, *_memory(word)
    if kind & 7 == 7:
        return end, Way.PLAIN, 0, *_vectors(word), 0
    return (end, Way.PLAIN, 0, 0, 0, 0) if kind in (8, 9) or kind & 7 == 5 else None


def _branch(word: int, at: int) -> Instruction | None:
    """An instruction of the group of branches."""
    end = at + 4
    if word & 0x7C000000 == 0x14000000:  # B, BL
        target = at + 4 * _signed(word, 0, 26)
        return end, Way.PLAIN if word >> 31 else Way.JUMP, target, 0, 0, 0
    if word & 0xFF000010 == 0x54000000 or word & 0x7E000000 == 0x34000000:  # B.cond, CBZ
        return end, Way.BRANCH, at + 4 * _signed(word, 5, 19), 0, 0, 0
    if word & 0x7E000000 == 0x36000000:  # TBZ
        return end, Way.BRANCH, at + 4 * _signed(word, 5, 14), 0, 0, 0
    if word & 0xFFFFFC1F == 0xD61F0000:  # BR, to where data say
        return None
    ends = word & 0xFFFFFC1F == 0xD65F0000 or word & 0xFFE0001F == 0xD4200000  # RET, BRK
    return end, Way.END if ends else Way.PLAIN, 0, 0, 0, 0


def _memory(word: int) -> tuple[int, int, int]:
    """Width, fused products and access of a load or store."""
    vector, base = word >> 26 & 1, word >> 5 & 31
    if word & 0x3B000000 == 0x18000000:  # of a constant behind the code
        prefetch = word >> 30 == 3 and not vector
        return (4 << (word >> 30) if vector else 0), 0, 0 if prefetch else Use.LOAD
    if word >> 27 & 7 == 5:  # LDP, STP
        width = 4 << (word >> 30) if vector else 0
        loads, fixed = bool(word >> 22 & 1), True
    elif word & 0xBE000000 == 0x0C000000:  # LD1, ST1 and like
        return (16 if word >> 30 & 1 else 8), 0, Use.LOAD if word >> 22 & 1 else Use.STORE
    else:
        size, opc = word >> 30, word >> 22 & 3
        width = _WIDTHS[4 if opc & 2 else size] if vector else 0
        loads = bool(opc & 1) if vector else opc != 0
        if not vector and size == 3 and opc == 2:
            return 0, 0, 0  # PRFM
        fixed = bool(word >> 24 & 1) or not word >> 21 & 1  # no register is added
    access = Use.LOAD if loads else Use.STORE
    if fixed and base in (_STACK, _FRAME):
        access |= Use.BY_STACK if base == _STACK else Use.BY_FRAME
    return width, 0, access


def _vectors(word: int) -> tuple[int, int]:
    """Width and fused products of an instruction on vectors or floats."""
    if word & 0x5F000000 in (0x1E000000, 0x1F000000):  # scalars
        item = {0: 4, 1: 8, 3: 2}.get(word >> 22 & 3, 4)
        return item, int(word & 0xFF000000 == 0x1F000000)
    width = 16 if word >> 30 & 1 else 8
    item = 8 if word >> 22 & 1 else 4
    fused = word & 0xBF20FC00 == 0x0E20CC00  # FMLA, FMLS
    halves = word & 0xBF60FC00 == 0x0E400C00
    by_element = word & 0xBF80B400 == 0x0F801000
    halves_by_element = word & 0xBFC0B400 == 0x0F001000
    if halves or halves_by_element:
        return width, width // 2
    return width, width // item if fused or by_element else 0


def _signed(word: int, at: int, bits: int) -> int:
    value = word >> at & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


def _stack_bytes(code: bytes, begin: int, end: int, known: Collection[int]) -> int:
    """SUB SP, SP, #n, in one or two parts, and STP ..., [SP, #-n]!."""
    total = 0
    for at in known:
        word = int.from_bytes(code[at : at + 4], "little")
        if word & 0xFF8003FF == 0xD10003FF:
            total += (word >> 10 & 0xFFF) << (12 * (word >> 22 & 1))
        elif word & 0x3BC003E0 == 0x298003E0 and _signed(word, 15, 7) < 0:
            vector, size = word >> 26 & 1, word >> 30
            total -= _signed(word, 15, 7) * (4 << size if vector else 4 << (size >> 1))
    return total


def _has_frame_pointer(code: bytes, begin: int, end: int, known: Collection[int]) -> bool:
    """ADD X29, SP, #n."""
    return any(
        int.from_bytes(code[at : at + 4], "little") & 0xFF8003FF == 0x910003FD for at in known
    )


AARCH64 = Reader(decode, _stack_bytes, _has_frame_pointer)
