"""OpenCL devices, by pyopencl: AMD's, Intel's, NVIDIA's, and PoCL's on any processor."""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loopwright.codegen.devices.code import GpuCode, Plan
from loopwright.codegen.devices.device import DeviceProgram, Memory
from loopwright.codegen.library.arrays import Array, as_bytes
from loopwright.dsl.errors import BuildError, DeviceLostError, LibraryError, TargetError
from loopwright.packages import optional

_NO_DEVICE = (
    "OpenCL finds no device: install the driver of your GPU, or, to try programs out on the "
    "processor, PoCL (Debian: apt-get install pocl-opencl-icd)"
)
_FLUSH_BYTES = 64 << 20  # where the device does not tell the size of its cache


def package() -> Any:
    """pyopencl. Raises `TargetError` where it is missing."""
    return optional("pyopencl", 'target="opencl"', TargetError)


@functools.cache
def device() -> Any:
    """The first GPU that programs run on, or else the first device. Raises `TargetError`."""
    cl = package()
    try:
        found = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    except cl.Error as error:
        raise TargetError(f"{_NO_DEVICE} ({error})") from error
    if not found:
        raise TargetError(_NO_DEVICE)
    return next((d for d in found if d.type & cl.device_type.GPU), found[0])


@functools.cache
def _context() -> Any:
    return package().Context([device()])


class OpenClProgram(DeviceProgram):
    """OpenCL source, compiled for `device()`."""

    def __init__(self, code: GpuCode) -> None:
        self.code, self._cl = code, package()
        self._lock = threading.Lock()
        self._workspaces: dict[str, list[Memory]] = {}
        self._eraser: Memory | None = None
        with _failures():
            profiling = self._cl.command_queue_properties.PROFILING_ENABLE
            self._queue = self._cl.CommandQueue(_context(), properties=profiling)
        self._kernels = _compiled(code.image.decode())

    def on(self, device: int) -> OpenClProgram:
        assert not device, "one device is used"
        return self

    def in_order_of(self, other: DeviceProgram) -> OpenClProgram:
        assert isinstance(other, OpenClProgram)
        if other._queue is self._queue:
            return self
        made = copy.copy(self)
        made._queue, made._workspaces, made._eraser = other._queue, {}, None
        return made

    def allocate(self, nbytes: int) -> Memory:
        with _failures():
            return self._cl.Buffer(_context(), self._cl.mem_flags.READ_WRITE, max(nbytes, 1))

    def write(self, memory: Memory, array: Array) -> None:
        with _failures():
            self._cl.enqueue_copy(self._queue, memory, as_bytes(array), is_blocking=True)

    def read(self, memory: Memory, array: Array) -> None:
        with _failures():
            self._cl.enqueue_copy(self._queue, as_bytes(array), memory, is_blocking=True)

    def run(self, function: str, arguments: Sequence[Memory], stream: int | None = None) -> None:
        assert stream is None, "streams are CUDA's"
        self._start(function, arguments)

    def repeat(self, function: str, arguments: Sequence[Memory], times: int) -> float:
        with _failures():
            # Each kernel's own time: between them the queue of a processor may rest.
            events = [e for _ in range(times) for e in self._start(function, arguments)]
            if events:  # there are none where nothing has elements
                self._cl.wait_for_events(events)
            nanoseconds: int = sum(e.profile.end - e.profile.start for e in events)
        return nanoseconds * 1e-9

    def flush(self) -> None:
        size = max(2 * device().global_mem_cache_size, _FLUSH_BYTES)
        if self._eraser is None:
            self._eraser = self.allocate(size)
        with _failures():
            self._cl.enqueue_fill_buffer(self._queue, self._eraser, np.uint8(0), 0, size).wait()

    def finish(self) -> None:
        with _failures():
            self._queue.finish()

    def _start(self, function: str, arguments: Sequence[Memory]) -> list[Any]:
        """The events of the kernels. A kernel's arguments are its own state, hence the lock."""
        plan = self.code.functions[function]
        events = []
        with self._lock, _failures():
            memory = [*arguments, *self._workspaces_of(function, plan)]
            for launch in plan.launches:
                kernel = self._kernels[launch.kernel]
                kernel.set_args(*(memory[i] for i in launch.arguments))
                size = (launch.grid * launch.block,)
                events.append(
                    self._cl.enqueue_nd_range_kernel(self._queue, kernel, size, (launch.block,))
                )
            self._queue.flush()
        return events

    def _workspaces_of(self, function: str, plan: Plan) -> list[Memory]:
        # One set serves all calls, since the queue does one after the other.
        if function not in self._workspaces:
            self._workspaces[function] = [self.allocate(size) for size in plan.workspaces]
        return self._workspaces[function]


def _compiled(source: str) -> dict[str, Any]:
    """The kernels by name; the same text is compiled once as long as it is in use."""
    cl = package()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what compilers print when all is well
            program = cl.Program(_context(), source).build(options=["-cl-std=CL1.2"])
            return {kernel.function_name: kernel for kernel in program.all_kernels()}
    except cl.Error as error:
        raise BuildError(f"{device().name} could not compile the kernels: {error}") from error


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    cl = package()
    try:
        yield
    except cl.MemoryError as error:
        raise LibraryError(
            f"no memory on {device().name} ({device().global_mem_size >> 20} MiB): {error}"
        ) from error
    except cl.Error as error:
        raise DeviceLostError(f"{device().name} failed: {error}") from error
