"""CUDA programs: the launcher's calls, as a `DeviceProgram`."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import c_double, c_int32, c_uint64
from typing import Any

from loopwright.codegen.devices import cuda_driver as driver
from loopwright.codegen.devices.code import GpuCode, Plan
from loopwright.codegen.devices.device import DeviceProgram
from loopwright.codegen.library import arrays
from loopwright.codegen.library.arrays import Array

_NUMBERS = {"main": driver.MAIN, "prepare": driver.PREPARE}
_MIB = 1 << 20


class CudaMemory:
    """A block of the GPU's memory, freed with this object."""

    def __init__(self, launcher: driver.Launcher, device: int, nbytes: int) -> None:
        """Raises `LibraryError` where there is no such block left."""
        pointer = c_uint64()
        launcher.check(launcher.table.allocate(device, nbytes, ctypes.byref(pointer)))
        self.address = pointer.value
        weakref.finalize(self, launcher.table.release, device, self.address).atexit = False


class CudaProgram(DeviceProgram):
    """The kernels of a cubin or fat binary on one GPU."""

    def __init__(
        self, code: GpuCode, launcher: driver.Launcher | None = None, device: int = 0
    ) -> None:
        """A program of the kernels of an exported library's `launcher`, or else of `code`."""
        self.code, self._device = code, device
        self._launcher = launcher or driver.own_launcher()
        if launcher is None:
            self._library, self._keep = _library_of(code)
            self._pointer = ctypes.pointer(self._library)
        else:
            self._pointer = launcher.table.own
        self._eraser: CudaMemory | None = None
        table = self._launcher.table
        self._launcher.check(table.load(self._pointer, device))
        if launcher is None:  # a file's kernels serve all that loaded it
            kept = (self._launcher, self._library, self._keep)
            weakref.finalize(self, _unload, table, self._pointer, kept).atexit = False

    def on(self, device: int) -> CudaProgram:
        """The same kernels on another GPU of this machine."""
        if device == self._device:
            return self
        other = object.__new__(CudaProgram)
        other.__dict__.update(self.__dict__, _device=device, _eraser=None, _first=self)
        return other

    def in_order_of(self, other: DeviceProgram) -> CudaProgram:
        return self  # all start on the default stream

    def allocate(self, nbytes: int) -> CudaMemory:
        return CudaMemory(self._launcher, self._device, nbytes)

    def write(self, memory: Any, array: Array) -> None:
        table, at = self._launcher.table, arrays.address(array)
        self._check(table.upload(self._device, _address(memory), at, array.nbytes))

    def read(self, memory: Any, array: Array) -> None:
        table, at = self._launcher.table, arrays.address(array)
        self._check(table.download(self._device, at, _address(memory), array.nbytes))

    def run(self, function: str, arguments: Sequence[Any], stream: int | None = None) -> None:
        table, pointers = self._launcher.table, _pointers(arguments)
        number = _NUMBERS[function]
        self._check(table.call(self._pointer, self._device, number, pointers, stream))

    def repeat(self, function: str, arguments: Sequence[Any], times: int) -> float:
        seconds, pointers = c_double(), _pointers(arguments)
        self._check(
            self._launcher.table.repeat(
                self._pointer,
                self._device,
                _NUMBERS[function],
                pointers,
                times,
                ctypes.byref(seconds),
            )
        )
        return seconds.value

    def flush(self) -> None:
        size = max(2 * driver.facts(self._device).l2_bytes, 64 * _MIB)
        if self._eraser is None:
            self._eraser = self.allocate(size)
        self._check(self._launcher.table.erase(self._device, self._eraser.address, size))

    def finish(self) -> None:
        self._check(self._launcher.table.finish(self._device))

    def _check(self, status: int) -> None:
        if status:
            self._launcher.check(status)


def _unload(table: Any, library: Any, kept: Any) -> None:
    table.unload(library)
    del kept  # what it points to, until now


def _address(memory: Any) -> int:
    return memory if isinstance(memory, int) else int(memory.address)


def _pointers(arguments: Sequence[Any]) -> Any:
    return (c_uint64 * len(arguments))(*map(_address, arguments))


def _library_of(code: GpuCode) -> tuple[driver.CLibrary, list[Any]]:
    """The launcher's description of a library, and what it points to."""
    keep: list[Any] = []
    made = driver.CLibrary()
    made.image = code.image
    for name, plan in code.functions.items():
        made.functions[_NUMBERS[name]] = _plan(plan, keep)
    return made, keep


def _plan(plan: Plan, keep: list[Any]) -> driver.CPlan:
    launches = (driver.CLaunch * max(len(plan.launches), 1))()
    for made, launch in zip(launches, plan.launches):
        numbers = (c_int32 * max(len(launch.arguments), 1))(*launch.arguments)
        keep.append(numbers)
        made.kernel = launch.kernel.encode()
        made.grid, made.block, made.shared = launch.grid, launch.block, launch.shared_bytes
        made.count, made.arguments = len(launch.arguments), numbers
    sizes = (c_uint64 * max(len(plan.workspaces), 1))(*plan.workspaces)
    keep += [launches, sizes]
    return driver.CPlan(plan.pointers, len(plan.launches), len(plan.workspaces), launches, sizes)
