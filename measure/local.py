"""`LocalDevice`: the processor that this program runs on, or a GPU beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright.dsl.words import counted
from loopwright.measure import accelerator, machine
from loopwright.measure.builder import Builder
from loopwright.measure.programs import ProgramDevice
from loopwright.measure.reference import Limits
from loopwright.measure.runner import Runner
from loopwright.measure.timing import Timing
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.pool import Pool
from loopwright.schedule.target import Target
from loopwright.temporary import TemporaryFolder

_ANSWERS = 20_000  # of a worker that runs: each sample is one
_NEEDS = {
    "cuda": "a working TVM, NVIDIA's driver, and nvcc (on the PATH, or of CUDA_HOME) or nvrtc",
    "opencl": "a working TVM, pyopencl, and an OpenCL driver for the device",
}


class LocalDevice(ProgramDevice):
    """Measures on this machine: on its processor, or on its GPU by CUDA or OpenCL."""

    def __init__(
        self,
        target: str | Mapping[str, Any] | Target = "cpu",
        threads: int | None = None,
        *,
        timing: Timing | None = None,
        limits: Limits | None = None,
        build_workers: int | None = None,
        memory: int | None = None,
        seed: int = 0,
        builder: Builder | None = None,
    ) -> None:
        """Processes start when first needed, or at `prepare`.

        Parameters
        ----------
        target, threads: as for `codegen.build.build`.
        build_workers: processes that build; by default one per processor, as memory allows.
        memory: bytes that one process may have; by default three quarters of the machine's for
            the one that runs, and as much for all that build. One that runs on a GPU has no
            limit, since drivers reserve addresses by the hundred gigabytes.
        seed: of the data that candidates run on.
        builder: what builds, in place of processes on this machine; closed with the device.

        Raises `TargetError`.
        """
        from loopwright.codegen.target import resolve

        target = resolve(target, threads)
        name = f"{machine.processor()}, {counted(target.threads, 'thread')}"
        if target.gpu is not None:
            name = accelerator.name(target)
            self.needs = _NEEDS[target.kind]
        limits = limits or Limits()
        self._folder = TemporaryFolder()
        folder = Path(self._folder.name)
        count, each = machine.builders(build_workers)
        if builder is None:
            builder = Builder(Pool(Kind("build", memory or each, folder), count), limits.build)
        memory = memory or machine.memory_share()
        most = 0 if target.gpu is not None else memory
        runner = Runner(Pool(Kind("run", most, folder, _ANSWERS), 1))
        super().__init__(name, target, builder, runner, timing, limits, memory, seed)

    def fingerprint(self) -> dict[str, str]:
        return machine.fingerprint() | accelerator.facts(self.target)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()
