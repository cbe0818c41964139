"""This machine: what identifies it, and the sizes that measuring depends on."""

from __future__ import annotations

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_PACKAGES = ("loopwright", "apache-tvm", "numpy")


def fingerprint() -> dict[str, str]:
    """What tells this machine from others: processor, cores, caches, memory, system, versions."""
    found = {
        "processor": processor(),
        "architecture": platform.machine(),
        "processors": str(len(processors())),
        "cores": str(len(one_per_core())),
        "caches": ", ".join(f"L{level} {size >> 10} KiB" for level, size in _caches().items()),
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return found | {name: _version(name) for name in _PACKAGES}


@functools.cache
def processor() -> str:
    """The processor's name, as the system tells it."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.processor() or platform.machine()


def processors() -> frozenset[int]:
    """The numbers of the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def one_per_core() -> frozenset[int]:
    """One usable processor of every core: threads placed on these share no core."""
    chosen: dict[str, int] = {}
    for number in sorted(processors()):
        siblings = _read(_CPUS / f"cpu{number}/topology/thread_siblings_list").strip()
        chosen.setdefault(siblings or str(number), number)
    return frozenset(chosen.values())


def last_level_bytes() -> int:
    """Bytes of the largest cache; 32 MiB where the system does not tell."""
    return max(_caches().values(), default=32 << 20)


def memory_bytes() -> int:
    """Bytes of memory that this process may have: the machine's, or its control group's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_read(path).strip() for path in _MEMORY_LIMITS]
    return min([total, *(int(limit) for limit in limits if limit.isdecimal())])


@functools.cache
def _caches() -> dict[int, int]:
    """Bytes of the data cache of every level."""
    sizes: dict[int, int] = {}
    for entry in sorted((_CPUS / "cpu0/cache").glob("index*")):
        level, kind, size = (_read(entry / name).strip() for name in ("level", "type", "size"))
        if kind != "Instruction" and level.isdecimal() and size[:-1].isdecimal():
            sizes[int(level)] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
    return sizes


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # another system, or an older kernel


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
