"""Targets: this machine, others, C source, and what is refused."""

import functools
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tvm

import loopwright as lw
from loopwright.codegen import llvm
from loopwright.codegen import target as machine
from loopwright.codegen.library.linker import architecture
from loopwright.codegen.target import cpu_features, resolve
from loopwright.codegen.tvm_target import tvm_target
from loopwright.dsl.errors import LibraryError, TargetError
from loopwright.dsl.oracle import random_inputs
from loopwright.schedule.target import Target
from tests.codegen.test_build import assert_configs_equal_oracle
from tests.collection import WORKLOADS

pytestmark = pytest.mark.optimized

X86 = architecture() == "x86_64"
AARCH64 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]}


def test_what_llvm_knows_of_processors_is_what_tvm_tells():
    triple, mcpu, features = "x86_64-unknown-linux-gnu", "skylake-avx512", ("-avx512bw",)
    given = tvm_target(Target(triple=triple, mcpu=mcpu, features=features))
    asked = tvm.target.codegen
    assert llvm.system_cpu() == asked.llvm_get_system_cpu()
    assert llvm.processors(triple) == set(map(str, asked.llvm_get_cpu_archlist(given)))
    names = ("avx2", "avx512f", "avx512bw", "amx-tile", "no-such-feature")
    has = {name for name in names if asked.llvm_cpu_has_features([name], given)}
    assert llvm.features_among(names, triple, mcpu, features) == has == {"avx2", "avx512f"}


def test_a_tvm_with_its_libraries_elsewhere_is_asked_too(monkeypatch, tmp_path):
    monkeypatch.setattr(llvm, "_folder", lambda package: tmp_path)
    monkeypatch.setattr(llvm, "_library", functools.cache(llvm._library.__wrapped__))
    assert llvm.system_cpu() == tvm.target.codegen.llvm_get_system_cpu()


def test_what_tvm_refuses_is_an_error_in_its_words():
    with pytest.raises(ValueError, match='"nix" is not defined'):
        llvm._call("target.Target", '{"kind": "nix"}')


def matmul():
    return WORKLOADS["matmul_of_odd_extents"]()


@pytest.mark.skipif(not X86, reason="features of x86-64")
@pytest.mark.parametrize(
    ("flags", "vectors"),
    [("pni ssse3", (16, 16)), ("avx avx2 fma", (32, 16)), ("avx avx2 fma avx512f", (64, 32))],
)
def test_this_machines_features_are_those_that_the_kernel_reports(flags, vectors, monkeypatch):
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset(flags.split()))
    target = machine._host.__wrapped__("llvm", 1)
    assert (target.vector_bytes, target.vector_registers) == vectors
    assert ("+avx2" in target.features) == ("avx2" in flags)


def test_the_code_uses_the_vector_registers_of_this_machine():
    target = resolve("cpu", 1)
    if target.vector_bytes < 32:
        pytest.skip("this machine has no 256-bit registers")
    register = "zmm" if target.vector_bytes == 64 else "ymm"
    assert re.search(rf"vfmadd.*%{register}", lw.build(matmul(), threads=1).source("asm"))


@pytest.mark.skipif(not X86, reason="features of x86-64")
def test_features_that_a_machine_hides_are_not_used(monkeypatch):
    """A virtual machine may hide what its processor's name implies."""
    seen = machine.cpu_flags() - {w for w in machine.cpu_flags() if w.startswith("avx512")}
    monkeypatch.setattr(machine, "cpu_flags", lambda: seen)
    monkeypatch.setattr(machine, "_host_cpu", lambda family: "skylake-avx512")
    target = machine._host.__wrapped__("llvm", 1)
    assert "-avx512f" in target.features
    assert target.vector_bytes <= 32
    assert "zmm" not in lw.build(matmul(), target=target).source("asm")
    assert "avx512f" not in cpu_features(target)


@pytest.mark.skipif(not X86, reason="features of x86-64")
def test_code_for_a_processor_with_more_features_is_not_run(monkeypatch, tmp_path):
    target = {"kind": "llvm", "mcpu": "sapphirerapids"}
    assert {"avx512f", "amx_tile", "gfni"} <= set(cpu_features(resolve(target)))
    monkeypatch.setattr("loopwright.codegen.processors.cpu_flags", lambda: frozenset({"fpu"}))
    library = lw.build(matmul(), target=target, threads=1)
    with pytest.raises(TargetError, match=r"lacks .*amx_tile.*export it"):
        library(*(np.zeros(p.shape, np.float32) for p in library.inputs))
    with pytest.raises(LibraryError, match="features that this machine lacks"):
        lw.load(library.export(tmp_path / "k.so"))


def test_features_may_be_written_in_one_word():
    written, listed = ({"kind": "llvm", "mattr": m} for m in ("+avx2,+fma", ["+avx2", "+fma"]))
    if X86:
        assert resolve(written) == resolve(listed)


def test_the_threads_that_are_asked_for_come_before_those_of_a_target():
    target = {"kind": "llvm", "num-cores": 8}
    assert resolve(target).threads == 8
    assert resolve(target, 1).threads == 1
    for wrong in ("x", 0, 257, True):
        with pytest.raises(
            TargetError, match=f"threads = {wrong!r}: give an integer from 1 to 256"
        ):
            resolve({"kind": "llvm", "num-cores": wrong})


@pytest.mark.skipif(not X86, reason="a processor of x86-64")
def test_c_source_for_another_processor_has_none_of_this_one_s_instructions(tmp_path):
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump")
    (code,) = lw.build(matmul(), target={"kind": "c", "mcpu": "x86-64"}, threads=1).origin.objects
    (tmp_path / "kernel.o").write_bytes(code)
    listed = ["objdump", "-d", tmp_path / "kernel.o"]
    text = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
    assert "%xmm" in text
    assert "%ymm" not in text
    assert "%zmm" not in text


