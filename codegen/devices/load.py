"""The code of a library, loaded by the driver of its language."""

from __future__ import annotations

from loopwright.codegen.devices.code import GpuCode
from loopwright.codegen.devices.device import DeviceProgram
from loopwright.dsl.errors import LibraryError


def load_program(code: GpuCode) -> DeviceProgram:
    """The code, on this machine's first device for its language.

    Raises `TargetError` where there is no such device, driver or package, `BuildError` where the
    driver cannot compile the code, `LibraryError` where it is for another device.
    """
    if code.language == "opencl":
        from loopwright.codegen.devices.opencl import OpenClProgram

        return OpenClProgram(code)
    if code.language == "cuda":
        from loopwright.codegen.devices.cuda import CudaProgram

        return CudaProgram(code)
    raise LibraryError(f"there is no driver for {code.language!r}")
