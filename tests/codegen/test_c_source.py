"""C source that is to be read, and compiled anywhere: kernels, and the folder that has them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.library.linker import RUNTIME
from loopwright.dsl.dtypes import numpy_dtype
from loopwright.dsl.errors import LibraryError
from loopwright.dsl.oracle import evaluate
from tests.codegen.test_build import assert_equals_oracle, random_inputs
from tests.collection import WORKLOADS
from tests.thin import thinned

STRICT = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
VARIED = sorted(WORKLOADS)[::6]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The sources of a folder as a shared object, loaded. The run-time, which is the same in all
    folders, is compiled once."""
    runtimes: dict[tuple[bytes, ...], Path] = {}

    def load(folder: Path, *flags: str) -> ctypes.CDLL:
        command = ["gcc", *STRICT, *flags, "-fPIC", f"-I{folder}", f"-I{folder}/runtime"]
        parts = sorted((folder / "runtime").iterdir())
        key = (*(p.read_bytes() for p in parts), *map(str.encode, flags))
        if key not in runtimes:
            runtimes[key] = tmp_path_factory.mktemp("runtime") / "base.o"
            base = folder / "runtime/base.c"
            subprocess.run([*command, "-c", base, "-o", runtimes[key]], check=True)
        sources, out = folder.glob("*.c"), folder / "made.so"
        ends = ["-o", out, "-lm", "-pthread"]
        subprocess.run([*command, "-shared", *sources, runtimes[key], *ends], check=True)
        return ctypes.CDLL(str(out))

    return load


def called(function, *arrays):
    assert function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays)) == 0


@pytest.fixture(scope="module")
def product():
    A, W = lw.tensor("A", (24, 12)), lw.tensor("W", (12, 16), constant=True)
    C = lw.tensor("C")
    i, j, k = lw.indices("i j k")
    C[i, j] += A[i, k] * W[k, j]
    return lw.build(lw.workload(C), target="c", threads=2)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    a, w = (rng.standard_normal(s).astype("f4") for s in ((24, 12), (12, 16)))
    return a, w, np.zeros((24, 16), np.float32)


@pytest.mark.parametrize("name", thinned(VARIED, 3))
def test_an_exported_folder_computes_what_the_oracle_does(name, compiled, tmp_path):
    workload = WORKLOADS[name]()
    inputs = random_inputs(workload, np.random.default_rng(0))
    library = lw.build(workload, target="c", threads=2)
    folder = library.export(tmp_path / "made")
    code = compiled(folder)
    outputs = tuple(np.empty(p.shape, numpy_dtype(p.dtype)) for p in library.signature.outputs)
    called(code.made, *map(np.ascontiguousarray, inputs), *outputs)
    results = outputs if len(outputs) > 1 else outputs[0]
    assert_equals_oracle(workload, lambda *_: results, inputs, evaluate(workload, inputs))


def test_the_source_names_what_is_computed_and_nothing_of_tvm(product):
    source = product.source("c")
    assert "C[i, j] += A[i, k] * W[k, j]" in source
    assert re.search(r"for \(ptrdiff_t k = 0; k < \d+; k\+\+\)", source)
    assert "tvm" not in source.lower()
    assert max(map(len, source.splitlines())) < 140


def test_names_of_c_and_of_the_run_time_may_be_those_of_tensors(compiled, tmp_path):
    names = ["float", "exp", "lw_check", "chunk", "status", "NAN", "größe", "M_PI"]
    tensors = [lw.tensor(name, (33, 40)) for name in names]
    out, (i, j) = lw.tensor("kernel_main_part1"), lw.indices("data with")
    total = tensors[0][i, j]
    for tensor in tensors[1:]:
        total = total + lw.exp(tensor[i, j])
    out[i, j] = total
    library = lw.build(lw.workload(out), target="c", threads=2)
    code = compiled(library.export(tmp_path / "made"))
    inputs = [np.full((33, 40), n, np.float32) for n in range(len(names))]
    found = np.empty((33, 40), np.float32)
    called(code.made, *inputs, found)
    np.testing.assert_allclose(found, np.exp(np.arange(1, len(names))).sum(), rtol=1e-5)


