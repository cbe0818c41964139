"""This machine's processors: how many a program may keep busy, and their features.

A container is given a share of the processors' time (`docker run --cpus=2`) on a machine of which
it sees all processors: more threads than that share only wait for each other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_processors() -> int:
    """Processors that this process may run on, or as many as its share of their time fills."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return min([count, *_shares()])


def control_groups(controller: str) -> Iterator[Path]:
    """The folders of the control groups that this process is in, each with those around it: what
    any of them limits is limited. Those of a container may not be there."""
    for line in read(_OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _ROOT / controller if controllers else _ROOT
        own = root / path.lstrip("/")
        yield from (own, *(above for above in own.parents if root in (above, *above.parents)))


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Features of this processor, in the words of /proc/cpuinfo; none where not known."""
    for line in read(Path("/proc/cpuinfo")).splitlines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(words.split())
    return frozenset()


def missing_features(needed: Iterable[str]) -> list[str]:
    """Features that this processor is known to lack."""
    flags = cpu_flags()
    return sorted(set(needed) - flags) if flags else []


def read(path: Path) -> str:
    """Text of a file; empty if it is not there, as on other systems or older kernels."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _shares() -> Iterator[int]:
    """Processors that each control group may fill, where it is limited."""
    for folder in control_groups("cpu"):
        words = read(folder / "cpu.max").split()
        if not words:  # version 1
            words = [read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(words) == 2 and all(map(str.isdecimal, words)) and int(words[1]):
            yield max(-(-int(words[0]) // int(words[1])), 1)
