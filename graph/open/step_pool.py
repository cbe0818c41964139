"""`StepPool`: compiles the steps of a network side by side."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from loopwright.dsl.errors import BuildError
from loopwright.graph.open.steps import StepCompiler, StepJob, StepKernel
from loopwright.measure.device import DeviceError
from loopwright.measure.machine import builders
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.messages import Message
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.process import Job
from loopwright.temporary import TemporaryError, TemporaryFolder

_log = logging.getLogger(__name__)

WORTH = 16
"""Steps that are worth the seconds in which worker processes start."""

_DAY = 86400.0  # seconds that a step may take: as long as it needs, as in this process


class StepPool(ExitStack):
    """Compiles a few steps in threads, and many in worker processes: most of the work is in
    Python, of which a process runs one thread at a time. Its workers end with its `with` block."""

    def __init__(self, compiler: StepCompiler) -> None:
        super().__init__()
        self._compiler = compiler
        self._pool: Pool | None = None
        self._fails = False

    def kernels(self, jobs: Sequence[StepJob]) -> list[StepKernel]:
        """The kernel of each step. Raises the `BuildError` of one that has none."""
        count, _ = builders()
        worth = len(jobs) >= (WORTH if self._pool is None else 2)
        if count > 1 and worth and not self._fails:
            try:
                return self._in_processes(jobs, count)
            except (DeviceError, TemporaryError, OSError) as error:
                _log.warning("steps are compiled in this process alone: %s", error)
                self._fails = True
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(self._compiler.kernel, jobs))

    def _in_processes(self, jobs: Sequence[StepJob], count: int) -> list[StepKernel]:
        if self._pool is None:
            self._pool = Pool(Kind("steps", 0, self.enter_context(TemporaryFolder())), count)
            self.callback(self._pool.close)
        shared = pickle.dumps(self._compiler)
        asked = [Job(Message({"do": "kernel"}, (shared, pickle.dumps(job))), _DAY) for job in jobs]
        replies = self._pool.map(asked, until_failure=True)
        for reply in replies:
            if (failure := reply.failure) is None:
                continue
            if failure.kind == "build":
                raise BuildError(failure.message)
            raise DeviceError(f"a worker process failed ({failure.message})")
        return [pickle.loads(reply.message.blobs[0]) for reply in replies]  # noqa: S301 - ours
