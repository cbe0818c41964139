"""A pool of worker processes: shares out jobs, replaces workers that die, hang or are worn."""

from __future__ import annotations

import logging
import math
import selectors
import sys
import time
from collections import deque
from collections.abc import Collection, Sequence

from loopwright.measure.device import DeviceError, Failure, TimeUpError
from loopwright.measure.workers.fork_server import ForkServer, Kind
from loopwright.measure.workers.process import LOOK, Job, Reply, Worker

_log = logging.getLogger(__name__)
_STARTING = -1  # no job's number
_LOST = 3  # fork servers in a row, none of which has had a worker


class Pool:
    """A number of like workers, started when first needed, or before.

    A fork server that is killed or stopped is replaced, with a warning. If several in a row are
    lost before they have had a worker, that is an error, after seconds.

    Between two calls of its methods those that have started do nothing: what is timed elsewhere
    meanwhile is not disturbed.

    Attributes
    ----------
    deadline: when jobs must be done, by the monotonic clock. Those that are not then are ended,
        and `TimeUpError` is raised.
    """

    def __init__(self, kind: Kind, count: int) -> None:
        self.workers: list[Worker] = []
        self.deadline = math.inf
        self._kind, self._count = kind, count
        self._fork_server: ForkServer | None = None
        self._lost = 0

    def start(self, jobs: int = 1) -> None:
        """Begin to start as many workers as so many jobs can use. Who first gives jobs waits for
        them, and learns what went wrong. Raises `DeviceError` if Python cannot be started."""
        self._hire(self._staff(jobs))

    def map(self, jobs: Sequence[Job], *, until_failure: bool = False) -> list[Reply]:
        """The replies to jobs, in their order; as many at once as there are workers. With
        `until_failure` no job begins after one has failed: the replies are of those that did.

        A worker that dies, hangs, or has answered often is replaced before this returns.
        Raises `DeviceError` if workers cannot be started, and `TimeUpError` at the deadline.
        """
        return self._work(jobs, self._staff(len(jobs)), until_failure)

    def dismiss(self) -> None:
        """End all workers; others can be had at once."""
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    def close(self) -> None:
        """End all workers, and what they are forked from."""
        self.dismiss()
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None

    def _staff(self, jobs: int) -> int:
        return min(self._count, max(jobs, len(self.workers)))

    def _work(self, jobs: Sequence[Job], staff: int, until_failure: bool) -> list[Reply]:
        waiting = deque(enumerate(jobs))
        replies: dict[int, Reply] = {}
        # What each is at; nothing yet while it starts.
        busy = {worker: _STARTING for worker in self.workers if worker.answers < 0}
        try:
            while True:
                busy |= dict.fromkeys(self._hire(staff), _STARTING)
                for worker in self.workers:
                    if waiting and worker not in busy:
                        busy[worker], job = waiting.popleft()
                        worker.send(job)
                if not busy:
                    return [replies[number] for number in range(len(jobs)) if number in replies]
                for worker, reply in _answers(busy, self.deadline):
                    number = busy.pop(worker)
                    replies[number] = reply
                    if until_failure and number != _STARTING and reply.failure is not None:
                        waiting.clear()
                    self._review(worker, reply)
        except BaseException:  # Ctrl-C above all: nothing may go on, nor answer late
            for worker in busy:
                worker.kill()
            self.workers = [w for w in self.workers if w.alive]
            raise

    def _hire(self, staff: int) -> list[Worker]:
        """Workers that were missing, which start."""
        hired = []
        for _ in range(staff - len(self.workers)):
            if self._fork_server is None:
                if not self._kind.folder.exists():
                    raise DeviceError(
                        f"the device's folder {self._kind.folder} is gone: the device was closed, "
                        "or something deleted it; make another device"
                    )
                self._fork_server = ForkServer(self._kind)
            hired.append(Worker(self._kind, self._fork_server))
            self.workers.append(hired[-1])
        return hired

    def _review(self, worker: Worker, reply: Reply) -> None:
        """Part with a worker that is dead or worn."""
        if worker.answers < 0 and reply.failure is not None:
            self._replace(worker, reply.failure)
        elif worker.answers == 0:
            self._lost = 0
        if not worker.alive or worker.answers >= self._kind.answers:
            worker.kill()
            self.workers.remove(worker)

    def _replace(self, worker: Worker, failure: Failure) -> None:
        """Go on without a worker that did not start, and its fork server. Raises `DeviceError`
        where another try is of no use."""
        how = worker.lost(failure)
        first = worker.fork_server is self._fork_server  # of those that waited for it
        if not how or (first and self._lost == _LOST):
            raise DeviceError(
                f"a worker did not start ({failure.message}); run\n"
                f"  {sys.executable} -m loopwright.measure.workers.worker {self._kind.mode} "
                f"{self._kind.memory} </dev/null\nto see why; it said:\n{failure.traceback}"
            )
        if first and self._fork_server is not None:
            _log.warning("%s (%s): another process is started", how, failure.message)
            self._fork_server.close()
            self._fork_server = None
            self._lost += 1


def _answers(workers: Collection[Worker], deadline: float) -> list[tuple[Worker, Reply]]:
    """Waits until at least one of them has a reply. Raises `TimeUpError` at the deadline."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ)
        while True:
            if time.monotonic() >= deadline:
                raise TimeUpError("time was up before it was done")
            first = min(deadline, *(worker.deadline for worker in workers))
            selector.select(min(max(0.0, first - time.monotonic()), LOOK))
            found = [(w, r) for w in workers if (r := w.receive()) is not None]
            if found:
                return found
