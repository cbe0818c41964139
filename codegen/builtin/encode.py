"""Encodings of x86-64: instructions of AVX, AVX2, FMA and AVX-512, and the integer ones.

Intel's manual, volume 2, has the layout: prefixes, opcode, ModRM, SIB, displacement. Tables of our
own, since a call of an assembler library takes 10 to 100 times as long as a lookup in these, and a
kernel has a few hundred instructions.

A register is its number: 0 … 15, of vectors 0 … 31, of masks `MASK` + 1 … `MASK` + 7. A memory
operand is `(base, displacement)`; base `RIP` counts from the end of the instruction. With a third
member, `ONE`, it is one element for all lanes (AVX-512's embedded broadcast).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI = range(8)
R8, R9, R10, R11, R12, R13, R14, R15 = range(8, 16)
RIP = -1
"""The base of an operand in the code itself; its displacement is patched."""

MASK = 32
"""The number of the first mask register, k0; the low bits are those of its encoding."""
ONE = 1
"""The third member of a memory operand that is one element for all lanes."""

Memory = tuple[int, int] | tuple[int, int, int]
Operand = int | Memory

_NO, _66, _F3, _F2 = range(4)  # mandatory prefixes, as VEX writes them
_0F, _0F38, _0F3A = 1, 2, 3  # opcode maps
EITHER, VEX, EVEX = range(3)  # codings that a form has


@dataclass(frozen=True)
class Form:
    """A vector instruction: opcode, prefix, opcode map, W, whether it has an immediate byte. An
    `extension` of the opcode stands in ModRM in place of a register. `coding` is VEX, EVEX for
    what is AVX-512's, or either; `length` 0, 1, 2 for vectors of 16, 32, 64 bytes, where it is
    fixed. EVEX counts a short displacement by `scale` bytes, 0 for those of the vector, and has W
    `evex_wide` if another. The register of a mask (`masked`) stands in place of the immediate
    byte."""

    name: str
    opcode: int
    prefix: int = _NO
    table: int = _0F
    wide: int = 0
    immediate: bool = False
    extension: int | None = None
    coding: int = EITHER
    length: int | None = None
    scale: int = 0
    evex_wide: int = 0
    masked: bool = False


_FORMS = (
    # loads, stores and moves: register, memory or register
    Form("vmovups", 0x10),
    Form("vmovups_store", 0x11),
    Form("vmovups_some", 0x11, coding=EVEX, masked=True),
    Form("vmovss", 0x10, _F3, scale=4),
    Form("vmovss_store", 0x11, _F3, scale=4),
    Form("vmovsd", 0x10, _F2, scale=8, evex_wide=1),
    Form("vmovsd_store", 0x11, _F2, scale=8, evex_wide=1),
    Form("vmovaps", 0x28),
    Form("vbroadcastss", 0x18, _66, _0F38, scale=4),
    Form("vpbroadcastd", 0x58, _66, _0F38, scale=4),
    Form("vmovd", 0x6E, _66, scale=4),
    Form("kmovw", 0x90, coding=VEX, length=0),
    Form("kmovw_store", 0x91, coding=VEX, length=0),
    # one operand
    Form("vsqrtps", 0x51),
    Form("vroundps", 0x08, _66, _0F3A, immediate=True),
    Form("vcvtdq2ps", 0x5B),
    Form("vcvttps2dq", 0x5B, _F3),
    Form("vpermilps", 0x04, _66, _0F3A, immediate=True),
    Form("vpermpd", 0x01, _66, _0F3A, 1, immediate=True),
    Form("vextractf128", 0x19, _66, _0F3A, immediate=True, scale=16),
    Form("vextractf32x4", 0x19, _66, _0F3A, 0, True, None, EVEX, length=2, scale=16),
    Form("vextractf32x8", 0x1B, _66, _0F3A, 0, True, None, EVEX, length=2, scale=32),
    Form("knotw", 0x44, coding=VEX, length=0),
    # two operands
    Form("vaddps", 0x58),
    Form("vmulps", 0x59),
    Form("vsubps", 0x5C),
    Form("vminps", 0x5D),
    Form("vdivps", 0x5E),
    Form("vmaxps", 0x5F),
    Form("vandps", 0x54),
    Form("vorps", 0x56),
    Form("vxorps", 0x57),
    Form("vcmpps", 0xC2, immediate=True, coding=VEX),
    Form("vunpcklps", 0x14),
    Form("vunpckhps", 0x15),
    Form("vshufps", 0xC6, immediate=True),
    Form("vcmpps_mask", 0xC2, immediate=True, coding=EVEX),
    Form("vpcmpd_mask", 0x1F, _66, _0F3A, immediate=True, coding=EVEX),
    Form("kandw", 0x41, coding=VEX, length=1),
    Form("korw", 0x45, coding=VEX, length=1),
    Form("vinsertf128", 0x18, _66, _0F3A, immediate=True, scale=16),
    Form("vinsertf32x8", 0x1A, _66, _0F3A, 0, True, None, EVEX, length=2, scale=32),
    Form("vinsertps", 0x21, _66, _0F3A, immediate=True, scale=4),
    Form("vpermpd_by", 0x16, _66, _0F38, 1, coding=EVEX),
    Form("vblendvps", 0x4A, _66, _0F3A, immediate=True, coding=VEX),
    Form("vblendmps", 0x65, _66, _0F38, coding=EVEX, masked=True),
    Form("vpaddd", 0xFE, _66),
    Form("vpsubd", 0xFA, _66),
    Form("vpand", 0xDB, _66),
    Form("vpor", 0xEB, _66),
    Form("vpxor", 0xEF, _66),
    Form("vpcmpgtd", 0x66, _66, coding=VEX),
    Form("vpcmpeqd", 0x76, _66, coding=VEX),
    Form("vpslld", 0x72, _66, immediate=True, extension=6),
    Form("vpsrad", 0x72, _66, immediate=True, extension=4),
    # three operands: 132 is a = a c + b, 213 is a = b a + c, 231 is a = b c + a
    *(
        Form(f"vf{sign}{order}ps", base + opcode, _66, _0F38)
        for order, base in (("132", 0x90), ("213", 0xA0), ("231", 0xB0))
        for sign, opcode in (("madd", 8), ("msub", 0xA), ("nmadd", 0xC), ("nmsub", 0xE))
    ),
)
FORMS = {form.name: form for form in _FORMS}
MASKS = frozenset(("kmovw", "vcmpps_mask", "vpcmpd_mask", "kandw", "korw", "knotw"))
"""Forms whose result is a mask."""
_ARITHMETIC_FORMS = ("add", "mul", "sub", "min", "div", "max", "and", "or", "xor", "sqrt")
BROADCASTS = frozenset(
    (
        *(f"v{name}ps" for name in (*_ARITHMETIC_FORMS, "unpckl", "unpckh", "shuf", "blendm")),
        *("vcmpps_mask", "vpcmpd_mask", "vcvtdq2ps", "vcvttps2dq"),
        *("vpaddd", "vpsubd", "vpand", "vpor", "vpxor"),
        *(name for name in FORMS if name.startswith(("vfm", "vfnm"))),
    )
)
"""Forms that take one element of memory for all lanes."""


def _address(reg: int, rm: Operand, scale: int = 1) -> bytes:
    """ModRM, SIB and displacement, in `scale` bytes where it is short."""
    field = (reg & 7) << 3
    if isinstance(rm, int):
        return bytes((0xC0 | field | rm & 7,))
    base, offset = rm[:2]
    if base == RIP:
        return bytes((0x05 | field,)) + offset.to_bytes(4, "little", signed=True)
    low = base & 7
    sib = b"\x24" if low == RSP else b""
    if offset == 0 and low != RBP:
        return bytes((field | low,)) + sib
    if offset % scale == 0 and -128 <= (short := offset // scale) < 128:
        return bytes((0x40 | field | low,)) + sib + bytes((short & 255,))
    return bytes((0x80 | field | low,)) + sib + offset.to_bytes(4, "little", signed=True)


@functools.lru_cache(maxsize=1 << 16)
def vector(
    name: str, wide: int, reg: int, source: int, rm: Operand, immediate: int | None = None
) -> bytes:
    """A vector instruction: `reg` and `rm` as ModRM has them, `source` the operand between them (0
    where there is none). `wide` is 0, 1, 2 for vectors of 16, 32, 64 bytes. It is coded by VEX
    where it can be."""
    form = FORMS[name]
    if form.length is not None:
        wide = form.length
    if form.extension is not None:  # the destination stands where others have a source
        reg, source = form.extension, reg
    if form.coding == EVEX or (form.coding == EITHER and _is_large(wide, reg, source, rm)):
        return _extended(form, wide, reg, source, rm, immediate)
    base = rm if isinstance(rm, int) else max(rm[0], 0)
    last = (~source & 15) << 3 | wide << 2 | form.prefix
    high = (~reg >> 3 & 1) << 7
    if base < 8 and form.table == _0F and not form.wide:
        head = bytes((0xC5, high | last, form.opcode))
    else:
        middle = high | 0x40 | (~base >> 3 & 1) << 5 | form.table
        head = bytes((0xC4, middle, form.wide << 7 | last, form.opcode))
    code = head + _address(reg, rm)
    return code if immediate is None else code + bytes((immediate,))


def _is_large(wide: int, reg: int, source: int, rm: Operand) -> bool:
    """Return whether an instruction is AVX-512's alone."""
    if isinstance(rm, int):
        return wide == 2 or max(reg, source, rm) > 15
    return wide == 2 or max(reg, source) > 15 or len(rm) == 3


