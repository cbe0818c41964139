"""Facts of another machine: its target, its fingerprint, where threads are placed."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

from loopwright.measure.machine import versions

_MOST_FLUSHED = 1 << 30  # bytes, of all processors together
_DEFAULT_CACHE = 32 << 20  # bytes of a cache that is not told
_UNITS = {"K": 10, "M": 20, "G": 30}
_LONGEST = 200  # characters of a text in the fingerprint


@dataclass(frozen=True)
class Cache:
    """A data cache of a processor: its level, its bytes, the processors that share it."""

    level: int
    size: int
    shared: str


@dataclass(frozen=True)
class Facts:
    """Facts of a machine: single `words` as text, and by processor that may be used, the
    `siblings` of its core and its `caches`."""

    words: Mapping[str, str] = field(default_factory=dict)
    siblings: Mapping[int, str] = field(default_factory=dict)
    caches: Mapping[int, tuple[Cache, ...]] = field(default_factory=dict)

    @staticmethod
    def read(text: str) -> Facts:
        """Facts of lines "name value"; what is not understood is left out."""
        words: dict[str, str] = {}
        siblings: dict[int, str] = {}
        caches: dict[int, tuple[Cache, ...]] = {}
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            parts = value.split()
            if name == "cpu" and parts and _is_small(parts[0]):
                siblings[int(parts[0])] = parts[1] if len(parts) > 1 else parts[0]
            elif name == "cache" and (cache := _cache(parts)) is not None:
                cpu = int(parts[0])
                caches[cpu] = (*caches.get(cpu, ()), cache)
            elif value:
                words[name] = value
        return Facts(words, siblings or {0: "0"}, caches)

    @property
    def architecture(self) -> str:
        return self.words.get("architecture", "")

    @property
    def flags(self) -> frozenset[str]:
        """Features of the processor, in the words of Linux."""
        return frozenset(self.words.get("flags", "").split())

    @property
    def processor(self) -> str:
        """The processor's name, or the board's."""
        names = (self.words.get(name, "") for name in ("processor", "hardware", "board"))
        return next((n.strip("\0 ") for n in names if n.strip("\0 ")), self.architecture)[
            :_LONGEST
        ]

    @property
    def model(self) -> tuple[str, str, str]:
        """Vendor, family and model of an x86 processor, by which two are known to be alike."""
        vendor, family, model = (self.words.get(n, "") for n in ("vendor", "family", "model"))
        return vendor, family, model

    @property
    def identity(self) -> tuple[object, ...]:
        """Facts by which a machine is known to be the same one after a link broke."""
        host = self.words.get("host", "")
        words = host, self.architecture, self.processor, self.threads
        return (*words, self.flags, self.siblings, self.caches)

    @property
    def memory(self) -> int:
        """Bytes of memory."""
        return _number(self.words.get("memory", ""))

    @property
    def threads(self) -> int:
        """Processors that programs may keep busy, or as many as their share of time fills."""
        quota, _, period = self.words.get("share", "").partition(" ")
        count = len(self.siblings)
        if _number(quota) and _number(period):
            return max(1, min(count, -(-_number(quota) // _number(period))))
        return count

    @property
    def one_per_core(self) -> tuple[int, ...]:
        """One processor of every core."""
        chosen: dict[str, int] = {}
        for cpu, shared in sorted(self.siblings.items()):
            chosen.setdefault(shared, cpu)
        return tuple(chosen.values())

    def private_caches(self) -> tuple[int, int]:
        """Bytes of one core's first- and second-level data caches."""
        sizes = {c.level: c.size for c in next(iter(self.caches.values()), ())}
        return sizes.get(1, 32 << 10), sizes.get(2, 512 << 10)

    def flushed(self) -> dict[int, int]:
        """Bytes that each processor writes to empty all caches: see `workers.worker_run.Flush`."""
        shares: dict[str, list[int]] = {}
        sizes: dict[str, int] = {}
        below = 0
        for cpu in self.siblings:
            levels = sorted(self.caches.get(cpu, ()), key=lambda c: c.level)
            last = levels[-1] if levels else Cache(3, _DEFAULT_CACHE, "")
            below = max(below, levels[-2].size if len(levels) > 1 else 0)
            shares.setdefault(last.shared, []).append(cpu)
            sizes[last.shared] = last.size
        each = _MOST_FLUSHED // len(self.siblings)
        return {
            cpu: min(max(2 * sizes[shared] // len(cpus), 2 * below), each)
            for shared, cpus in shares.items()
            for cpu in cpus
        }

    def fingerprint(self) -> dict[str, str]:
        """As `machine.fingerprint`, of the other machine; versions are those of what builds."""
        levels = {c.level: c.size for c in next(iter(self.caches.values()), ())}
        return {
            "processor": self.processor,
            "architecture": self.architecture,
            "processors": str(len(self.siblings)),
            "cores": str(len(self.one_per_core)),
            "caches": ", ".join(f"L{n} {size >> 10} KiB" for n, size in sorted(levels.items())),
            "memory": f"{self.memory / 2**30:.0f} GiB",
            "system": self.words.get("system", "")[:_LONGEST],
            "python": platform.python_version(),
        } | versions()


def _cache(parts: list[str]) -> Cache | None:
    """The cache of "cpu level type size shared"; None for instructions, or damaged lines."""
    if len(parts) != 5 or parts[2] == "Instruction" or not _is_small(parts[0] + parts[1]):
        return None
    size, unit = parts[3][:-1], parts[3][-1]
    if not _is_small(size) or unit not in _UNITS:
        return None
    return Cache(int(parts[1]), int(size) << _UNITS[unit], parts[4])


def _is_small(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 20 else 0
