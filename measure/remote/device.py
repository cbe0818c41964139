"""`RemoteDevice`: the processor of another machine, reached by the streams of a command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright.codegen.library.linker import architecture
from loopwright.codegen.processors import read
from loopwright.dsl.errors import TargetError
from loopwright.dsl.words import counted
from loopwright.measure import machine
from loopwright.measure.builder import Builder
from loopwright.measure.programs import ProgramDevice
from loopwright.measure.reference import Limits
from loopwright.measure.remote.facts import Facts
from loopwright.measure.remote.link import Link
from loopwright.measure.remote.route import Route, route
from loopwright.measure.runner import Runner
from loopwright.measure.timing import Timing
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.pool import Pool
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder

_SHARE = 0.75  # of the other machine's memory; this one keeps inputs and expected outputs, too


class RemoteDevice(ProgramDevice):
    """Measures on another machine's processor; candidates are built here.

    The other machine needs a shell and a C library: a small worker is copied there. It listens on
    no port, and ends with the connection.
    """

    needs = "a working TVM and the C compiler of its target here"
    here = False

    def __init__(
        self,
        where: str | Route,
        target: str | Mapping[str, Any] | Target = "cpu",
        threads: int | None = None,
        *,
        timing: Timing | None = None,
        limits: Limits | None = None,
        build_workers: int | None = None,
        seed: int = 0,
        builder: Builder | None = None,
    ) -> None:
        """Connects.

        Parameters
        ----------
        where: "ssh://user@host[:port]", "docker://container", "adb://serial", or a route.
        target: "cpu" or "c" for the processor as the machine reports it, or a mapping such as
            {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}.
        threads: of a call, by default as many as its processors.
        timing, limits, build_workers, seed, builder: as for `LocalDevice`.

        Raises `DeviceError` where the machine cannot be reached, `TargetError` for a target that
        it is not, `BuildError` where there is no C compiler for it here.
        """
        way = where if isinstance(where, Route) else route(where)
        self._link = Link(way)
        self._folder = TemporaryFolder()
        try:
            facts = self._link.facts
            made = target_of(facts, target, threads)
            name = f"{way.name}: {facts.processor}, {counted(made.threads, 'thread')}"
            limits = limits or Limits()
            if builder is None:
                count, each = machine.builders(build_workers)
                pool = Pool(Kind("build", each, Path(self._folder.name)), count)
                builder = Builder(pool, limits.build)
            runner = Runner(self._link, lease=self._link)
            memory = machine.memory_share()
            if facts.memory:
                memory = min(memory, int(_SHARE * facts.memory))
            super().__init__(name, made, builder, runner, timing, limits, memory, seed)
        except BaseException:
            self._link.close()
            self._folder.cleanup()
            raise
        self._fingerprint = facts.fingerprint()

    def fingerprint(self) -> dict[str, str]:
        return dict(self._fingerprint)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def target_of(
    facts: Facts, target: str | Mapping[str, Any] | Target, threads: int | None
) -> Target:
    """The target that a machine is. Raises `TargetError` for one that it is not."""
    from loopwright.codegen.target import cpu_features, described, resolve

    if target in ("cpu", "llvm", "c"):
        kind = "c" if target == "c" else "llvm"
        flags, caches = facts.flags, facts.private_caches()
        made = described(facts.architecture, flags, _mcpu(facts), facts.threads, caches, kind)
        return resolve(made, threads)
    gpu = 'remote devices are processors: leave the target out, or give "c"'
    if target in ("cuda", "opencl"):
        raise TargetError(f"target {target!r}: {gpu}")
    made = resolve(target, threads)
    if made.gpu is not None:
        raise TargetError(f"target {made}: {gpu}")
    if made.kind not in ("llvm", "c"):
        raise TargetError(f"remote devices measure kinds 'llvm' and 'c', not {made.kind!r}")
    if architecture(made.triple) != facts.architecture:
        raise TargetError(f"the device is {facts.architecture}, the target is {made.triple}")
    missing = sorted(set(cpu_features(made)) - facts.flags) if facts.flags else []
    if missing:
        raise TargetError(f"the device lacks features of the target: {', '.join(missing)}")
    return made


def _mcpu(facts: Facts) -> str:
    """LLVM's name of the processor where it is of the same model as the one here; else any of the
    family, with the features that the machine reports."""
    from loopwright.codegen.target import this_cpu

    if architecture() != facts.architecture:
        return ""
    here: dict[str, str] = {}
    for line in read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        here.setdefault(name.strip(), value.strip())
    known = tuple(here.get(name, "") for name in ("vendor_id", "cpu family", "model"))
    return this_cpu() if known == facts.model and all(known) else ""