def _extended(
    form: Form, wide: int, reg: int, source: int, rm: Operand, immediate: int | None
) -> bytes:
    """An EVEX instruction."""
    mask = 0
    if form.masked:
        assert immediate is not None
        mask, immediate = immediate & 7, None
    one = 0
    if isinstance(rm, int):
        base = (~rm >> 4 & 1) << 6 | (~rm >> 3 & 1) << 5
    else:
        base = 1 << 6 | (~max(rm[0], 0) >> 3 & 1) << 5
        one = int(len(rm) == 3)
    head = bytes(
        (
            0x62,
            (~reg >> 3 & 1) << 7 | base | (~reg >> 4 & 1) << 4 | form.table,
            (form.wide | form.evex_wide) << 7 | (~source & 15) << 3 | 4 | form.prefix,
            wide << 5 | one << 4 | (~source >> 4 & 1) << 3 | mask,
            form.opcode,
        )
    )
    code = head + _address(reg, rm, 4 if one else form.scale or 16 << wide)
    return code if immediate is None else code + bytes((immediate,))


def _integer(opcode: bytes, reg: int, rm: Operand, wide: bool = True) -> bytes:
    base = rm if isinstance(rm, int) else max(rm[0], 0)
    rex = 0x40 | wide << 3 | (reg >> 3) << 2 | base >> 3
    return (bytes((rex,)) if rex != 0x40 else b"") + opcode + _address(reg, rm)


