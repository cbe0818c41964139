"""The worker as a program for another machine.

It loads candidates by `dlopen`, which asks for a C library that is loaded itself: a static program
cannot do that. So the worker is linked with the libraries of glibc there, from version 2.17 on
(`worker/start.h`), and carries nothing else. It takes 30 KB on x86-64 and 70 KB on AArch64, and is
made by the C compiler that exports use.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from loopwright.codegen.library.linker import RUNTIME, cached_file, find_compiler

_SOURCES = Path(__file__).parent / "worker"
_OPTIONS = ("-std=gnu11", "-Os", "-fPIE", "-pie", "-s", "-fno-stack-protector", "-nostartfiles")
# Candidates find functions of mathematics and of threads in the process; before glibc 2.34 these
# had libraries of their own.
_LIBRARIES = ("-Wl,--no-as-needed", "-lm", "-l:libdl.so.2", "-l:libpthread.so.0")

ARCHITECTURES = ("x86_64", "aarch64")
"""Processor families that workers are made for, as `uname -m` names them."""


@dataclass(frozen=True)
class Program:
    """A worker, and the hash of its bytes."""

    code: bytes
    sha256: str


def triple_of(architecture: str) -> str:
    """LLVM's target triple of Linux on a family of processors."""
    return f"{architecture}-unknown-linux-gnu"


@functools.cache
def worker_program(architecture: str) -> Program:
    """The worker of a family of processors. Raises `BuildError` without a C compiler for it."""
    compiler = find_compiler(triple_of(architecture))
    sources = sorted(_SOURCES.glob("*.[ch]"))
    texts = (p.read_text() for p in (*sources, RUNTIME / "runtime.h", RUNTIME / "base.h"))

    def make(path: Path) -> None:
        options = (*_OPTIONS, "-I", RUNTIME, "-o", path)
        compiler.run(*options, _SOURCES / "worker.c", *_LIBRARIES)

    parts = (compiler.identity, *_OPTIONS, *_LIBRARIES, *texts)
    code = cached_file(parts, ".worker", make).read_bytes()
    return Program(code, hashlib.sha256(code).hexdigest())
