"""The roofline of an NVIDIA GPU, from what the driver tells of it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from loopwright.measure.roofline import Roofline

# CUdevice_attribute, as the driver's API numbers them.
_CLOCK, _MULTIPROCESSORS, _MEMORY_CLOCK, _BUS, _MAJOR, _MINOR = 13, 16, 36, 37, 75, 76

# Operations that a multiprocessor does in a cycle, by compute capability: multiply-adds in float32
# count two (CUDA Programming Guide, "Arithmetic Instructions"), as do those of tensor cores in
# float16, summed in float32 (peaks in the architectures' white papers over processors and clock;
# GeForce cards sum at half of that).
_SINGLE = {"7.0": 128, "7.2": 128, "7.5": 128, "8.0": 128, "8.6": 256, "8.7": 256, "8.9": 256,
           "9.0": 256, "10.0": 256, "10.3": 256, "12.0": 256}  # fmt: skip
_HALF = {"7.0": 1024, "7.2": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.9": 1024,
         "9.0": 4096, "10.0": 8192, "12.0": 1024}  # fmt: skip


class NoGpuError(Exception):
    """There is no GPU here, or no driver."""


@dataclass(frozen=True)
class GpuLimits:
    """What a GPU can do at most: operations a second by type, bytes of its memory a second; at
    the highest clocks, which it need not hold. Not a number where that is not known."""

    name: str
    arch: str
    flops: dict[str, float]
    bandwidth: float

    def roofline(self, dtype: str) -> Roofline:
        """For rows whose factors are of a type."""
        return Roofline(self.flops.get(dtype, float("nan")), self.bandwidth, 1)


def gpu_limits() -> GpuLimits:
    """Of the first GPU. Raises `NoGpuError`."""
    driver, device = _first()

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _checked(driver.cuDeviceGetAttribute(ctypes.byref(value), number, device))
        return value.value

    label = ctypes.create_string_buffer(256)
    _checked(driver.cuDeviceGetName(label, 256, device))
    major, minor = attribute(_MAJOR), attribute(_MINOR)
    cycles = attribute(_MULTIPROCESSORS) * attribute(_CLOCK) * 1e3  # clocks are in kHz
    found = {"float32": _SINGLE, "float16": _HALF}
    capability, nan = f"{major}.{minor}", float("nan")
    return GpuLimits(
        label.value.decode(),
        f"sm_{major}{minor}",
        {dtype: table.get(capability, nan) * cycles for dtype, table in found.items()},
        2 * attribute(_MEMORY_CLOCK) * 1e3 * attribute(_BUS) / 8,  # two transfers a cycle
    )


def _first() -> tuple[Any, int]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as missing:
        raise NoGpuError("there is no NVIDIA driver (libcuda.so.1) here") from missing
    device = ctypes.c_int()
    _checked(driver.cuInit(0))
    _checked(driver.cuDeviceGet(ctypes.byref(device), 0))
    return driver, device.value


def _checked(status: int) -> None:
    if status:
        raise NoGpuError(f"the driver finds no GPU that can be used (error {status})")