def _number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "little", signed=True)


@functools.lru_cache(maxsize=1 << 14)
def move(reg: int, rm: Operand) -> bytes:
    """`reg = rm`, 64 bits."""
    return _integer(b"\x8b", reg, rm)


@functools.lru_cache(maxsize=1 << 12)
def store(rm: Memory, reg: int) -> bytes:
    """`rm = reg`, 64 bits."""
    return _integer(b"\x89", reg, rm)


@functools.lru_cache(maxsize=1 << 12)
def set_number(rm: Operand, value: int) -> bytes:
    """`rm = value`, in memory one of 32 bits with its sign."""
    if isinstance(rm, int):
        if value == 0:
            return _integer(b"\x31", rm, rm, wide=False)
        if 0 < value < 1 << 31:
            prefix = b"\x41" if rm > 7 else b""
            return prefix + bytes((0xB8 | rm & 7,)) + _number(value)
        if not -1 << 31 <= value < 1 << 31:
            return bytes((0x48 | rm >> 3, 0xB8 | rm & 7)) + _number(value, 8)
    return _integer(b"\xc7", 0, rm) + _number(value)


_ARITHMETIC = {"add": 0, "or": 1, "and": 4, "sub": 5, "cmp": 7}


@functools.lru_cache(maxsize=1 << 14)
def with_number(op: str, rm: Operand, value: int) -> bytes:
    """`rm = rm op value`; of "cmp" the flags alone."""
    kind = _ARITHMETIC[op]
    if -128 <= value < 128:
        return _integer(b"\x83", kind, rm) + bytes((value & 255,))
    return _integer(b"\x81", kind, rm) + _number(value)


