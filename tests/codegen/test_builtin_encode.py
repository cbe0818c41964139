"""Every instruction form of built-in code disassembles to what was meant."""

import itertools
import re

import pytest

from loopwright.codegen.builtin import encode as x86

pytestmark = pytest.mark.optimized

capstone = pytest.importorskip("capstone")

LATER = tuple(f"r{n}" for n in range(8, 16))
REGISTERS = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *LATER)
REGISTERS32 = (*(f"e{name[1:]}" for name in REGISTERS[:8]), *(f"{name}d" for name in LATER))
PLACES = [(base, offset) for base in range(16) for offset in (0, 4, -128, 128, 0x12345)]
STORES = {"vmovups_store", "vmovups_some", "vmovss_store", "vmovsd_store", "kmovw_store"}
EXTRACTS = {"vextractf128": 0, "vextractf32x4": 0, "vextractf32x8": 1}
UNARY = {"vsqrtps", "vroundps", "vcvtdq2ps", "vcvttps2dq", "vpermilps", "vpermpd", "vmovaps"}
UNARY |= {"vbroadcastss", "vpbroadcastd", "vmovups", "knotw", "kmovw", "vpslld", "vpsrad"}
UNARY |= {"vmovss", "vmovsd", "vmovd"}
SCALAR = {"vmovss", "vmovss_store", "vmovsd", "vmovsd_store", "vmovd", "vinsertps"}
HALVES = {"vinsertf128", "vextractf128", "vpermpd"}  # there are none of 16 or 64 bytes
IN_MEMORY = STORES | {"vmovss", "vmovsd", "kmovw"}
IN_REGISTERS = {"vpslld", "vpsrad", "knotw", "kandw", "korw"}
LAST_WIDTH = {
    "vbroadcastss": 0,
    "vpbroadcastd": 0,
    "vinsertf128": 0,
    "vinsertf32x8": 1,
    **EXTRACTS,
}
EVEX_NAMES = {"vroundps": "vrndscaleps", "vinsertf128": "vinsertf32x4", "vpand": "vpandd"}
EVEX_NAMES |= {"vextractf128": "vextractf32x4", "vpor": "vpord", "vpxor": "vpxord"}
NAMES = {"vpermpd_by": "vpermpd", "vcmpps": "vcmpnltps", "vcmpps_mask": "vcmpnltps"}
NAMES |= {"vpcmpd_mask": "vpcmpnltd"} | {name: name.partition("_")[0] for name in STORES}
OPERANDS = ((0, 0, 0), (3, 9, 12), (15, 1, 8), (8, 15, 7), (16, 20, 31), (31, 2, 17), (5, 30, 24))


def shown(code):
    """The one instruction that some bytes are, as "name operand, operand"."""
    found = list(capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm(code, 0))
    assert [i.size for i in found] == [len(code)], code.hex()
    return f"{found[0].mnemonic} {found[0].op_str}".strip()


def place(rm):
    base, offset = rm[:2]
    sign = "-" if offset < 0 else "+"
    size = hex(abs(offset)) if abs(offset) > 9 else abs(offset)
    return f"[{REGISTERS[base]}{f' {sign} {size}' if offset else ''}]"


def memory(text):
    """The place in an operand, without the size that stands before it."""
    return re.sub(r"\w+ ptr ", "", text)


def vector(n, wide):
    return f"k{n - x86.MASK}" if n > x86.MASK else f"{'xyz'[wide]}mm{n}"


@pytest.mark.parametrize("name", sorted(x86.FORMS))
def test_a_vector_form_disassembles_to_its_operands(name):
    form = x86.FORMS[name]
    number = x86.MASK + 3 if form.masked else 5 if form.immediate else None
    for wide, given in itertools.product((0, 1, 2), OPERANDS):
        for reg, source, rm in operands(name, *given):
            large = is_large(wide, reg, source, rm)
            if not has(name, wide, large):
                continue
            code = x86.vector(name, wide, reg, source, rm, number)
            assert memory(shown(code)) == expected(name, wide, reg, source, rm, code[0] == 0x62)
            if form.coding == x86.EITHER:
                assert (code[0] == 0x62) == large, "the longer coding where the shorter will do"


def operands(name, reg, source, other):
    """Operands of a form: registers, and places of each kind that it may have."""
    base = other % 16
    if name.startswith("k"):
        reg, source, other = (x86.MASK + 1 + n % 7 for n in (reg, source, other))
    elif name in x86.MASKS:
        reg = x86.MASK + 1 + reg % 7
    elif name == "vmovd":
        other = base
    if name in UNARY | STORES | EXTRACTS.keys():
        source = 0
    places = [(base, 0), (base, 132), (base, -256), (base, 0x12340)]
    places += [(base, 192, x86.ONE)] if name in x86.BROADCASTS else []
    places = [] if name in IN_REGISTERS else places
    return [(reg, source, rm) for rm in [other] * (name not in IN_MEMORY) + places]


