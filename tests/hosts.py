"""Machines that a run of the tests may pretend to have: `pytest --host zen3`.

What detection finds of caches, vectors and threads is replaced before any test is imported. No
host has more than x86-64's vectors of this machine: what is built for it runs here. Interpreters
that tests start detect the real machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Host:
    """What is detected of a machine.

    Attributes
    ----------
    mcpu: LLVM's name of the processor.
    avx512: whether it has AVX-512, as far as this machine has it.
    l1_kib, l2_kib: data caches of one core.
    processors: how many a program may use.
    """

    mcpu: str
    avx512: bool
    l1_kib: int
    l2_kib: int
    processors: int


HOSTS = {
    "zen3": Host("znver3", False, 32, 512, 2),
    "one-core": Host("haswell", False, 32, 256, 1),
    "large-cache": Host("sapphirerapids", True, 48, 2048, 2),
    "eight-cores": Host("cascadelake", True, 32, 1024, 8),
}


def pretend(name: str) -> None:
    """Let detection find the host of that name in place of this machine, for this process."""
    from loopwright.codegen import load, processors, target
    from loopwright.codegen.library import library

    host, flags = HOSTS[name], processors.cpu_flags()
    if not flags >= {"avx2", "fma"}:
        raise pytest.UsageError(f"--host {name}: this machine has no AVX2")
    if not host.avx512:
        flags = frozenset(f for f in flags if not f.startswith(("avx512", "avx_", "amx")))

    def usable_processors() -> int:
        return host.processors

    processors.cpu_flags = target.cpu_flags = lambda: flags
    target._host_cpu = lambda family: host.mcpu
    target._caches = lambda: (host.l1_kib << 10, host.l2_kib << 10)
    if host.processors < processors.usable_processors():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: host.processors])
    for module in (target, load, library):
        module.usable_processors = usable_processors