@functools.lru_cache(maxsize=1 << 12)
def with_operand(op: str, reg: int, rm: Operand) -> bytes:
    """`reg = reg op rm`; of "cmp" the flags alone."""
    return _integer(bytes((_ARITHMETIC[op] << 3 | 3,)), reg, rm)


@functools.lru_cache(maxsize=1 << 12)
def multiply(reg: int, rm: Operand, value: int) -> bytes:
    """`reg = rm · value`."""
    if -128 <= value < 128:
        return _integer(b"\x6b", reg, rm) + bytes((value & 255,))
    return _integer(b"\x69", reg, rm) + _number(value)


@functools.lru_cache(maxsize=1 << 12)
def address_of(reg: int, rm: Memory) -> bytes:
    """`reg = &rm`."""
    return _integer(b"\x8d", reg, rm)


def shift_right(rm: Operand, count: int) -> bytes:
    """`rm = rm >> count`, with its sign."""
    return _integer(b"\xc1", 7, rm) + bytes((count,))


def divide(rm: Operand) -> bytes:
    """rax, rdx = rdx:rax / rm, remainder, behind `widen`."""
    return _integer(b"\xf7", 7, rm)


def move_if(condition: str, reg: int, rm: Operand) -> bytes:
    """`reg = rm` if the last comparison said so."""
    return _integer(bytes((0x0F, 0x40 | CONDITIONS[condition])), reg, rm)


@functools.lru_cache(maxsize=1 << 12)
def load_int32(reg: int, rm: Operand) -> bytes:
    """`reg = rm`, from 32 bits with their sign."""
    return _integer(b"\x63", reg, rm)


@functools.lru_cache(maxsize=1 << 12)
def prefetch(level: int, rm: Memory) -> bytes:
    """A hint to bring the line of `rm` into cache `level` and those behind it."""
    return _integer(b"\x0f\x18", level, rm, wide=False)


CONDITIONS = {"b": 2, "e": 4, "ne": 5, "l": 0xC, "ge": 0xD, "le": 0xE, "g": 0xF}
WIDEN = b"\x48\x99"  # cqo
RETURN = b"\xc3"
ZERO_UPPER = b"\xc5\xf8\x77"


def jump(condition: str | None, offset: int) -> bytes:
    """A jump to `offset` from the end of a long form, or from that of a short one if it fits."""
    short = offset + (3 + (condition is not None))
    if condition is None:
        return bytes((0xEB, short & 255)) if -128 <= short < 0 else b"\xe9" + _number(offset)
    code = CONDITIONS[condition]
    if -128 <= short < 0:
        return bytes((0x70 | code, short & 255))
    return bytes((0x0F, 0x80 | code)) + _number(offset)


def push(reg: int) -> bytes:
    """Push a register."""
    return (b"\x41" if reg > 7 else b"") + bytes((0x50 | reg & 7,))


def pop(reg: int) -> bytes:
    """Pop a register."""
    return (b"\x41" if reg > 7 else b"") + bytes((0x58 | reg & 7,))


_NOPS = (
    "",
    "90",
    "6690",
    "0f1f00",
    "0f1f4000",
    "0f1f440000",
    "660f1f440000",
    "0f1f8000000000",
    "0f1f840000000000",
)


def nothing(size: int) -> bytes:
    """Bytes that do nothing."""
    longest = len(_NOPS) - 1
    whole, rest = divmod(size, longest)
    return bytes.fromhex(_NOPS[longest] * whole + _NOPS[rest])
