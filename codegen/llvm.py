"""LLVM's knowledge of processors, asked of TVM's library by its C interface (tvm/ffi/c_api.h).

The library is there in a tenth of a second. The Python package of TVM takes seconds to import,
half of them for torch where that is installed, and a search needs no more of it than this.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

_INTEGER, _RAW_TEXT, _SHORT_TEXT = 1, 8, 11  # kTVMFFIInt, kTVMFFIRawStr, kTVMFFISmallStr
_TEXT_AT = 24  # bytes of a string or an error before its first TVMFFIByteArray


class _Bytes(ctypes.Structure):
    """TVMFFIByteArray."""

    _fields_ = (("data", ctypes.POINTER(ctypes.c_char)), ("size", ctypes.c_size_t))


class _Any(ctypes.Structure):
    """TVMFFIAny."""

    _fields_ = (("kind", ctypes.c_int32), ("length", ctypes.c_uint32), ("value", ctypes.c_int64))


def system_cpu() -> str:
    """Name of this machine's processor."""
    return _text(_call("target.llvm_get_system_cpu"))


def processors(triple: str) -> frozenset[str]:
    """Names of the processors of a triple."""
    names = _call("target.llvm_get_cpu_archlist", _target(triple, "", ()))
    count = _call("ffi.ArraySize", names).value
    return frozenset(_text(_call("ffi.ArrayGetItem", names, n)) for n in range(count))


def features_among(
    wanted: Collection[str], triple: str, mcpu: str, features: tuple[str, ...]
) -> set[str]:
    """Features that code for a processor may use, of those `wanted`."""
    target = _target(triple, mcpu, features)
    return {f for f in wanted if _call("target.target_has_feature", f, target).value}


def target_config(triple: str, mcpu: str, features: tuple[str, ...]) -> dict[str, Any]:
    """A target in TVM's form."""
    config: dict[str, Any] = {"kind": "llvm", "mtriple": triple, "num-cores": 1}
    if mcpu:
        config["mcpu"] = mcpu
    if features:
        config["mattr"] = list(features)
    return config


@functools.cache
def _target(triple: str, mcpu: str, features: tuple[str, ...]) -> _Any:
    """TVM's object of a target, which stays."""
    return _call("target.Target", json.dumps(target_config(triple, mcpu, features)))


@functools.cache
def _library() -> ctypes.CDLL:
    """What calls TVM's functions, once they are there."""
    try:
        ffi = ctypes.CDLL(str(_folder("tvm_ffi") / "lib/libtvm_ffi.so"))
        ctypes.CDLL(str(_folder("tvm") / "lib/libtvm_compiler.so"))
    except OSError:  # one that was built elsewhere: it knows where its libraries are
        import tvm  # noqa: F401
        import tvm_ffi

        ffi = tvm_ffi.LIB
    return ffi


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise OSError(f"there is no package {package}")
    return Path(found.origin).parent


@functools.cache
def _function(name: str) -> ctypes.c_void_p:
    text, function = ctypes.create_string_buffer(name.encode()), ctypes.c_void_p()
    given = _Bytes(text, len(name))
    _library().TVMFFIFunctionGetGlobal(ctypes.byref(given), ctypes.byref(function))
    if not function:
        raise LookupError(f"this TVM has no function {name}")
    return function


def _call(name: str, *arguments: _Any | str | int) -> _Any:
    """The result of a function of TVM's; one that is an object is never freed."""
    texts = [ctypes.create_string_buffer(a.encode()) for a in arguments if isinstance(a, str)]
    left = iter(texts)
    given = (_Any * len(arguments))()
    for n, argument in enumerate(arguments):
        if isinstance(argument, str):
            given[n] = _Any(_RAW_TEXT, 0, ctypes.addressof(next(left)))
        else:
            given[n] = argument if isinstance(argument, _Any) else _Any(_INTEGER, 0, argument)
    result = _Any()
    if _library().TVMFFIFunctionCall(_function(name), given, len(given), ctypes.byref(result)):
        raise ValueError(_raised())
    return result


def _raised() -> str:
    """The message of the error that a function ended with."""
    error = ctypes.c_void_p()
    _library().TVMFFIErrorMoveFromRaised(ctypes.byref(error))
    # A TVMFFIErrorCell: its kind, then its message.
    held = _Bytes.from_address((error.value or 0) + _TEXT_AT + ctypes.sizeof(_Bytes))
    return ctypes.string_at(held.data, held.size).decode(errors="replace")


def _text(value: _Any) -> str:
    if value.kind == _SHORT_TEXT:
        return ctypes.string_at(ctypes.addressof(value) + _Any.value.offset, value.length).decode()
    held = _Bytes.from_address(value.value + _TEXT_AT)
    return ctypes.string_at(held.data, held.size).decode()