def is_large(wide, reg, source, rm):
    """Whether operands are AVX-512's alone."""
    registers = [n for n in (reg, source, rm) if isinstance(n, int) and n < x86.MASK]
    return wide == 2 or max(registers, default=0) > 15 or (isinstance(rm, tuple) and len(rm) == 3)


def has(name, wide, large):
    """Whether a processor has a form for vectors of a width."""
    form = x86.FORMS[name]
    if large and form.coding == x86.VEX:
        return False
    if name in HALVES | {"vpermpd_by"} and not wide:
        return False
    return form.length in (None, wide) and wide <= (0 if name in SCALAR else 2 - (name in HALVES))


def expected(name, wide, reg, source, rm, extended):
    """What a form should read as."""
    form = x86.FORMS[name]
    first = vector(reg, wide)
    if isinstance(rm, tuple):
        last = place(rm) + (f"{{1to{4 << wide}}}" if len(rm) == 3 else "")
    else:
        last = REGISTERS32[rm] if name == "vmovd" else vector(rm, LAST_WIDTH.get(name, wide))
    shape = [first, last] if name in UNARY else [first, vector(source, wide), last]
    shape = [last, first] if name in STORES | EXTRACTS.keys() else shape
    shape[0] += " {k3}" if form.masked else ""
    if name == "vblendvps":
        shape.append(vector(0, wide))
    elif form.immediate and "cmp" not in name:
        shape.append("5")
    names = NAMES | EVEX_NAMES if extended else NAMES
    return f"{names.get(name, name)} {', '.join(shape)}"


@pytest.mark.parametrize("rm", PLACES, ids=place)
def test_every_place_is_the_one_that_was_meant(rm):
    assert memory(shown(x86.vector("vaddps", 1, 9, 4, rm))) == f"vaddps ymm9, ymm4, {place(rm)}"
    assert shown(x86.move(11, rm)) == f"mov r11, qword ptr {place(rm)}"
    assert shown(x86.store(rm, 6)) == f"mov qword ptr {place(rm)}, rsi"
    assert shown(x86.with_number("add", rm, 300)) == f"add qword ptr {place(rm)}, 0x12c"
    assert shown(x86.address_of(3, rm)) == f"lea rbx, {place(rm)}"
    assert shown(x86.prefetch(2, rm)) == f"prefetcht1 byte ptr {place(rm)}"


@pytest.mark.parametrize("reg", range(16))
def test_integer_forms_disassemble_to_what_was_meant(reg):
    name, other = REGISTERS[reg], REGISTERS[15 - reg]
    forms = {
        x86.move(reg, 15 - reg): f"mov {name}, {other}",
        x86.set_number(reg, -2): f"mov {name}, 0xfffffffffffffffe",
        x86.set_number(reg, 1 << 40): f"movabs {name}, 0x10000000000",
        x86.set_number(reg, 7): f"mov {REGISTERS32[reg]}, 7",
        x86.set_number(reg, 0): f"xor {REGISTERS32[reg]}, {REGISTERS32[reg]}",
        x86.with_number("sub", reg, 1): f"sub {name}, 1",
        x86.with_number("cmp", reg, 1000): f"cmp {name}, 0x3e8",
        x86.with_number("and", reg, -64): f"and {name}, 0xffffffffffffffc0",
        x86.with_operand("add", reg, 15 - reg): f"add {name}, {other}",
        x86.with_operand("cmp", reg, 15 - reg): f"cmp {name}, {other}",
        x86.multiply(reg, 15 - reg, 12): f"imul {name}, {other}, 0xc",
        x86.multiply(reg, 15 - reg, 4096): f"imul {name}, {other}, 0x1000",
        x86.shift_right(reg, 3): f"sar {name}, 3",
        x86.divide(reg): f"idiv {name}",
        x86.move_if("g", reg, 15 - reg): f"cmovg {name}, {other}",
        x86.move_if("l", reg, 15 - reg): f"cmovl {name}, {other}",
        x86.load_int32(reg, 15 - reg): f"movsxd {name}, {REGISTERS32[15 - reg]}",
        x86.push(reg): f"push {name}",
        x86.pop(reg): f"pop {name}",
    }
    assert {code: shown(code) for code in forms} == forms


@pytest.mark.parametrize("distance", [-100, -5, -200, -5000, 40])
@pytest.mark.parametrize("condition", [None, *x86.CONDITIONS])
def test_a_jump_goes_as_far_as_was_meant_in_its_shorter_form_too(condition, distance):
    size = 5 if condition is None else 6
    code = x86.jump(condition, distance)
    (found,) = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm(code, 1 << 20)
    assert found.mnemonic == ("jmp" if condition is None else f"j{condition}")
    assert int(found.op_str, 16) == (1 << 20) + size + distance
    assert (len(code) == 2) == (distance in (-100, -5))


@pytest.mark.parametrize("size", range(30))
def test_bytes_between_functions_do_nothing(size):
    code = x86.nothing(size)
    found = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm(code, 0)
    assert len(code) == size
    assert all(i.mnemonic == "nop" for i in found)
