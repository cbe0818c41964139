"""Identity of a GPU, and of whatever else OpenCL runs on."""

from __future__ import annotations

import functools
import shutil
import subprocess

from loopwright.dsl.errors import LoopwrightError
from loopwright.schedule.target import Target

_QUERY = {
    "gpu": "name",
    "gpu memory": "memory.total",
    "gpu driver": "driver_version",
    "gpu clocks": "clocks.max.sm",
    "gpu memory clock": "clocks.max.mem",
    "gpu power limit": "power.limit",
}
"""Fields of a fingerprint, and what nvidia-smi calls them: what is set, not what is at the moment,
so that a fingerprint stays what it is."""


def name(target: Target) -> str:
    """Name of the device of a GPU's target."""
    found = facts(target)
    known = found.get("gpu", "an unknown GPU")
    return f"{known}, {'CUDA' if target.kind == 'cuda' else 'OpenCL'}"


def facts(target: Target) -> dict[str, str]:
    """Fields of a device's fingerprint for its GPU; none for a processor's target."""
    if target.kind == "cuda":
        return _cuda()
    return _opencl() if target.kind == "opencl" else {}


@functools.cache
def _cuda() -> dict[str, str]:
    """Facts about the GPU that programs run on, as the driver's tool tells. It lists all there
    are, in an order of its own, and those that this process may not see: one of the same name is
    taken."""
    from loopwright.codegen.devices.cuda_driver import facts as of_driver

    try:
        name = of_driver().name
    except LoopwrightError:
        return {}
    for values in _listed():
        found = dict(zip(_QUERY, values))
        if len(values) == len(_QUERY) and found["gpu"] == name:
            return found
    return {"gpu": name}


def _listed() -> list[list[str]]:
    """Facts about every GPU, by the driver's tool; nothing where it is missing, or hangs."""
    tool = shutil.which("nvidia-smi") or ""
    wanted = f"--query-gpu={','.join(_QUERY.values())}"
    try:
        done = subprocess.run(
            [tool, wanted, "--format=csv,noheader"],
            capture_output=True,
            encoding="utf-8",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]


@functools.cache
def _opencl() -> dict[str, str]:
    """Facts about the OpenCL device that programs run on."""
    from loopwright.codegen.devices.opencl import device

    found = device()
    return {
        "gpu": str(found.name).strip(),
        "gpu driver": str(found.driver_version).strip(),
        "gpu clocks": f"{found.max_clock_frequency} MHz",
        "opencl": f"{found.platform.name} {found.platform.version}".strip(),
    }
