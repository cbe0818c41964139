"""Facts of code: what instructions are as a disassembler says, and what programs are known for."""

import re
from dataclasses import replace

import pytest

import loopwright as lw
from loopwright.codegen.build import program
from loopwright.codegen.compile import compile_by
from loopwright.codegen.devices.code import GpuCode, Launch, Plan
from loopwright.codegen.devices.nvidia import read_resources
from loopwright.codegen.facts import flow
from loopwright.codegen.facts.aarch64 import AARCH64 as A64
from loopwright.codegen.facts.elf import read_object
from loopwright.codegen.facts.facts import CPU_FACTS, GPU_FACTS, facts_of, shown
from loopwright.codegen.facts.instruction import Use, Way
from loopwright.codegen.facts.x86 import X86
from loopwright.codegen.processors import cpu_flags
from loopwright.dsl.errors import BuildError
from loopwright.schedule.space import space
from tests.targets import AARCH64, AVX512_LARGE, ONE_THREAD, narrow

pytestmark = pytest.mark.optimized

SSE = replace(ONE_THREAD, mcpu="x86-64", vector_bytes=16)
TARGETS = {"AVX2": ONE_THREAD, "AVX-512": AVX512_LARGE, "SSE": SSE, "AArch64": AARCH64}


def product(m=37, k=29, n=41):
    return lw.workload(lw.ops.matmul(lw.tensor("A", (m, k)), lw.tensor("B", (k, n))))


def conv():
    x, w = lw.tensor("x", (1, 5, 11, 13)), lw.tensor("w", (7, 5, 3, 3), constant=True)
    return lw.workload(lw.ops.relu(lw.ops.conv2d(x, w, padding=1)))


def softmax():
    return lw.workload(lw.ops.softmax(lw.tensor("x", (13, 37))))


def halves():
    return lw.workload(lw.ops.gelu(lw.tensor("x", (13, 37), dtype="float16")))


def bytes_added():
    x, y = (lw.tensor(name, (13, 37), dtype="int8") for name in "xy")
    return lw.workload(lw.ops.maximum(x, y))


def code_of(workload, target, config=None):
    return compile_by(program(workload, config, target)).objects[0]


def instructions(section, reader):
    """The instructions that a section's functions lead to, as (place, instruction)."""
    for begin, end in (*section.functions.values(), *section.gaps):
        waiting, known = [begin], set()
        while waiting:
            at = waiting.pop()
            while begin <= at < end and at not in known:
                known.add(at)
                found = reader.decode(section.code, at)
                assert found is not None, section.code[at : at + 15].hex()
                yield at, found
                if found[1] == Way.BRANCH:
                    waiting.append(found[2])
                if found[1] == Way.END:
                    break
                at = found[2] if found[1] == Way.JUMP else found[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [product, conv, softmax, halves, bytes_added])
