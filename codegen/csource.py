"""The "c" target: TVM's C source, compiled by the C compiler."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tvm_ffi

from loopwright.codegen.linker import find_compiler
from loopwright.schedule.target import Target


def compile_source(source: str, target: Target) -> bytes:
    """The object file of a C source. Raises `BuildError` with the compiler's words."""
    include = Path(tvm_ffi.__file__).parent / "include"
    with tempfile.TemporaryDirectory() as folder:
        text, code = Path(folder) / "kernel.c", Path(folder) / "kernel.o"
        text.write_text(source)
        find_compiler(target.triple).run(
            "-O3",
            "-march=native",
            "-fPIC",
            "-fno-math-errno",
            f"-I{include}",
            "-c",
            text,
            "-o",
            code,
        )
        return code.read_bytes()
