"""Targets from the text and the machine that a record names, without TVM."""

from __future__ import annotations

import re
from collections.abc import Mapping

from loopwright.schedule.target import Target
from loopwright.transfer.records.lookup import tells_width

_LEVEL = re.compile(r"L([12]) (\d+) KiB")
_X86 = "x86_64"


def target_of(text: str, machine: Mapping[str, str], threads: int) -> Target | None:
    """The target that `str` wrote, on a machine with this fingerprint; None for one of another
    kind, or whose features only a compiler knows since it has no more than a processor's name."""
    kind, triple, mcpu, *features = (*text.split(), "", "")
    features = [f for f in features if f]
    if kind not in ("llvm", "c", "builtin") or not tells_width(features):
        return None
    caches = {int(level): int(size) << 10 for level, size in _LEVEL.findall(_caches(machine))}
    return Target(
        kind,
        triple,
        "" if mcpu == "generic" else mcpu,
        tuple(features),
        *_vectors(triple, frozenset(features)),
        threads,
        caches.get(1, Target.l1_bytes),
        caches.get(2, Target.l2_bytes),
    )


def _caches(machine: Mapping[str, str]) -> str:
    return machine.get("caches", "")


def _vectors(triple: str, features: frozenset[str]) -> tuple[int, int]:
    """Bytes of a vector register, and how many there are; as `codegen.target` has it."""
    if not triple.startswith(_X86):
        return 16, 32
    if "+avx512f" in features:
        return 64, 32
    return (32, 16) if features & {"+avx2", "+avx"} else (16, 16)
