"""The C run-time: its thread pool and workspaces, alone and inside Python."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

from loopwright.codegen.library import linker
from loopwright.codegen.library.library import Library
from loopwright.codegen.library.linker import Compiler, cached_file
from loopwright.codegen.load import load
from loopwright.dsl.errors import BuildError, LibraryError, TargetError
from tests.codegen import kernels
from tests.codegen.kernels import matrices

CHECK = Path(__file__).with_name("runtime_check.c")
SANITIZERS = {
    "plain": (),
    "thread": ("-fsanitize=thread",),
    "address": ("-fsanitize=address,undefined",),
}


@pytest.fixture(scope="module")
def checkers(tmp_path_factory):
    built = {}

    def build(sanitizer):
        if sanitizer not in built:
            program = tmp_path_factory.mktemp(sanitizer) / "check"
            flags = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
            command = ["cc", *flags, *SANITIZERS[sanitizer], f"-I{linker.RUNTIME}"]
            sources = [CHECK, linker.RUNTIME / "runtime.c"]
            done = subprocess.run(
                [*command, *sources, "-o", program], capture_output=True, text=True
            )
            if done.returncode and sanitizer != "plain":
                pytest.skip(f"the compiler has no {sanitizer} sanitizer: {done.stderr[-200:]}")
            assert not done.returncode, done.stderr
            built[sanitizer] = program
        return built[sanitizer]

    return build


@pytest.mark.parametrize("mode", ["limits", "stress", "fork"])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_the_runtime_holds_under(checkers, sanitizer, mode):
    if mode == "fork" and sanitizer != "plain":
        pytest.skip("sanitizers do not survive a fork of threads: their own locks stay held")
    program = checkers(sanitizer)
    done = subprocess.run([program, mode], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not work with this kernel's address layout")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "aarch64-linux-gnu-gcc"])
def test_the_runtime_compiles_without_a_warning(compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    flags = ("-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c")
    source = linker.RUNTIME / "runtime.c"
    subprocess.run([compiler, *flags, source, "-o", tmp_path / "runtime.o"], check=True)


def test_a_forked_child_has_its_own_threads():
    lib = kernels.matmul(threads=2)
    A, W = matrices()
    expected = lib(A, W)
    child = os.fork()
    if child == 0:
        fine = all(np.array_equal(lib(A, W), expected) for _ in range(20))
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(lib(A, W), expected)


# A process of its own: another one's malloc may have any amount of memory lying about.
STARVED = """
import resource, sys
from pathlib import Path
import numpy as np
from loopwright.codegen.load import load
from loopwright.dsl.errors import LibraryError

greedy = load(sys.argv[1])
X = np.ones(1 << 24, np.float32)
out = tuple(np.ones((2, len(X)), np.float32))
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + len(X)  # it needs four times as much
resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
try:
    greedy(X, out=out)
except LibraryError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert np.array_equal(greedy(X, out=out)[0], 2 * X)
"""


def test_a_kernel_whose_temporaries_do_not_fit_reports_it(tmp_path):
    path = kernels.elementwise("float32", (1 << 24,)).export(tmp_path / "greedy.so")
    told = subprocess.run(
        [sys.executable, "-c", STARVED, path], capture_output=True, text=True, check=True
    )
    assert "no memory for the temporary arrays" in told.stdout


def test_libraries_in_one_process_share_threads_and_not_names():
    libs = [kernels.matmul(), kernels.matmul(packed=True), kernels.matmul(8, 8, 8)]
    A, W = matrices()
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    for _ in range(3):
        for lib in libs[:2]:
            lib.threads = 2
            np.testing.assert_allclose(lib(A, W), A @ W, rtol=1e-5, atol=1e-5)
        a, w = matrices(8, 8, 8)
        np.testing.assert_allclose(libs[2](a, w), a @ w, rtol=1e-5, atol=1e-5)
    after = threading.active_count(), len(os.listdir("/proc/self/task"))
    assert after[1] - before[1] <= 1
    libs[0].threads = 1
    assert [lib.threads for lib in libs[:2]] == [1, 2]


def mapped() -> int:
    """How many libraries of ours are in this process."""
    gc.collect()  # of what is new
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[5] for line in lines if "/loopwright-" in line})


@pytest.fixture
def other_objects_stay():
    """Collections do not walk what other tests have left, which takes seconds."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("other_objects_stay")
