"""Look-up policies: which records may serve whom."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loopwright.measure.machine import hardware
from loopwright.transfer.records.record import RecordError

POLICIES = ("exact", "family", "any")
"""Whose records are used: those of the same target and machine; also those of machines with the
same architecture and vector features; or all of the workload."""

_VECTOR = ("+avx", "+sse", "+fma", "+f16c", "+amx", "+neon", "+sve", "+dotprod", "+i8mm", "+bf16",
           "+fullfp16", "+v")  # fmt: skip


_WIDTHS = ("+avx", "+sse2", "+sse3", "+neon", "+sve", "+v")


@dataclass(frozen=True)
class Setting:
    """Setting that records have in common: the workload, and where it was measured.

    Attributes
    ----------
    id: its number in the store.
    workload_key, workload, target, threads: as in `Record`.
    machine: the fingerprint.
    measured, failed: how many records have a cost, and how many do not.
    """

    id: int
    workload_key: str
    workload: str
    target: str
    machine: Mapping[str, str] = field(hash=False)
    threads: int
    measured: int
    failed: int

    @property
    def hardware(self) -> tuple[tuple[str, str], ...]:
        """The machine, whatever its software."""
        return hardware(self.machine)


@dataclass(frozen=True)
class Query:
    """Request of a look-up; `machine` and `threads` are None where they are of no matter."""

    workload_key: str
    target: str
    machine: Mapping[str, str] | None
    threads: int | None
    policy: str

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise RecordError(f"no policy is called {self.policy!r}; use one of {POLICIES}")
        if self.policy == "exact" and self.machine is None:
            raise RecordError(
                'policy "exact" compares machines: give machine=device.fingerprint(), or use '
                'policy="family" or "any"'
            )

    def allows(self, setting: Setting) -> bool:
        """Return whether records of a setting may be used."""
        same_key, target, machine, close, threads = self.agreement(setting)
        if self.policy == "exact":
            return same_key and target and machine and threads
        return same_key and (close or self.policy == "any")

    def agreement(self, setting: Setting) -> tuple[bool, bool, bool, bool, bool]:
        """Return whether the workload, target, machine, family and threads are those asked for."""
        return (
            self.workload_key == setting.workload_key,
            self.target == setting.target,
            self.machine is None or hardware(self.machine) == setting.hardware,
            family(self.target) == family(setting.target),
            self.threads is None or self.threads == setting.threads,
        )


def family(target: str) -> tuple[str, ...]:
    """The kind, architecture and vector features of a target's text; its processor's name too
    where it lists none that tells how wide vectors are, which follows from the name then."""
    kind, triple, cpu, *features = (*target.split(), "", "", "")
    vector = sorted(f for f in features if f.startswith(_VECTOR))
    named = () if tells_width(features) else (cpu, *(f for f in features if f.startswith("-")))
    return (kind, triple.split("-")[0], *named, *vector)


def tells_width(features: Iterable[str]) -> bool:
    """Return whether features of a target are those that this machine was found to have, and not a
    few beside those of a processor's name."""
    return any(f.startswith(_WIDTHS) for f in features)


def comparable(settings: Iterable[Setting]) -> list[tuple[Setting, ...]]:
    """Settings whose costs compare: of one workload, target, machine and number of threads."""

    def group(s: Setting) -> tuple[object, ...]:
        return (s.workload_key, s.target, s.threads, s.hardware)

    ordered = sorted(settings, key=group)
    return [tuple(members) for _, members in itertools.groupby(ordered, group)]


def choose(settings: Iterable[Setting], wanted: Query) -> list[tuple[Setting, ...]]:
    """The groups that may serve, the nearest first, and of equally near ones the best explored.

    A time from one machine says nothing about another's, so the nearest group decides alone.
    """
    groups = comparable(s for s in settings if wanted.allows(s))

    def rank(group: tuple[Setting, ...]) -> tuple[object, ...]:
        return (wanted.agreement(group[0]), sum(s.measured for s in group))

    return sorted(groups, key=rank, reverse=True)
