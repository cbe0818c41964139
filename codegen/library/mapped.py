"""Built-in code in this process without a linker: pages of code, beside a run-time that is shared.

The code is copied to pages that can be written, which then can be executed and not written any
more. Its calls of the run-time go through a few instructions behind it, and those through a page
of data: addresses in the pool, and the number of threads of this library alone.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import weakref
from collections.abc import Sequence
from typing import Any

from loopwright.codegen.library.binary import MAX_THREADS, Binary, thread_pool
from loopwright.codegen.library.linker import host_library
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.errors import BuildError, ConfigError

MARK = ".loopwright.builtin"
"""Name of the section that an object file of built-in code has."""

_RELOCATABLE = b"\1\0"  # the kind of an ELF file; a linker may keep the mark
_CHUNKS = 32  # of each thread, as in base.c
_PAGE = 4096
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE, _ANONYMOUS = 2, 0x20
_SLOTS = {"allocate": 0, "release": 8, "run": 16, "threads": 24, "chunks": 32}  # of the data page

# What stands for functions of base.h; each "{slot}" is a displacement to the data page.
_BRIDGES: dict[str, tuple[bytes | str, ...]] = {
    "lw_allocate": (  # allocate(1, 0, bytes, 0, 8)
        bytes.fromhex("4889fa bf01000000 31f6 31c9 41b808000000 ff25"),
        "allocate",
    ),
    "lw_release": (bytes.fromhex("4889fa bf01000000 31f6 ff25"), "release"),
    "lw_parallel": (  # run(task, data, threads, min(iterations, chunks))
        bytes.fromhex("8b0d"),
        "chunks",
        bytes.fromhex("4839d1 480f4fca 8b15"),
        "threads",
        bytes.fromhex("ff25"),
        "run",
    ),
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def is_builtin(code: bytes) -> bool:
    """Return whether a file is an object file of built-in code."""
    relocatable = code[:4] == b"\x7fELF" and code[16:18] == _RELOCATABLE
    return relocatable and MARK.encode() in code


class _Pool(ctypes.Structure):
    _fields_ = (
        ("run", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
    )


class MappedBinary(Binary):
    """Built-in code in pages of its own; unmapped when nothing refers to it any more."""

    def __init__(self, code: bytes, functions: dict[str, Sequence[Parameter]]) -> None:
        """Maps an object file that `is_builtin`. `functions` are as for `Binary`. Raises
        `BuildError` where pages cannot be had."""
        self._host = _runtime()
        self.table = self._host.table
        self.call = self.table.call
        text, symbols, calls = _read(code)
        pool = ctypes.cast(thread_pool(self._host), ctypes.POINTER(_Pool))[0]
        self._data, base = self._map(text, calls, pool)
        self._kernels = {name: base + symbols[f"__tvm_ffi_{name}"] for name in functions}
        self._functions = {
            name: self._packed(name, self._kernels[name], parameters)
            for name, parameters in functions.items()
        }
        self.addresses = {name: ctypes.addressof(f) for name, f in self._functions.items()}
        self._threads = 0
        self.threads = 1

    def _map(self, text: bytes, calls: list[tuple[int, str]], pool: Any) -> tuple[int, int]:
        """Pages with the code; the addresses of the data page and of the code."""
        bridges, places = bytearray(text), {}
        size = len(text) + 64 * len(_BRIDGES)
        size += -size % _PAGE
        for name, parts in _BRIDGES.items():
            places[name] = len(bridges)
            for part in parts:
                if isinstance(part, bytes):
                    bridges += part
                else:
                    bridges += struct.pack("<i", size + _SLOTS[part] - len(bridges) - 4)
        for at, name in calls:
            struct.pack_into("<i", bridges, at, places[name] - at - 4)
        base = _libc.mmap(None, size + _PAGE, _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise BuildError("the system has no memory for code")
        weakref.finalize(self, _libc.munmap, base, size + _PAGE).atexit = False
        ctypes.memmove(base, bytes(bridges), len(bridges))
        for slot in ("allocate", "release", "run"):
            ctypes.c_void_p.from_address(base + size + _SLOTS[slot]).value = getattr(pool, slot)
        if _libc.mprotect(base, size, _READ | _EXECUTE):
            raise BuildError("the system does not let code be executed that was made just now")
        return base + size, base

    @property
    def threads(self) -> int:
        """Number of threads of a call, the caller's included."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        whole = isinstance(count, int) and not isinstance(count, bool)
        if not whole or not 1 <= count <= MAX_THREADS:
            raise ConfigError(
                f"threads is {count!r}; it must be an integer from 1 to {MAX_THREADS}"
            )
        self._threads = count
        chunks = count * _CHUNKS if count > 1 else 1
        for slot, value in (("threads", count), ("chunks", chunks)):
            ctypes.c_int64.from_address(self._data + _SLOTS[slot]).value = value


@functools.cache
def _runtime() -> Binary:
    """The run-time of all mapped code of this process."""
    return Binary(host_library(), {})


def _read(code: bytes) -> tuple[bytes, dict[str, int], list[tuple[int, str]]]:
    """The code of an object file, its functions, and the places of calls with whom they call."""
    table, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + 64 * n) for n in range(count)]
    bytes_of = [code[s[4] : s[4] + s[5]] for s in sections]
    text, relocations, symbols, names = bytes_of[1:5]
    found: list[tuple[str, int, int]] = []
    for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
        found.append((names[name : names.index(0, name)].decode(), section, value))
    calls = [(at, found[info >> 32][0]) for at, info, _ in struct.iter_unpack("<QQq", relocations)]
    return text, {name: value for name, section, value in found if section == 1}, calls