def test_another_processor_of_the_family_gets_its_own_code():
    target = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 1}
    made = lw.build(matmul(), target=target).source("asm")
    assert re.search(r"vfmadd.*%zmm", made)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("tpu", "not supported"),
        ({"kind": "vulkan"}, "not a supported target"),
        ({"kind": "llvm", "mcpu": "skylake512"}, "skylake-avx512"),
        ({"kind": "llvm", "cores": 3}, "num-cores"),
        ({"kind": "llvm", "mattr": ["+avx2", 3]}, r"give text such as"),
        ({"kind": "llvm", "mattr": 7}, r"give text such as"),
        ({"kind": "llvm", "mattr": ["avx2"]}, r'write "\+avx2"'),
        (7, "target = int 7: give a name"),
    ],
)
def test_a_target_that_is_not_supported_is_an_error_that_names_what_is(target, message):
    with pytest.raises(TargetError, match=message):
        lw.build(matmul(), target=target)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True])
def test_a_number_of_threads_that_makes_no_sense_is_an_error(threads):
    with pytest.raises(TargetError, match="integer from 1 to 256"):
        lw.build(matmul(), threads=threads)


@pytest.mark.parametrize(
    "name",
    [
        "matmul_of_odd_extents",
        "conv2d_with_constant_weights_bias_and_relu",
        "softmax",
        "every_elementary_function",
        "comparison_to_truth_values",
        "matmul_in_int8_accumulated_in_int32",
    ],
)
def test_c_source_gives_the_same_results(name):
    workload = WORKLOADS[name]()
    space, rng = lw.space(workload, "c", threads=2), np.random.default_rng(2)
    configs = [space.default, space.sample(rng)]
    assert_configs_equal_oracle(workload, configs, target="c", threads=2)


def test_the_code_of_a_library_can_be_read_whether_it_is_bound_or_not():
    A, B, C = lw.tensor("A", (24, 32)), lw.tensor("B", (32, 48), constant=True), lw.tensor("C")
    i, j, k = lw.indices("i j k")
    C[i, j] += A[i, k] * B[k, j]
    marks = {"cpu": {"asm": "__tvm_ffi_main:", "llvm": "define ", "tree": "for "}}
    marks["c"] = {"asm": "__tvm_ffi_main:", "c": "for (", "tree": "for "}
    for target, kinds in marks.items():
        library = lw.build(lw.workload(C), target=target)
        bound = library.bind(B=np.ones((32, 48), np.float32))
        for kind, mark in kinds.items():
            assert mark in library.source(kind)
            assert mark in bound.source(kind)


def test_the_c_source_can_be_read():
    assert "for (" in lw.build(matmul(), target="c").source("c")


@pytest.mark.aarch64
@pytest.mark.parametrize("name", ["conv2d_with_constant_weights_bias_and_relu", "softmax"])
def test_a_library_for_aarch64_runs_under_qemu(name, tmp_path):
    workload = WORKLOADS[name]()
    native = lw.build(workload, threads=1)
    lw.build(workload, target=AARCH64, threads=2, name="kernel").export(tmp_path / "kernel.so")
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected = native(*inputs)
    arguments = [*inputs, np.zeros_like(expected)]
    source = _caller(native.signature, arguments)
    (tmp_path / "main.c").write_text(source)
    command = "aarch64-linux-gnu-gcc main.c -I. -L. -l:kernel.so -Wl,-rpath,$ORIGIN -lm -o main"
    subprocess.run(command.split(), cwd=tmp_path, check=True)
    flat = b"".join(np.ascontiguousarray(a).tobytes() for a in inputs)
    qemu = [shutil.which("qemu-aarch64"), "-L", "/usr/aarch64-linux-gnu", "./main"]
    ran = subprocess.run(qemu, cwd=tmp_path, input=flat, capture_output=True, check=True)
    output = np.frombuffer(ran.stdout, expected.dtype).reshape(expected.shape)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def _caller(signature, arrays):
    """A C program that reads the inputs from its standard input and writes the output."""
    names = [f"a{n}" for n in range(len(arrays))]
    lines = ['#include "kernel.h"', "#include <stdio.h>"]
    lines += [f"static float {n}[{a.size}];" for n, a in zip(names, arrays)]
    lines.append("int main(void) {")
    lines += [f"  if (fread({n}, sizeof {n}, 1, stdin) != 1) return 2;" for n in names[:-1]]
    lines.append(f"  if (kernel({', '.join(names)})) return 3;")
    lines.append(f"  fwrite({names[-1]}, sizeof {names[-1]}, 1, stdout);\n  return 0;\n}}")
    return "\n".join(lines) + "\n"


def test_importing_the_package_does_not_import_the_compiler():
    code = "import loopwright, sys; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_processor_of_another_architecture_is_told_with_its_triple():
    wanted = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "skylake-avx512"}
    with pytest.raises(
        TargetError, match='another architecture: add "mtriple": "x86_64-linux-gnu"'
    ):
        resolve(wanted)


@pytest.mark.parametrize("triple", ["nonsense", "x86-linux-gnu", "mips64-linux-gnu", "-"])
def test_a_triple_of_no_known_family_is_an_error_that_names_those_there_are(triple):
    with pytest.raises(TargetError, match="no processor family of x86_64, i386"):
        resolve({"kind": "llvm", "mtriple": triple})
