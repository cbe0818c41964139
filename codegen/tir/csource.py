"""The "c" target: TVM's C source, compiled by the C compiler."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tvm
import tvm_ffi

from loopwright.codegen.library.linker import architecture, find_compiler
from loopwright.codegen.target import resolve
from loopwright.schedule.target import Target

_FLAGS = ("-O3", "-fPIC", "-fno-math-errno", "-fwrapv")


def _machine(target: Target) -> list[str]:
    """The compiler's switches for a processor: this one, or one of x86 by name and features."""
    if target == resolve("c", target.threads):
        return ["-march=native"]
    if architecture(target.triple) != "x86_64":
        return []
    named = [f"-march={target.mcpu}"] if target.mcpu else []
    return [*named, *(f"-m{'' if f[0] == '+' else 'no-'}{f[1:]}" for f in target.features)]


def compile_source(source: str, target: Target) -> bytes:
    """The object file of a C source. Raises `BuildError` with the compiler's words."""
    headers = [f"-I{Path(m.__file__).parent / 'include'}" for m in (tvm, tvm_ffi)]
    flags = [*_FLAGS, *_machine(target)]
    with tempfile.TemporaryDirectory() as folder:
        text, code = Path(folder) / "kernel.c", Path(folder) / "kernel.o"
        text.write_text(source)
        find_compiler(target.triple).run(*flags, *headers, "-c", text, "-o", code)
        return code.read_bytes()
