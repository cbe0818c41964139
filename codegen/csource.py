"""The "c" target: TVM's C source, compiled by the C compiler."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tvm
import tvm_ffi

from loopwright.codegen.linker import find_compiler, is_native
from loopwright.schedule.target import Target

_FLAGS = ("-O3", "-fPIC", "-fno-math-errno", "-fwrapv")


def compile_source(source: str, target: Target) -> bytes:
    """The object file of a C source. Raises `BuildError` with the compiler's words."""
    headers = [f"-I{Path(m.__file__).parent / 'include'}" for m in (tvm, tvm_ffi)]
    flags = [*_FLAGS, "-march=native"] if is_native(target.triple) else [*_FLAGS]
    with tempfile.TemporaryDirectory() as folder:
        text, code = Path(folder) / "kernel.c", Path(folder) / "kernel.o"
        text.write_text(source)
        find_compiler(target.triple).run(*flags, *headers, "-c", text, "-o", code)
        return code.read_bytes()
