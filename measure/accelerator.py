"""What identifies a GPU, and whatever else OpenCL runs on."""

from __future__ import annotations

import functools
import shutil
import subprocess

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
    """What to call the device of a GPU's target."""
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
    """Of the first GPU, as the driver's tool tells; the tool comes with the driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    wanted = f"--query-gpu={','.join(_QUERY.values())}"
    done = subprocess.run(
        [tool, "--id=0", wanted, "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    values = [part.strip() for part in done.stdout.strip().split(",")]
    if done.returncode or len(values) != len(_QUERY):
        return {}
    return dict(zip(_QUERY, values, strict=True))


@functools.cache
def _opencl() -> dict[str, str]:
    """Of the device that programs run on."""
    from loopwright.codegen.opencl import device

    found = device()
    return {
        "gpu": str(found.name).strip(),
        "gpu driver": str(found.driver_version).strip(),
        "gpu clocks": f"{found.max_clock_frequency} MHz",
        "opencl": f"{found.platform.name} {found.platform.version}".strip(),
    }
