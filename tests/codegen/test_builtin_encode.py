"""Every instruction form of built-in code disassembles to what was meant."""

import re

import pytest

from loopwright.codegen.builtin import encode as x86

pytestmark = pytest.mark.optimized

capstone = pytest.importorskip("capstone")

LATER = tuple(f"r{n}" for n in range(8, 16))
REGISTERS = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *LATER)
REGISTERS32 = (*(f"e{name[1:]}" for name in REGISTERS[:8]), *(f"{name}d" for name in LATER))
PLACES = [(base, offset) for base in range(16) for offset in (0, 4, -128, 128, 0x12345)]
STORES = {"vmovups_store": "vmovups", "vmovss_store": "vmovss", "vmovsd_store": "vmovsd"}
UNARY = {"vsqrtps", "vroundps", "vcvtdq2ps", "vcvttps2dq", "vpermilps", "vpermpd", "vmovaps"}
UNARY |= {"vbroadcastss", "vpbroadcastd", "vmovups"}
SCALAR = {"vmovss", "vmovsd", "vmovd", "vinsertps", "vextractps"}


def shown(code):
    """The one instruction that some bytes are, as "name operand, operand"."""
    found = list(capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm(code, 0))
    assert [i.size for i in found] == [len(code)], code.hex()
    return f"{found[0].mnemonic} {found[0].op_str}".strip()


def place(rm):
    base, offset = rm
    sign = "-" if offset < 0 else "+"
    size = hex(abs(offset)) if abs(offset) > 9 else abs(offset)
    return f"[{REGISTERS[base]}{f' {sign} {size}' if offset else ''}]"


def memory(text):
    """The place in an operand, without the size that stands before it."""
    return re.sub(r"\w+ ptr ", "", text)


def vector(n, wide):
    return f"{'y' if wide else 'x'}mm{n}"


@pytest.mark.parametrize("name", sorted(x86.FORMS))
def test_a_vector_form_disassembles_to_its_operands(name):
    form = x86.FORMS[name]
    number = 5 if form.immediate else None
    for wide in (0, 1):
        if wide and name in SCALAR | {"vmovss_store", "vmovsd_store"}:
            continue
        for reg, source, other in ((0, 0, 0), (3, 9, 12), (15, 1, 8), (8, 15, 7)):
            for rm in (other, (other, 0), (other, 132)):
                text = expected(name, wide, reg, source, rm)
                if text is None:
                    continue
                between = 0 if name in UNARY | SCALAR - {"vinsertps"} | STORES.keys() else source
                between = 0 if name == "vextractf128" or form.extension is not None else between
                assert memory(shown(x86.vector(name, wide, reg, between, rm, number))) == text


def expected(name, wide, reg, source, rm):
    """What a form should read as; None for operands that it has not."""
    in_memory = isinstance(rm, tuple)
    form = x86.FORMS[name]
    number = ", 5" if form.immediate else ""
    a, b = vector(reg, wide), vector(source, wide)
    narrow = {"vbroadcastss", "vpbroadcastd", "vinsertf128", "vextractf128"}
    c = place(rm) if in_memory else vector(rm, wide and name not in narrow)
    if name in STORES:
        return f"{STORES[name]} {c}, {a}" if in_memory else None
    if name in ("vmovss", "vmovsd"):
        return f"{name} {a}, {c}" if in_memory else None
    if name == "vmovd":
        return f"vmovd {a}, {c if in_memory else REGISTERS32[rm]}"
    if name == "vextractps":
        return f"vextractps {c}, {a}{number}" if in_memory else None
    if name in ("vpermpd", "vinsertf128", "vextractf128") and not wide:
        return None
    if name == "vextractf128":
        return f"vextractf128 {c}, {a}{number}"
    if form.extension is not None:
        return None if in_memory else f"{name} {a}, {c}{number}"
    if name in UNARY:
        return f"{name} {a}, {c}{number}"
    if name == "vblendvps":
        return f"{name} {a}, {b}, {c}, {vector(0, wide)}"
    if name == "vcmpps":
        return f"vcmpnltps {a}, {b}, {c}"
    return f"{name} {a}, {b}, {c}{number}"


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
        x86.multiply(reg, 15 - reg): f"imul {name}, {other}",
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
