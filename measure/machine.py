"""This machine: what identifies it, and the sizes that measuring depends on."""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from loopwright.codegen.processors import control_groups, read, usable_processors

_CPUS = Path("/sys/devices/system/cpu")
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
_LEAST_MEMORY = 2 << 30  # bytes for a process that builds
_PACKAGES = ("loopwright", "apache-tvm", "numpy")
_IGNORED = frozenset(
    {"system", "python", "loopwright", "apache-tvm", "numpy", "gpu driver", "opencl", "memory"}
)
"""Fields of a fingerprint that do not tell machines apart: an upgrade leaves records valid, and of
memory earlier versions told what a container may have."""


def fingerprint() -> dict[str, str]:
    """Fingerprint of this machine: processor, cores, caches, memory, system, versions."""
    found = {
        "processor": processor(),
        "architecture": platform.machine(),
        "processors": str(len(processors())),
        "cores": str(len(one_per_core())),
        "caches": ", ".join(f"L{level} {size >> 10} KiB" for level, size in _caches().items()),
        "memory": f"{_physical_bytes() / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return found | versions()


def hardware(machine: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A fingerprint without the versions of software, and without how much memory there is."""
    return tuple(sorted((k, v) for k, v in machine.items() if k not in _IGNORED))


def versions() -> dict[str, str]:
    """Versions of the packages that decide what is built."""
    return {name: _version(name) for name in _PACKAGES}


@functools.cache
def processor() -> str:
    """The processor's name, as the system tells it."""
    for line in read(Path("/proc/cpuinfo")).splitlines():
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
        siblings = read(_CPUS / f"cpu{number}/topology/thread_siblings_list").strip()
        chosen.setdefault(siblings or str(number), number)
    return frozenset(chosen.values())


class Neighbours:
    """Counts the cores that other programs keep busy from now on, beside this process, and
    another one of ours where one is given."""

    def __init__(self, pid: int = 0) -> None:
        self._pid = pid
        self._began = time.monotonic(), self._others()

    def _others(self) -> float:
        """Seconds that processors were busy for others: all of theirs, less ours."""
        return _busy_seconds() - _seconds_of(self._pid) - _seconds_of(os.getpid())

    def in_the_way(self, threads: int) -> float:
        """Cores kept busy so far, beyond those that the threads leave free; 0 if not known."""
        began, before = self._began
        others = (self._others() - before) / max(time.monotonic() - began, 1e-9)
        cores = len(one_per_core())
        free = (cores if threads <= cores else len(processors())) - threads
        return max(0.0, others - max(free, 0))


def _busy_seconds() -> float:
    """Seconds that the usable processors were busy, by all programs and the hypervisor."""
    usable = {f"cpu{number}" for number in processors()}
    lines = (line.split() for line in read(Path("/proc/stat")).splitlines())
    found = (list(map(int, line[1:9])) for line in lines if line and line[0] in usable)
    # The fourth and the fifth number are of idle time.
    return sum(sum(ticks[:3]) + sum(ticks[5:]) for ticks in found) / os.sysconf("SC_CLK_TCK")


def _seconds_of(pid: int) -> float:
    """CPU seconds of a process; 0 for one that is gone."""
    fields = read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def last_level_caches() -> list[tuple[tuple[int, ...], int]]:
    """Processors that share each largest cache, and its bytes; by default one of 32 MiB."""
    found: dict[str, tuple[list[int], int]] = {}
    for number in sorted(processors()):
        caches = _caches_of(number)
        size, shared = max(caches.values(), default=(32 << 20, ""))
        found.setdefault(shared, ([], size))[0].append(number)
    return [(tuple(numbers), size) for numbers, size in found.values()]


def cache_of(size: int, threads: int) -> str:
    """The smallest cache that holds so many bytes, spread over the cores of so many threads, as
    "L1", "L2" or "L3"; "memory" where none does, or the system does not tell."""
    levels = _caches()
    cores = min(threads, len(one_per_core()))
    for level in sorted(levels):
        held = levels[level] * cores
        if level == max(levels):
            held = sum(each for _, each in last_level_caches())
        if size <= held:
            return f"L{level}"
    return "memory"


def private_bytes() -> int:
    """Bytes of the largest cache below the last level; 0 where there is none, or none is told."""
    sizes = sorted(_caches().values())
    return sizes[-2] if len(sizes) > 1 else 0


def memory_bytes() -> int:
    """Bytes of memory that this process may have: the machine's, or its control groups'."""
    folders = control_groups("memory")
    limits = [read(folder / name).strip() for folder in folders for name in _MEMORY_LIMITS]
    return min([_physical_bytes(), *(int(limit) for limit in limits if limit.isdecimal())])


def memory_share() -> int:
    """Bytes of memory that processes which work for this one may have together."""
    return memory_bytes() * 3 // 4


def builders(count: int | None = None, most: int | None = None) -> tuple[int, int]:
    """Number of building processes, `count` or at most `most`, and bytes of memory for each."""
    count = count or min(usable_processors(), 1 + memory_share() // _LEAST_MEMORY)
    count = count if most is None else min(count, most)
    return count, max(_LEAST_MEMORY, memory_share() // count)


def _physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _caches() -> dict[int, int]:
    """Bytes of the data cache of every level, of the first processor."""
    return {level: size for level, (size, _) in _caches_of(0).items()}


@functools.cache
def _caches_of(processor: int) -> dict[int, tuple[int, str]]:
    """Caches of a processor by level: the bytes of data and the processors that share them."""
    found: dict[int, tuple[int, str]] = {}
    files = ("level", "type", "size", "shared_cpu_list")
    for entry in sorted((_CPUS / f"cpu{processor}/cache").glob("index*")):
        level, kind, size, shared = (read(entry / name).strip() for name in files)
        if kind != "Instruction" and level.isdecimal() and size[:-1].isdecimal():
            found[int(level)] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]], shared
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
