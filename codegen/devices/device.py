"""`DeviceProgram`: the code of a library on a GPU. The contract between `GpuLibrary` and the
drivers, which are OpenCL's (`opencl.py`) and CUDA's (`cuda.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from loopwright.codegen.devices.code import GpuCode
from loopwright.codegen.library.arrays import Array

Memory = Any
"""A block of memory of the device: whatever the driver's `allocate` returns. It is freed when
nothing refers to it any more."""


class DeviceProgram(ABC):
    """Loaded kernels, and what it takes to call them.

    Work of one program is done in the order in which it is asked for. Raises `LibraryError` for
    memory that is not there, `DeviceLostError` after a failure that the device does not survive.
    """

    code: GpuCode

    @abstractmethod
    def on(self, device: int) -> DeviceProgram:
        """The same kernels on another device of this machine, by its number."""

    @abstractmethod
    def in_order_of(self, other: DeviceProgram) -> DeviceProgram:
        """The same kernels, whose work is done in one order with that of another program."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """A new block of the device's memory, not initialised."""

    @abstractmethod
    def write(self, memory: Memory, array: Array) -> None:
        """Copies a dense array to the device."""

    @abstractmethod
    def read(self, memory: Memory, array: Array) -> None:
        """Copies from the device into a dense array, when all that was asked for is done."""

    @abstractmethod
    def run(self, function: str, arguments: Sequence[Memory], stream: int | None = None) -> None:
        """Starts a function. Its arguments are in the order of the signature. With `stream`, a
        CUDA stream's handle, it is done in the order of that stream."""

    @abstractmethod
    def repeat(self, function: str, arguments: Sequence[Memory], times: int) -> float:
        """Runs a function `times` times; seconds by the device's own clock."""

    @abstractmethod
    def flush(self) -> None:
        """Makes the device's caches forget what they hold."""

    @abstractmethod
    def finish(self) -> None:
        """Waits until all is done."""
