"""NVIDIA's GPUs, through the launcher (runtime/cuda.c): what there is, memory, and calls."""

from __future__ import annotations

import ctypes
import functools
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright.codegen.library.linker import launcher
from loopwright.dsl.errors import DeviceLostError, LibraryError, LoopwrightError, TargetError
from loopwright.temporary import TemporaryFolder

ABI = 1
"""LW_GPU_ABI of cuda.h."""
MAIN, PREPARE = 0, 1
_LOST = 8

# Numbers of CUdevice_attribute.
_ATTRIBUTES = {
    "multiprocessors": 16,
    "l2_bytes": 38,
    "sm_threads": 39,
    "major": 75,
    "minor": 76,
    "sm_shared_bytes": 81,
    "sm_registers": 82,
    "shared_bytes": 97,
}


class CLaunch(ctypes.Structure):
    """lw_launch of cuda.h."""

    _fields_ = (
        ("kernel", c_char_p),
        ("grid", c_int32),
        ("block", c_int32),
        ("shared", c_int32),
        ("count", c_int32),
        ("arguments", POINTER(c_int32)),
    )


class CPlan(ctypes.Structure):
    """lw_plan of cuda.h."""

    _fields_ = (
        ("pointers", c_int32),
        ("launches", c_int32),
        ("workspaces", c_int32),
        ("launch", POINTER(CLaunch)),
        ("bytes", POINTER(c_uint64)),
    )


class CLibrary(ctypes.Structure):
    """lw_gpu_library of cuda.h."""

    _fields_ = (("image", c_char_p), ("functions", CPlan * 2), ("state", c_void_p))


_Library, _Pointers = POINTER(CLibrary), POINTER(c_uint64)
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("call", c_int, (_Library, c_int, c_int, _Pointers, c_void_p)),
    ("repeat", c_int, (_Library, c_int, c_int, _Pointers, c_int64, POINTER(c_double))),
    ("load", c_int, (_Library, c_int)),
    ("unload", None, (_Library,)),
    ("allocate", c_int, (c_int, c_uint64, POINTER(c_uint64))),
    ("release", None, (c_int, c_uint64)),
    ("upload", c_int, (c_int, c_uint64, c_void_p, c_uint64)),
    ("download", c_int, (c_int, c_void_p, c_uint64, c_uint64)),
    ("erase", c_int, (c_int, c_uint64, c_uint64)),
    ("finish", c_int, (c_int,)),
    ("attribute", c_int, (c_int, c_int, POINTER(c_int))),
    ("name", c_int, (c_int, c_char_p, c_int)),
    ("error", c_char_p, (c_int,)),
    ("detail", c_char_p, ()),
)


class _Table(ctypes.Structure):
    _fields_ = (
        ("abi", c_uint32),
        ("own", POINTER(CLibrary)),
        *((name, ctypes.CFUNCTYPE(result, *arguments)) for name, result, arguments in _FUNCTIONS),
    )


class Launcher:
    """A shared object with the launcher in it: of its own, or an exported library."""

    def __init__(self, path: Path) -> None:
        """Raises `LibraryError` where the file is none of ours."""
        try:
            self._object = ctypes.CDLL(str(path.absolute()))
            self.table = _Table.in_dll(self._object, "loopwright_gpu")
        except (OSError, ValueError) as error:
            raise LibraryError(f"{path}: not a GPU library of Loopwright's: {error}") from error
        if self.table.abi != ABI:
            raise LibraryError(
                f"{path}: its launcher has version {self.table.abi}, this one reads {ABI}; "
                "export it anew with this version of Loopwright"
            )

    def check(self, status: int) -> None:
        """Raises the error of a call's status: `TargetError` where there is no driver or GPU,
        `DeviceLostError` where the context is lost, else `LibraryError`."""
        if status:
            raise self._error(status)

    def _error(self, status: int) -> LoopwrightError:
        text = self.table.error(status).decode()
        detail = self.table.detail().decode("utf-8", "replace")
        kind, remedy = _REMEDIES.get(status, (LibraryError, ""))
        words = f"{text} ({detail})" if detail else text
        return kind(f"{words}{remedy}")


_ELSEWHERE = (
    'compile for another machine with target={"kind": "cuda", "arch": "sm_90"}, or try '
    'target="opencl"'
)
_REMEDIES: dict[int, tuple[type[LoopwrightError], str]] = {
    3: (LibraryError, ": free memory of the GPU, or use smaller arrays"),
    5: (TargetError, f": install the driver of your NVIDIA GPU, or {_ELSEWHERE}"),
    6: (TargetError, f": {_ELSEWHERE}"),
    7: (LibraryError, ": build it for this GPU"),
    _LOST: (DeviceLostError, ""),
}


@functools.cache
def own_launcher() -> Launcher:
    """The launcher that programs use that were not exported. Raises `BuildError` where there is
    no C compiler to make it with."""
    with TemporaryFolder() as folder:
        path = folder / "cuda_launcher.so"
        launcher(path)
        return Launcher(path)


@dataclass(frozen=True)
class Facts:
    """Facts about a GPU from the driver; bytes, and counts."""

    name: str
    arch: str
    multiprocessors: int
    shared_bytes: int
    sm_shared_bytes: int
    sm_threads: int
    sm_registers: int
    l2_bytes: int


@functools.cache
def facts(device: int = 0) -> Facts:
    """Facts about this machine's GPU. Raises `TargetError` where there is none."""
    here, found = own_launcher(), {}
    for attribute, number in _ATTRIBUTES.items():
        value = c_int()
        here.check(here.table.attribute(device, number, ctypes.byref(value)))
        found[attribute] = value.value
    text = ctypes.create_string_buffer(256)
    here.check(here.table.name(device, text, len(text)))
    arch = f"sm_{found.pop('major')}{found.pop('minor')}"
    return Facts(text.value.decode("utf-8", "replace"), arch, **found)