def test_the_folder_names_no_header_but_its_own_and_the_c_library_s(product, tmp_path):
    folder = product.export(tmp_path / "product")
    for path in folder.rglob("*.[ch]"):
        for name in re.findall(r'#include "(.*?)"', path.read_text()):
            assert (folder / name).is_file() or (folder / "runtime" / name).is_file()
        assert "tvm" not in path.read_text().lower()


def test_weights_are_sources_of_a_folder_where_they_are_bound(product, arrays, compiled, tmp_path):
    a, w, c = arrays
    w[0, :4] = np.inf, -np.inf, -0.0, 1e-40
    folder = product.bind(W=w).export(tmp_path / "layer")
    code = compiled(folder, "-DLW_ONE_THREAD")
    called(code.layer, a, c)
    np.testing.assert_allclose(c, product(a, w), rtol=1e-5, atol=1e-5)
    assert code.layer_threads() == 1
    assert "kernel_prepare" not in (folder / "layer.c").read_text()


def test_two_folders_become_one_program(product, arrays, tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("needs cmake")
    w = arrays[1]
    for name in ("one", "two"):
        product.bind(W=w).export(tmp_path / name)
    (tmp_path / "main.c").write_text(
        '#include "one.h"\n#include "two.h"\n'
        "int main(void) { float a[288] = {0}, c[384];\n"
        "return one_set_threads(2) || one(a, c) || two(a, c) || one(c, c) != 9; }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(both C)\n"
        "add_subdirectory(one)\nadd_subdirectory(two)\nadd_executable(both main.c)\n"
        "target_link_libraries(both one two)\n"
    )
    run = {"check": True, "cwd": tmp_path, "stdout": subprocess.DEVNULL}
    subprocess.run(["cmake", "-B", "build"], **run)
    subprocess.run(["cmake", "--build", "build"], **run)
    subprocess.run([tmp_path / "build/both"], **run)


def test_a_folder_that_holds_other_files_is_left_alone(product, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    with pytest.raises(LibraryError, match="holds other files"):
        product.export(tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    product.export(tmp_path / "made")
    product.export(tmp_path / "made")
    with pytest.raises(LibraryError, match="try my_2d"):
        product.export(tmp_path / "2d")
    with pytest.raises(LibraryError, match=r"try made$"):
        product.export(tmp_path / "made.c")
    with pytest.raises(LibraryError, match="no folder"):
        product.export(tmp_path / "not/there")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_of_every_pattern_convert_as_numpy_does(dtype, tmp_path):
    half = numpy_dtype(dtype)
    (tmp_path / "c.c").write_text(
        '#include "elements.h"\n'
        "void all(const uint16_t *h, float *f, const float *g, uint16_t *k, int n, int m) {\n"
        f"  for (int i = 0; i < n; i++) f[i] = lw_of_{dtype}(h[i]);\n"
        f"  for (int i = 0; i < m; i++) k[i] = lw_to_{dtype}(g[i]); }}\n"
    )
    out = tmp_path / "c.so"
    command = ["gcc", *STRICT, "-shared", "-fPIC", f"-I{RUNTIME}", tmp_path / "c.c"]
    subprocess.run([*command, "-o", out, "-lm"], check=True)
    bits = np.arange(1 << 16, dtype=np.uint16)
    exact = bits.view(half).astype(np.float32)
    with np.errstate(all="ignore"):
        near = np.nextafter(exact, np.float32(0)), np.nextafter(exact, np.float32(np.inf))
        middles = (exact[:-1].astype("f8") + exact[1:]) / 2
        floats = np.concatenate([exact, *near, middles, [7e4, 1e38, 1e-45]])
        floats = floats.astype("f4")
        expected = floats.astype(half)
    found, rounded = np.empty_like(exact), np.empty(floats.shape, np.uint16)
    pointers = (ctypes.c_void_p(x.ctypes.data) for x in (bits, found, floats, rounded))
    ctypes.CDLL(str(out)).all(*pointers, bits.size, floats.size)
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(rounded.view(half).astype("f4"), expected.astype("f4"))
