"""Libraries as files: exported, loaded, called from C, damaged, taken elsewhere."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.library.header import Functions, header, wrapper
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.codegen.load import load
from loopwright.codegen.processors import usable_processors
from loopwright.dsl.errors import BuildError, LibraryError, TargetError
from tests.codegen import kernels
from tests.codegen.kernels import AARCH64, matrices

EXAMPLE = Path(__file__).parents[2] / "examples/c/main.c"


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def exported(request, tmp_path):
    lib = kernels.matmul(packed=request.param, extra={"note": [1, "two"]}, target="a test")
    return lib.export(tmp_path / "matmul.so")


def test_what_is_exported_loads_and_computes(exported):
    A, W = matrices()
    lib = load(exported)
    np.testing.assert_allclose(lib(A, W), A @ W, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(lib.bind(W=W)(A), A @ W, rtol=1e-5, atol=1e-5)
    assert lib.origin.extra == {"note": [1, "two"]}
    assert lib.origin.target == "a test"
    assert lib.threads == min(2, usable_processors())


def test_it_loads_where_there_is_no_compiler_and_no_tuner(exported):
    script = (
        "import sys, numpy as np\n"
        "from loopwright.codegen.load import load\n"
        f"lib = load({str(exported)!r})\n"
        "C = lib(np.ones((24, 12), 'f4'), np.ones((12, 16), 'f4'))\n"
        "assert (C == 12).all()\n"
        "heavy = {'tvm', 'tvm_ffi', 'xgboost', 'torch', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": "/nowhere", "CC": "none"},
    )
    assert done.returncode == 0, done.stderr


def test_the_shared_object_needs_libc_alone_and_shows_its_own_names_alone(exported):
    def lines(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    needed = [t for t in lines("readelf", "-d", exported).splitlines() if "NEEDED" in t]
    assert all("libc.so" in t or "ld-linux" in t for t in needed), needed
    shown = {t.split()[-1] for t in lines("nm", "-D", "--defined-only", exported).splitlines()}
    declared = exported.with_suffix(".h").read_text()
    assert shown - {"loopwright_runtime"} == {s for s in shown if f"{s}(" in declared}
    assert {"matmul", "matmul_error", "matmul_set_threads", "matmul_threads"} <= shown


def test_the_c_example_runs(tmp_path):
    kernels.matmul(packed=True).export(tmp_path / "matmul.so")
    build_and_run("cc", tmp_path)


def test_the_c_example_runs_with_the_library_that_it_tells_to_make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = EXAMPLE.read_text().partition("*/")[0]
    lines = [line[7:] for line in text.splitlines() if line.startswith(" *     ")]
    exec("\n".join(line for line in lines if not line.startswith("cc ")), {})
    build_and_run("cc", tmp_path)


def build_and_run(compiler, folder, *runner):
    program = folder / "main"
    flags = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{folder}")
    subprocess.run(
        [compiler, *flags, EXAMPLE, folder / "matmul.so", "-o", program, "-Wl,-rpath,$ORIGIN"],
        check=True,
    )
    done = subprocess.run([*runner, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "null: a pointer is null" in done.stdout
    assert "misaligned: a pointer is not aligned" in done.stdout


@pytest.mark.aarch64
@pytest.mark.skipif(
    not (shutil.which("qemu-aarch64") and shutil.which(f"{AARCH64}-gcc")),
    reason="needs qemu-aarch64 and aarch64-linux-gnu-gcc (Debian: qemu-user and the gcc of that)",
)
def test_a_library_for_aarch64_runs_there(tmp_path):
    lib = kernels.matmul(packed=True, triple="aarch64-unknown-linux-gnu")
    with pytest.raises(TargetError, match="built for aarch64-unknown-linux-gnu"):
        lib(*matrices())
    path = lib.export(tmp_path / "matmul.so")
    with pytest.raises(LibraryError, match="made for aarch64; this machine is"):
        load(path)
    build_and_run(f"{AARCH64}-gcc", tmp_path, "qemu-aarch64", "-L", f"/usr/{AARCH64}")


def test_the_header_compiles_as_c_and_as_cpp(tmp_path):
    kinds = (
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int8",
        "uint8",
        "bool",
        "int32",
        "int8",
    )
    names = (
        "x",
        "int",
        "a b",
        "a_b",
        "class",
        "3",
        "é*/(",
        "prepared",
        "status",
        "pointers",
        "not_eq",
    )
    inputs = tuple(Parameter(n, (2, 3), d) for n, d in zip(names, kinds, strict=True))
    scalar = Parameter("loss", (), "float32")
    signature = Signature("f", inputs, (scalar,), ("int", "a b"), (Parameter("P", (7,), "int8"),))
    (tmp_path / "f.h").write_text(header(Functions("f", signature)))
    (tmp_path / "f.c").write_text('#include "f.h"\nint use(void) { return f_threads(); }\n')
    (tmp_path / "f.cc").write_text('#include "f.h"\nint use() { return f_threads(); }\n')
    (tmp_path / "w.c").write_text('#include "f.h"\n' + wrapper(Functions("f", signature)))
    runtime = Path(__file__).parents[2] / "codegen/library/runtime"
    for compiler, file in (("cc", "f.c"), ("c++", "f.cc"), ("cc", "w.c")):
        if not shutil.which(compiler):
            pytest.skip(f"no {compiler} here")
        flags = ("-Wall", "-Wextra", "-Werror", "-c", f"-I{runtime}")
        subprocess.run([compiler, *flags, tmp_path / file, "-o", tmp_path / "o"], check=True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mat-mul.so", "mat_mul.so"),
        ("3d.so", "my_3d.so"),
        ("int.so", "my_int.so"),
        ("main.so", "my_main"),
        ("lw.so", "my_lw.so"),
        ("lw_call.so", "my_lw_call.so"),
        ("模型.so", "my_library.so"),
    ],
)
def test_a_name_that_c_cannot_have_is_refused_with_a_better_one(tmp_path, name, hint):
    with pytest.raises(LibraryError, match=f"try {hint}"):
        kernels.matmul().export(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["exp", "free", "div"])
def test_a_name_that_the_c_library_has_is_refused(tmp_path, name):
    """The kernel, or a program that links it, would call one for the other."""
    with pytest.raises(LibraryError, match=f"the C library has {name}; try my_{name}.so"):
        kernels.matmul().export(tmp_path / f"{name}.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["size_t", "int8_t", "NULL", "INFINITY", "M_PI", "FILE"])
def test_a_name_that_a_header_of_c_has_is_refused(tmp_path, name):
    with pytest.raises(LibraryError, match=f"headers of C have {name}; try my_{name}.so"):
        kernels.matmul().export(tmp_path / f"{name}.so")
    assert not list(tmp_path.iterdir())


def test_a_header_that_somebody_else_wrote_is_kept(tmp_path):
    (tmp_path / "matmul.h").write_text("/* by hand */\n")
    with pytest.raises(LibraryError, match=r"matmul\.h is there"):
        kernels.matmul().export(tmp_path / "matmul.so")
    assert [p.name for p in tmp_path.iterdir()] == ["matmul.h"]


def test_prepared_constants_may_lie_anywhere(tmp_path):
    """In C they are in what malloc gives, which is aligned to 16 bytes."""
    A, W = (lw.tensor(n, s, constant=n == "W") for n, s in (("A", (24, 48)), ("W", (48, 64))))
    C, (i, j, k) = lw.tensor("C"), lw.indices("i j k")
    C[i, j] += A[i, k] * W[k, j]
    path = lw.build(lw.workload(C), threads=1).export(tmp_path / "product.so")
    code = ctypes.CDLL(str(path))
    code.product_prepared_bytes.restype = ctypes.c_size_t
    size = code.product_prepared_bytes()
    a, w = matrices(24, 64, 48)
    out = np.zeros((24, 64), np.float32)
    for offset in (0, 4, 16, 32):
        block = np.zeros(size + 128, np.uint8)
        place = block.ctypes.data + -block.ctypes.data % 64 + offset
        pointer, at = ctypes.c_void_p(place), ctypes.c_void_p
        assert code.product_prepare(at(w.ctypes.data), pointer) == 0
        assert code.product_run(at(a.ctypes.data), pointer, at(out.ctypes.data)) == 0
        np.testing.assert_allclose(out, a @ w, rtol=1e-4, atol=1e-4)


def test_a_name_without_so_is_refused(tmp_path):
    with pytest.raises(LibraryError, match=r"ends in \.so"):
        kernels.matmul().export(tmp_path / "matmul")
    with pytest.raises(LibraryError, match=r"ends in \.so"):
        load(tmp_path / "matmul")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_what_is_bound_is_inside_of_an_export(packed, tmp_path):
    A, W = matrices()
    path = kernels.matmul(packed=packed).bind(W=W).export(tmp_path / "product.so")
    lib = load(path)
    assert [p.name for p in lib.inputs] == ["A"]
    assert lib.origin.extra["bound"] == ["W"]
    np.testing.assert_allclose(lib(A), A @ W, rtol=1e-5, atol=1e-5)
    assert "int product(const float *A, float *C);" in path.with_suffix(".h").read_text()
    out = np.zeros((24, 16), np.float32)
    code, at = ctypes.CDLL(str(path)), ctypes.c_void_p
    assert code.product(at(A.ctypes.data), at(out.ctypes.data)) == 0
    np.testing.assert_allclose(out, A @ W, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", [-4, 0, 4])
def test_outputs_that_overlap_inputs_have_a_status(exported, shift):
    code, at = ctypes.CDLL(str(exported)), ctypes.c_void_p
    code.matmul_error.restype = ctypes.c_char_p
    _, W = matrices()
    block = np.ones(24 * 16 + 64, np.float32)
    start = block.ctypes.data + 64
    A, C = at(start), at(start + shift)
    assert code.matmul(A, at(W.ctypes.data), C) == 9
    assert code.matmul_error(9) == b"an output overlaps an input or another output"
    assert (block == 1).all()
    far = np.ones(24 * 16, np.float32)
    assert code.matmul(A, A, at(far.ctypes.data)) == 0, "inputs may be the same array"


def test_an_operator_is_exported_with_its_weights_inside(tmp_path):
    x = lw.tensor("x", (1, 16, 14, 14))
    w = lw.tensor("w", (16, 16, 3, 3), constant=True)
    b = lw.tensor("b", (16,), constant=True)
    n, k, h, v = lw.indices("n k h v")
    image = lw.ops.conv2d(x, w, padding=1)
    y = lw.tensor("y")
    y[n, k, h, v] = image[n, k, h, v] + b[k]
    built = lw.build(lw.workload(y))
    assert built.signature.prepared, "a kernel that lays its weights out"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape).astype("f4") for p in built.signature.inputs]
    named = dict(zip((p.name for p in built.signature.inputs), arrays))
    expected = built(**named)
    path = built.bind(w=named["w"], b=named["b"]).export(tmp_path / "layer.so")
    np.testing.assert_array_equal(load(path)(named["x"]), expected)


def test_constants_that_are_laid_out_together_are_exported_together(tmp_path):
    m, n, k = 24, 16, 12
    i, j, r = lw.indices("i j r")
    A = lw.tensor("A", (m, k))
    V, W = (lw.tensor(name, (k, n), constant=True) for name in "VW")
    C = lw.tensor("C")
    C[i, j] += A[i, r] * (V[r, j] * W[r, j])
    library = lw.build(lw.workload(C))
    ones = np.ones((k, n), np.float32)
    if len(library.signature.constants) == 2:
        with pytest.raises(LibraryError, match="bind W too"):
            library.bind(V=ones).export(tmp_path / "product.so")
    path = library.bind(V=ones, W=ones).export(tmp_path / "product.so")
    A = np.ones((m, k), np.float32)
    np.testing.assert_array_equal(load(path)(A), A @ ones)


def test_a_loaded_library_says_that_it_is_an_export_already(exported):
    with pytest.raises(LibraryError, match="is an export already"):
        load(exported).export(exported.with_name("other.so"))
    with pytest.raises(LibraryError, match="bind those of the library that was built"):
        load(exported).bind(W=matrices()[1]).export(exported.with_name("other.so"))


def test_nothing_is_left_behind_when_an_export_fails(tmp_path, monkeypatch):
    lib = kernels.matmul()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(BuildError):
        lib.export(tmp_path / "matmul.so")
    monkeypatch.delenv("CC")
    assert not list(tmp_path.iterdir())
    (tmp_path / "matmul.so").mkdir()
    with pytest.raises(LibraryError, match="this is a folder; give a file"):
        lib.export(tmp_path / "matmul.so")
    assert [p.name for p in tmp_path.iterdir()] == ["matmul.so"]


def test_an_export_makes_no_folder(tmp_path):
    with pytest.raises(LibraryError, match=r"no folder .*new; make it first"):
        kernels.matmul().export(tmp_path / "new" / "matmul.so")
    assert not list(tmp_path.iterdir())


def test_an_export_replaces_another_one(tmp_path):
    path = kernels.matmul().export(tmp_path / "matmul.so")
    old = load(path)
    kernels.matmul(8, 8, 8).export(path)
    A, W = matrices(8, 8, 8)
    np.testing.assert_allclose(load(path)(A, W), A @ W, rtol=1e-5, atol=1e-5)
    A, W = matrices()
    np.testing.assert_allclose(old(A, W), A @ W, rtol=1e-5, atol=1e-5)
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "matmul.h",
        "matmul.json",
        "matmul.so",
    ]


def edit(path, **changes):
    manifest = path.with_suffix(".json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))


def test_a_damaged_library_is_not_run(exported):
    code = bytearray(exported.read_bytes())
    code[len(code) // 2] ^= 1
    exported.write_bytes(code)
    with pytest.raises(LibraryError, match="is damaged, or is not the file"):
        load(exported)


def test_a_truncated_library_is_not_run(exported):
    exported.write_bytes(exported.read_bytes()[:100])
    with pytest.raises(LibraryError, match="is damaged"):
        load(exported)


def test_a_library_without_its_manifest_is_explained(exported):
    exported.with_suffix(".json").unlink()
    with pytest.raises(LibraryError, match="its manifest is missing"):
        load(exported)
    exported.unlink()
    with pytest.raises(LibraryError, match="there is no such file"):
        load(exported)


def test_a_manifest_without_its_library_is_explained(exported):
    exported.unlink()
    with pytest.raises(LibraryError, match="there is no such file"):
        load(exported)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "not the manifest of a Loopwright library"),
        ('{"format": "other"}', "not the manifest of a Loopwright library"),
        (
            '{"format": "loopwright-library", "schema": 99, "version": "9"}',
            "schema 99, this version",
        ),
        ('{"format": "loopwright-library", "schema": 1}', "schema 1, this version"),
    ],
)
def test_a_bad_manifest_is_explained(exported, text, message):
    exported.with_suffix(".json").write_text(text)
    with pytest.raises(LibraryError, match=message):
        load(exported)


def test_a_foreign_shared_object_is_refused(exported, tmp_path):
    import hashlib

    source = tmp_path / "foreign.c"
    source.write_text("int matmul(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", exported], check=True)
    edit(exported, sha256=hashlib.sha256(exported.read_bytes()).hexdigest())
    with pytest.raises(LibraryError, match="not made by Loopwright"):
        load(exported)
    exported.write_bytes(b"text")
    edit(exported, sha256=hashlib.sha256(b"text").hexdigest())
    with pytest.raises(LibraryError, match="not made by Loopwright"):
        load(exported)


@pytest.mark.parametrize("name", ["matmul.json", "matmul.h"])
@pytest.mark.parametrize("content", [b'{"a": 1}\n{"a": 2}\n', b"\xff\xfe", b"# mine"])
def test_no_file_of_others_is_overwritten(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LibraryError, match="is there, and is no library"):
        kernels.matmul().export(tmp_path / "matmul.so")
    assert (tmp_path / name).read_bytes() == content


def test_a_manifest_that_was_cut_short_is_written_anew(exported):
    where = exported.with_suffix(".json")
    where.write_text(where.read_text()[:40])
    kernels.matmul().export(exported)
    assert load(exported)


@pytest.mark.parametrize("path", ["", "/", "matmul"])
def test_a_path_that_is_no_library_s_is_refused(path):
    with pytest.raises(LibraryError, match=r"ends in \.so"):
        load(path)


def test_a_processor_that_lacks_something_is_named(tmp_path):
    path = kernels.matmul(cpu_features=("warp_drive",)).export(tmp_path / "matmul.so")
    with pytest.raises(LibraryError, match="features that this machine lacks: warp_drive"):
        load(path)


def test_a_loaded_library_shows_the_sources_that_its_manifest_keeps(tmp_path):
    lib = kernels.matmul(extra={"sources": {"config": "tile = 4"}}, sources={"tir": lambda: "x"})
    loaded = load(lib.export(tmp_path / "matmul.so"))
    assert loaded.source("config") == "tile = 4"
    with pytest.raises(LibraryError, match="no source of kind 'tir'; there are: config"):
        loaded.source("tir")
    loaded = load(kernels.matmul().export(tmp_path / "other.so"))
    with pytest.raises(LibraryError, match="exported libraries keep none"):
        loaded.source("tir")


def test_two_exported_libraries_serve_one_program(tmp_path):
    kernels.matmul(packed=True).export(tmp_path / "one.so")
    kernels.matmul(8, 8, 8).export(tmp_path / "two.so")
    (tmp_path / "both.c").write_text(
        """#include "one.h"
#include "two.h"
static float A[24 * 12], W[12 * 16], C[24 * 16], S[64];
int main(void) {
  for (int i = 0; i < 24 * 12; i++) A[i] = 1;
  for (int i = 0; i < 12 * 16; i++) W[i] = 1;
  one_set_threads(2), two_set_threads(3);
  for (int i = 0; i < 100; i++) {
    if (one(A, W, C) || two(A, W, S) || C[383] != 12 || S[63] != 8) return 1;
  }
  return one_threads() != 2 || two_threads() != 3;
}
"""
    )
    libraries = (tmp_path / "one.so", tmp_path / "two.so")
    program = tmp_path / "both"
    subprocess.run(
        ["cc", tmp_path / "both.c", *libraries, "-o", program, "-Wl,-rpath,$ORIGIN"], check=True
    )
    subprocess.run([program], check=True, timeout=60)