def test_a_library_that_is_dropped_is_unloaded():
    first = kernels.matmul()  # may stay, to lend its threads
    code, signature = kernels.matmul_object(24, 16, 12, False), first.signature
    before = mapped()
    for _ in range(2):
        lib = Library.from_object(code, signature)
        lib(*matrices())
        assert mapped() == before + 1
        del lib
    assert mapped() == before


def test_a_process_with_sleeping_threads_ends_at_once(tmp_path):
    path = kernels.matmul().export(tmp_path / "mm.so")
    script = (
        "import sys, numpy as np, loopwright.codegen.load as e\n"
        f"lib = e.load({str(path)!r}); lib.threads = 4\n"
        "lib(np.ones((24, 12), 'f4'), np.ones((12, 16), 'f4'))\n"
    )
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert time.monotonic() - start < 30


def test_a_missing_compiler_is_explained(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CC", "wonder-cc -O2")
    with pytest.raises(BuildError, match=r"wonder-cc -O2, cc, gcc, clang on .* apt-get"):
        linker.find_compiler()
    with pytest.raises(BuildError, match="riscv64-linux-gnu-gcc"):
        linker.find_compiler("riscv64-unknown-linux-gnu")
    with pytest.raises(TargetError, match="Linux only"):
        linker.find_compiler("x86_64-apple-darwin")


def test_an_object_that_is_none_is_a_build_error():
    signature = kernels.matmul_signature(24, 16, 12, False, 1)
    with pytest.raises(BuildError, match="status 1"):
        Library.from_object(b"nonsense", signature)


def test_an_object_that_lacks_a_function_is_a_build_error():
    signature = kernels.matmul_signature(24, 16, 12, True, 1)
    with pytest.raises(LibraryError, match="no function 'prepare'"):
        Library.from_object(kernels.matmul_object(24, 16, 12, False), signature)


def test_functions_of_the_mathematical_library_are_found(tmp_path):
    tangent = kernels.elementwise("float64", compute=tirx.tan)
    X = np.linspace(-1, 1, 40)
    np.testing.assert_allclose(tangent(X)[0], np.tan(X), rtol=1e-12)
    exported = load(tangent.export(tmp_path / "tangent.so"))
    np.testing.assert_allclose(exported(X)[0], np.tan(X), rtol=1e-12)


def test_a_function_that_is_nowhere_is_a_build_error():
    def nowhere(x):
        return tirx.call_extern("float64", "loopwright_no_such_function", x)

    with pytest.raises(BuildError, match="loopwright_no_such_function"):
        kernels.elementwise("float64", compute=nowhere)


@pytest.mark.parametrize("cc", ["clang", "gcc -pipe"])
def test_any_compiler_and_an_unwritable_cache_will_do(monkeypatch, tmp_path, cc):
    if not shutil.which(cc.split()[0]):
        pytest.skip(f"no {cc} here")
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("CC", cc)
    for cache in (tmp_path / "cache", blocker):
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        A, W = matrices()
        np.testing.assert_allclose(kernels.matmul()(A, W), A @ W, rtol=1e-5, atol=1e-5)
    assert len(list((tmp_path / "cache").rglob("*.o"))) == 2


def test_what_finds_no_room_in_the_cache_is_made_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def make(path):
        if path.is_relative_to(tmp_path):
            raise BuildError("no space left on device")
        path.write_text("made")

    def fail(path):
        raise BuildError(f"an error in line 1 of {path}")

    assert cached_file(["a full cache"], ".txt", make).read_text() == "made"
    assert not list(tmp_path.rglob("*.txt"))
    with pytest.raises(BuildError, match="an error in line 1"):
        cached_file(["an error"], ".txt", fail)


def test_a_compiler_that_is_killed_is_told_so():
    compiler = Compiler(("sh", "-c", "kill -9 $$"), "a compiler that is killed")
    with pytest.raises(BuildError, match="was ended by a signal: Killed"):
        compiler.run("-c", "kernel.c")
