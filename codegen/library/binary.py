"""A shared object of ours in this process: its table of entry points, its threads, its end."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loopwright.codegen.library.linker import TABLE
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import BuildError, ConfigError, LibraryError, LoopwrightError

ABI = 1
"""LW_ABI of runtime.h."""

MAX_THREADS = 256
"""LW_MAX_THREADS of runtime.h."""

# Kinds of DLPack types.
DTYPE_CODES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), 0),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), 1),
    **dict.fromkeys(("float16", "float32", "float64"), 2),
    "bfloat16": 4,
    "bool": 6,
}

_OUTSIDE = 10
_STATUS = {
    1: "a pointer is null",
    2: "a pointer is not aligned to the size of its element type",
    3: "no memory for the temporary arrays of the kernel",
    4: "a number is out of range",
    9: "an output overlaps an input or another output",
    _OUTSIDE: "an input has an index that is outside of what it indexes",
}


class _Parameter(ctypes.Structure):
    _fields_ = (
        ("elements", ctypes.c_int64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("reserved", ctypes.c_uint32),
    )


class _Function(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("count", ctypes.c_int32),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("max_arguments", ctypes.c_uint32),
        ("main", ctypes.c_void_p),
        ("prepare", ctypes.c_void_p),
        ("call", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
        (
            "repeat",
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                ctypes.c_void_p,
                ctypes.c_void_p,
                ctypes.c_int64,
                ctypes.POINTER(ctypes.c_int64),
                ctypes.POINTER(ctypes.c_int64),
            ),
        ),
        ("set_threads", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
        ("threads", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("pool", ctypes.c_void_p),
        ("borrow", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


class Binary:
    """A loaded shared object; unloaded when nothing refers to it any more.

    The first one of a process lends its thread pool and its cache of workspaces to all later
    ones, and stays loaded for good: many libraries in one process share their threads, and a
    library that is loaded, run once and dropped starts none.
    """

    def __init__(self, path: Path, functions: dict[str, Sequence[Parameter]]) -> None:
        """Loads `path`, with the parameters of "main" and "prepare". Raises `LibraryError`."""
        try:
            library = ctypes.CDLL(str(path.absolute()))
        except OSError as error:
            raise LibraryError(f"{path}: the system cannot load it: {error}") from error
        try:
            self.table = _read_table(library, path)
            self._functions = {
                name: self._function(name, parameters, path)
                for name, parameters in functions.items()
            }
            self.addresses = {name: ctypes.addressof(f) for name, f in self._functions.items()}
            """Arguments of the table's `call` and `repeat`, for "main" and "prepare"."""
            self.call = self.table.call
            _share_threads(self)
        except LoopwrightError:
            _dlclose(library._handle)
            raise
        if _pool_host is not self:
            weakref.finalize(self, _dlclose, library._handle).atexit = False

    def _function(self, name: str, parameters: Sequence[Parameter], path: Path) -> _Function:
        kernel = getattr(self.table, name)
        if not kernel:
            raise LibraryError(f"{path}: it has no function {name!r}, though its signature does")
        return self._packed(name, kernel, parameters)

    def _packed(self, name: str, kernel: int, parameters: Sequence[Parameter]) -> _Function:
        """The function at an address, with its parameters, as the table's `call` takes it."""
        if len(parameters) > self.table.max_arguments:
            raise BuildError(
                f"{name} has {len(parameters)} arguments; {self.table.max_arguments} are allowed"
            )
        packed = (_Parameter * len(parameters))(
            *(
                _Parameter(p.elements, DTYPE_CODES[p.dtype], bits(p.dtype), 1, 0)
                for p in parameters
            )
        )
        return _Function(kernel, packed, len(parameters))

    @property
    def threads(self) -> int:
        """Number of threads of a call, the caller's included."""
        return int(self.table.threads())

    @threads.setter
    def threads(self, count: int) -> None:
        whole = isinstance(count, int) and not isinstance(count, bool)
        if not whole or not 1 <= count <= MAX_THREADS or self.table.set_threads(count):
            raise ConfigError(
                f"threads is {count!r}; it must be an integer from 1 to {MAX_THREADS}"
            )


class _Part(ctypes.Structure):
    """lw_part of runtime.h."""

    _fields_ = (
        ("times", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("first", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("held", ctypes.c_void_p),
    )


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor; a plan reads its first member."""

    _fields_ = (("data", ctypes.c_void_p), ("rest", ctypes.c_byte * 40))


class _Any(ctypes.Structure):
    """lw_any of runtime.h."""

    _fields_ = (("kind", ctypes.c_int32), ("pad", ctypes.c_uint32), ("value", ctypes.c_void_p))


_MAIN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)


class PartialCall:
    """A call of a plan's `main`, of which parts run one by one.

    The arrays at `addresses` are in the order of the signature and must live as long.
    """

    def __init__(
        self, binary: Binary, addresses: Sequence[int], extents: Mapping[str, Any] | None = None
    ) -> None:
        self._binary, self._extents = binary, extents
        self._tensors = [_Tensor(data=at) for at in addresses]
        self._packed = (_Any * len(addresses))(
            *(_Any(7, 0, ctypes.addressof(tensor)) for tensor in self._tensors)
        )
        self._main = _MAIN(binary.table.main)

    def __call__(
        self, first: int, stop: int, arena: int | None = None, times: Any = None
    ) -> int | None:
        """Run the entries from `first` to before `stop`, over an arena at that address or one of
        the call's own. `times` gets the nanoseconds of each entry added.

        Returns the address of the weights that the library holds for another device, if any.
        Raises `LibraryError` where the call fails.
        """
        at = None if times is None else ctypes.addressof(times)
        part = _Part(at, arena, first, stop)
        count = len(self._tensors)
        status = self._main(ctypes.addressof(part), self._packed, count, ctypes.byref(_Any()))
        raise_for(status, self._extents)
        held: int | None = part.held
        return held


def bits(dtype: str) -> int:
    """Bits of one element in memory."""
    return 8 * item_bytes(dtype)


def raise_for(status: int, extents: Mapping[str, Any] | None = None) -> None:
    """Raises `LibraryError` unless a call's status is 0; `extents` are of the axes indexed."""
    if not status:
        return
    said = _STATUS.get(status, f"status {status}")
    if status == _OUTSIDE:
        said += "".join(f"; {name} takes {_range(n)}" for name, n in (extents or {}).items())
    raise LibraryError(f"the call failed: {said}")


def _range(extent: Any) -> str:
    if isinstance(extent, int):
        return f"-{extent} to {extent - 1}"
    return f"what indexes {extent} elements"


def _read_table(library: ctypes.CDLL, path: Path) -> Any:
    try:
        table = _Table.in_dll(library, TABLE)
    except ValueError:
        raise LibraryError(f"{path}: it was not made by Loopwright") from None
    if table.abi != ABI:
        raise LibraryError(
            f"{path}: its run-time has version {table.abi}, this one reads {ABI}; "
            "export it anew with this version of Loopwright"
        )
    return table


_pool_host: Binary | None = None
_pool_lock = threading.Lock()


def _share_threads(binary: Binary) -> None:
    global _pool_host
    with _pool_lock:
        if _pool_host is None:
            _pool_host = binary
        else:
            binary.table.borrow(_pool_host.table.pool)


def thread_pool(default: Binary) -> Any:
    """Address of the pool that libraries of this process share."""
    with _pool_lock:
        return (_pool_host or default).table.pool


_dlclose = ctypes.CDLL(None).dlclose
_dlclose.argtypes = (ctypes.c_void_p,)
