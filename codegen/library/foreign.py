"""Arrays of other packages that lie on a GPU: torch's and CuPy's, by DLPack.

DLPack's structures are part of its published interface (dlpack.h, version 0 of the capsules,
which all packages still hand out on request): a capsule named "dltensor" holds a DLManagedTensor,
whose first field is the DLTensor.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.codegen.library.binary import DTYPE_CODES, bits
from loopwright.codegen.library.signature import Parameter
from loopwright.dsl.errors import ShapeError
from loopwright.dsl.words import brief

GPU_ALIGNMENT = 16
"""Bytes at which every array that a kernel is given begins."""

_CUDA = 2  # kDLCUDA
_NAMES = {(code, bits(name)): name for name, code in DTYPE_CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Taken:
    """Memory of the GPU: where it begins, how long it is, and what keeps it alive."""

    address: int
    nbytes: int
    keep: Any


def on_gpu(value: Any) -> bool:
    """Return whether an array lies on an NVIDIA GPU."""
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and not isinstance(value, np.ndarray) and device()[0] == _CUDA


@dataclass(frozen=True)
class Package:
    """The package whose arrays are used: "torch" or "cupy", and the number of the GPU."""

    name: str
    device: int

    def stream(self) -> int:
        """The handle of its current stream."""
        if self.name == "torch":
            return int(sys.modules["torch"].cuda.current_stream(self.device).cuda_stream)
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)

    def empty(self, parameter: Parameter) -> Any:
        """A new array on the GPU. Raises `ShapeError` for a type that the package has not."""
        module = sys.modules[self.name]
        dtype = getattr(module, "bool_" if parameter.dtype == "bool" else parameter.dtype, None)
        if self.name == "torch":
            dtype = getattr(module, parameter.dtype)
            return module.empty(parameter.shape, dtype=dtype, device=f"cuda:{self.device}")
        if dtype is None:
            raise ShapeError(f"{parameter.name} is of {parameter.dtype}, which CuPy has not")
        with module.cuda.Device(self.device):
            return module.empty(parameter.shape, dtype=dtype)


def package_of(values: Iterable[Any]) -> Package | None:
    """The package of arrays on a GPU, None where none is. Raises `ShapeError` for several GPUs, or
    an unknown package."""
    found = {
        Package(type(value).__module__.split(".")[0], int(value.__dlpack_device__()[1]))
        for value in values
        if on_gpu(value)
    }
    if len({package.device for package in found}) > 1:
        raise ShapeError("the arrays lie on several GPUs; move them to one")
    for package in sorted(found, key=lambda p: p.name, reverse=True):
        if package.name in ("torch", "cupy"):
            return package
    if found:
        names = ", ".join(p.name for p in found)
        raise ShapeError(f"arrays of {names} on the GPU are not supported; use torch's or CuPy's")
    return None


def taken(value: Any, parameter: Parameter, stream: int) -> Taken:
    """An array on the GPU as memory that kernels on `stream` may use. Raises `ShapeError`."""
    if not on_gpu(value):
        raise ShapeError(f"{parameter.name} is {brief(value)}; give an array that is on the GPU")
    detach = getattr(value, "detach", None)  # torch exports no tensor that wants gradients
    if detach and value.is_neg():  # of which DLPack hands out the memory as it is
        raise ShapeError(f"{parameter.name} is negated when it is read: give .resolve_neg() of it")
    # DLPack writes CUDA's default stream as 1.
    capsule = (detach() if detach else value).__dlpack__(stream=stream or 1)
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.rank])
    dtype = _NAMES.get((tensor.code, tensor.bits))
    if dtype != parameter.dtype or tensor.lanes != 1:
        found = dtype or f"of DLPack's type {tensor.code}, {tensor.bits} bits"
        raise ShapeError(f"{parameter.name} has dtype {found}; it must be {parameter.dtype}")
    if shape != parameter.shape:
        raise ShapeError(
            f"{parameter.name} has shape {shape}; the library was built for {parameter.shape}"
        )
    if tensor.strides and not _dense(shape, tensor.strides[: tensor.rank]):
        raise ShapeError(f"{parameter.name} is not dense in C order; make it contiguous first")
    address = (tensor.data or 0) + tensor.byte_offset
    if address % GPU_ALIGNMENT:
        raise ShapeError(
            f"{parameter.name} begins at an address that is no multiple of {GPU_ALIGNMENT} bytes, "
            "as a slice of another array does; copy it first"
        )
    return Taken(address, parameter.nbytes, capsule)


def check_apart(written: Iterable[Taken], read: Iterable[Taken]) -> None:
    """Raises `ShapeError` where an output overlaps an input or another output."""
    seen = list(read)
    for one in written:
        for other in seen:
            if one.address < other.address + other.nbytes and (
                other.address < one.address + one.nbytes
            ):
                raise ShapeError("an output overlaps another argument; give another array")
        seen.append(one)


def host_copy(value: Any) -> Any:
    """An array on the GPU as a NumPy array."""
    if type(value).__module__.split(".")[0] == "torch":
        return value.detach().cpu()
    return value.get()


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
