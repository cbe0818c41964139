"""NVIDIA's compilers: nvcc, or the library nvrtc where there is no nvcc."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import glob
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from loopwright.codegen.devices.code import Resources
from loopwright.dsl.errors import BuildError
from loopwright.packages import install
from loopwright.temporary import TemporaryFolder

_TIMEOUT = 300.0  # seconds; a compiler that needs more hangs
_CACHES = (12, 9)  # the first nvrtc that keeps what it compiled
_NO_COMPILER = (
    "found neither nvcc nor the library nvrtc: install the CUDA toolkit and put nvcc on the PATH "
    f"(or set CUDA_HOME), or {install('cuda')}"
)


def compile_cuda(source: str, arch: str, portable: bool) -> tuple[bytes, tuple[Resources, ...]]:
    """CUDA source compiled for an architecture, and what its kernels need, where the compiler
    tells.

    A portable image has PTX beside the machine code, for GPUs that are newer (not from nvrtc).
    Raises `BuildError`.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        output, log = _nvrtc(source, arch, "CUBIN")
        return output, read_resources(log)
    options = [f"-arch={arch}", "-cubin"]
    if portable:
        virtual = arch.replace("sm_", "compute_")
        options = ["-gencode", f"arch={virtual},code=[{arch},{virtual}]", "-fatbin"]
    output, log = _nvcc(nvcc, source, *options, "-Xptxas", "-v")
    return output, read_resources(log)


def compile_ptx(source: str, arch: str) -> str:
    """The PTX of CUDA source. Raises `BuildError`."""
    nvcc = find_nvcc()
    if nvcc is None:
        return _nvrtc(source, arch, "PTX")[0].rstrip(b"\0").decode()
    return _nvcc(nvcc, source, f"-arch={arch}", "-ptx")[0].decode()


def find_nvcc() -> str | None:
    """The path of nvcc: of $CUDA_HOME, or else on the PATH."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home and (found := shutil.which("nvcc", path=os.path.join(home, "bin"))):
        return found
    return shutil.which("nvcc")


def read_resources(log: str) -> tuple[Resources, ...]:
    """The resources of every kernel in the output of `ptxas -v`: lines "Compiling entry function
    'NAME'", "bytes stack frame, … bytes spill stores, … bytes spill loads", and "Used …
    registers", in which "bytes smem" may be left out."""
    found = []
    for part in re.split(r"Compiling entry function '", log)[1:]:
        name = part.split("'", 1)[0]
        registers = re.search(r"Used (\d+) registers", part)
        if registers is None:
            continue
        found.append(
            Resources(
                name,
                int(registers[1]),
                _bytes(part, "stack frame"),
                _bytes(part, "spill stores") + _bytes(part, "spill loads"),
                _bytes(part, "smem"),
            )
        )
    return tuple(found)


def _bytes(text: str, what: str) -> int:
    match = re.search(rf"(\d+) bytes {what}", text)
    return int(match[1]) if match else 0


def _nvcc(nvcc: str, source: str, *options: str) -> tuple[bytes, str]:
    with TemporaryFolder() as folder:
        text, output = folder / "kernels.cu", folder / "kernels.out"
        text.write_text(source, encoding="utf-8")
        command = [nvcc, "-std=c++17", "-O3", *options, "-o", str(output), str(text)]
        try:
            done = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", timeout=_TIMEOUT
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"could not run nvcc: {error}") from error
        if done.returncode:
            advice = ""
            if "gpu architecture" in done.stderr:
                advice = "\ninstall a CUDA toolkit that knows this architecture"
            raise BuildError(
                f"nvcc failed with status {done.returncode}\n{done.stderr.strip()[-4000:]}{advice}"
            )
        return output.read_bytes(), done.stderr


def _nvrtc(source: str, arch: str, kind: str) -> tuple[bytes, str]:
    """Compile a source with nvrtc, to a "CUBIN" or "PTX", with what its assembler says."""
    library = _nvrtc_library()
    if library is None:
        raise BuildError(_NO_COMPILER)
    program = ctypes.c_void_p()
    _checked(library, "nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu",
             0, None, None)  # fmt: skip
    try:
        options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
        if kind == "CUBIN":
            options += [b"--ptxas-options=-v"]
            if _nvrtc_version(library) >= _CACHES:  # what comes from its cache says nothing
                options += [b"--no-cache"]
        array = (ctypes.c_char_p * len(options))(*options)
        if library.nvrtcCompileProgram(program, len(options), array):
            log = _nvrtc_log(library, program)
            raise BuildError(f"nvrtc could not compile for {arch}\n{log.strip()[-4000:]}")
        return _nvrtc_text(library, program, kind), _nvrtc_log(library, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _nvrtc_log(library: Any, program: ctypes.c_void_p) -> str:
    text = _nvrtc_text(library, program, "ProgramLog")
    return text.rstrip(b"\0").decode("utf-8", "replace")


def _nvrtc_version(library: Any) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _checked(library, "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _nvrtc_text(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _checked(library, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    _checked(library, f"nvrtcGet{what}", program, text)
    return text.raw


def _checked(library: Any, function: str, *arguments: Any) -> None:
    status = getattr(library, function)(*arguments)
    if status:
        raise BuildError(f"{function} of nvrtc failed with status {status}")


@functools.cache
def _nvrtc_library() -> Any:
    """The library: of the system, or of the package that torch brings along."""
    names = [ctypes.util.find_library("nvrtc") or ""]
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        names += sorted(glob.glob(str(Path(folder) / "*" / "lib" / "libnvrtc.so.*[0-9]")))
    for name in filter(None, names):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