def test_instructions_are_what_a_disassembler_says(make, target):
    capstone = pytest.importorskip("capstone")
    arm = target == "AArch64"
    kind = (capstone.CS_ARCH_ARM64, 0) if arm else (capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    said = capstone.Cs(*kind)
    said.detail = True
    seen = 0
    for section in read_object(code_of(make(), TARGETS[target])).sections:
        for at, found in instructions(section, A64 if arm else X86):
            shown = list(said.disasm(section.code[at : at + 15], at, 1))
            if not shown:  # AVX-512 FP16, which it does not know
                assert section.code[at] == 0x62
                continue
            (one,) = shown
            what = f"{section.code[at : found[0]].hex()} {one.mnemonic} {one.op_str}"
            assert found[0] - at == one.size, what
            check_jump(capstone, one, found, what)
            (check_arm if arm else check_x86)(one, found, what)
            seen += 1
    assert seen > 30


def check_jump(capstone, said, found, what):
    _, goes, target, *_ = found
    jumps = capstone.CS_GRP_JUMP in said.groups and said.mnemonic not in ("bl", "blr")
    assert jumps == (goes in (Way.BRANCH, Way.JUMP)), what
    if jumps:
        assert int(said.op_str.split(", ")[-1].lstrip("#"), 16) == target, what
        assert (said.mnemonic in ("jmp", "b")) == (goes == Way.JUMP), what


def check_x86(said, found, what):
    _, _, _, width, fused, access = found
    names, scalar = said.op_str, said.mnemonic[-2:] in ("ss", "sd")
    if "zmm" in names or "ymm" in names:
        assert width == (64 if "zmm" in names else 32), what
    if "mm" not in names:
        assert not width, what
    if said.mnemonic.startswith(("vfmadd", "vfnmadd", "vfmsub", "vfnmsub")):
        item = 8 if said.mnemonic.endswith("d") else 4
        assert fused == (1 if scalar else width // item), what
    else:
        assert fused == 0, what
    memory = "[" in names and said.mnemonic not in ("lea", "nop") and "prefetch" not in what
    assert bool(access) == memory, what
    if memory and said.mnemonic.startswith(("mov", "vmov", "vfm", "add", "cmp")):
        writes = names.index("[") < names.index(",") and said.mnemonic != "cmp"
        assert bool(access & Use.STORE) == writes, what
        place = names[names.index("[") :]
        own = "rsp" in place and "*" not in place and place.count("+ r") == 0
        assert bool(access & Use.BY_STACK) == own, what


def check_arm(said, found, what):
    _, _, _, width, fused, access = found
    names, name = said.op_str, said.mnemonic
    memory = "[" in names and name.startswith(("ld", "st"))
    assert bool(access) == memory, what
    if memory:
        assert bool(access & Use.STORE) == name.startswith("st"), what
        if names.startswith("q"):
            assert width == 16, what
        assert bool(access & Use.BY_STACK) == ("[sp" in names and "[sp, x" not in names), what
    if name in ("fmla", "fmls"):
        lanes = int(names.split(".")[1][: 1 + names.split(".")[1][1].isdigit()])
        assert fused == lanes, what
    elif name not in ("fmadd", "fmsub", "fnmadd", "fnmsub"):
        assert not fused, what
    shapes = set(re.findall(r"\.(\d+\w)", names))
    if shapes and shapes <= {"16b", "8h", "4s", "2d"}:
        assert width == 16, what


@pytest.mark.skipif(not {"avx2", "fma"} <= set(cpu_flags()), reason="AVX2 and FMA are needed")
@pytest.mark.parametrize("make", [product, conv, softmax])
def test_built_in_code_is_read_too(make):
    found = facts_of(code_of(make(), replace(narrow(2), kind="builtin")))
    assert set(found) == set(CPU_FACTS)
    assert found["loop_vector_bytes"] == 32
    assert found["loop_instructions"] < found["instructions"]


LOOP = bytes.fromhex(
    "4883ec18"  # sub rsp, 24
    "31c0"  # xor eax, eax
    "c5fc100487"  # head: vmovups ymm0, [rdi + 4·rax]
    "c4e27db80486"  # vfmadd231ps ymm0, ymm0, [rsi + 4·rax]
    "c5fc110424"  # vmovups [rsp], ymm0
    "4883c008"  # add rax, 8
    "483dff000000"  # cmp rax, 255
    "7ce4"  # jl head
    "c5fc100c24"  # vmovups ymm1, [rsp]
    "4883c418"  # add rsp, 24
    "c3"  # ret
    "3c7f" * 8  # constants
)


def test_a_loop_is_counted_as_it_stands():
    found = flow.read_function(X86, LOOP, 0, len(LOOP), ())
    (loop,) = found.loops
    assert (found.stack_bytes, found.whole.instructions, found.whole.reloads) == (24, 11, 1)
    assert loop == flow.Run(
        instructions=6, bytes=28, vector_bytes=32, vectors=3, multiply_adds=8,
        loads=2, stores=0, spills=1, reloads=0,
    )  # fmt: skip


def test_loops_around_others_are_not_innermost_ones():
    nested = bytes.fromhex("90 90 75fd 75fa 75fe c3")
    found = flow.read_function(X86, nested, 0, len(nested), ())
    assert [loop.instructions for loop in found.loops] == [2, 1]


def test_an_instruction_that_is_not_known_leaves_the_function_unread():
    assert flow.read_function(X86, bytes.fromhex("9006c3"), 0, 3, ()) is None
    assert flow.read_function(X86, bytes.fromhex("90c4e2"), 0, 3, ()) is None


def largest(points, name):
    """The default config with another knob: the choice whose product is largest."""
    sketch, default = points.sketches[0], points.default
    knob = next(k for k in sketch.knobs if k.name.startswith(name))
    return default.replace(sketch, **{knob.name: max(knob.choices)})


def test_a_register_tile_that_does_not_fit_shows_in_what_is_spilled():
    work = product(96, 96, 96)
    points = space(work, ONE_THREAD)
    least = facts_of(code_of(work, ONE_THREAD, points.default))
    most = facts_of(code_of(work, ONE_THREAD, largest(points, "tile")))
    assert least["loop_spills"] == 0
    assert least["loop_multiply_adds"] >= 8
    assert most["spills"] > least["spills"]


def test_what_lays_out_constants_does_not_count():
    x, w = lw.tensor("x", (8, 64)), lw.tensor("w", (64, 64), constant=True)
    target = replace(ONE_THREAD, kind="c")
    work = lw.workload(lw.ops.dense(x, w))
    found = facts_of(code_of(work, target))
    (section,) = read_object(code_of(work, target)).sections
    assert 0 < found["code_bytes"] < len(section.code) - 64


def test_code_for_aarch64_is_read_too():
    found = facts_of(code_of(product(), AARCH64))
    assert set(found) == set(CPU_FACTS)
    assert found["loop_vector_bytes"] == 16
    assert found["loop_multiply_adds"] > 0


def test_what_cannot_be_told_is_left_out():
    whole = bytearray(code_of(product(), ONE_THREAD))
    (section,) = read_object(bytes(whole)).sections
    at = whole.index(section.code)
    for begin, _ in section.functions.values():
        whole[at + begin] = 0x06  # no instruction
    found = facts_of(bytes(whole))
    assert set(found) == {"code_bytes"}
    assert "nothing else can be told" in shown(found)
    whole[18] = 8  # MIPS
    assert facts_of(bytes(whole)) == {}


def test_what_is_no_object_file_tells_nothing():
    whole = code_of(product(), ONE_THREAD)
    for code in (b"", b"\x7fELF", b"#include", whole[:100], whole[: len(whole) // 2]):
        assert facts_of(code) == {}
    for at in range(0, len(whole), 37):  # damage is no error
        facts_of(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'lw_main_1' for 'sm_90'
ptxas info    : Function properties for lw_main_1
    16 bytes stack frame, 20 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack, 1248 bytes smem
ptxas info    : Compiling entry function 'lw_main_0' for 'sm_90'
ptxas info    : Function properties for lw_main_0
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_a_gpus_facts_are_what_its_assembler_reported():
    plans = {"main": Plan(1, (Launch("lw_main_0", (0,), 1, 32),))}
    code = GpuCode("cuda", "sm_90", b"image", plans, read_resources(LOG))
    assert facts_of(code.to_bytes()) == {
        "code_bytes": 5, "kernels": 2, "registers": 255, "stack_bytes": 16, "spills": 32,
        "shared_bytes": 1248,
    }  # fmt: skip
    assert set(facts_of(code.to_bytes())) == set(GPU_FACTS)
    assert facts_of(replace(code, resources=()).to_bytes()) == {"code_bytes": 5}
    assert facts_of(replace(code, language="opencl").to_bytes()) == {}


def test_an_explanation_of_a_config_tells_of_its_code(monkeypatch):
    points = lw.space(product(), threads=1)
    found = lw.explain(product(), threads=1, config=points.default)
    assert found.facts["code_bytes"] > 100
    assert "bytes of machine code" in str(found)
    assert "its code, made by llvm" in str(found)

    def fails(made):
        raise BuildError("no compiler")

    monkeypatch.setattr("loopwright.codegen.compile.compile_by", fails)
    found = lw.explain(product(), threads=1, config=points.default)
    assert found.facts == {}
    assert "its code is not known: no compiler" in str(found)
