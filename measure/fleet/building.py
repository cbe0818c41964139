"""`TaskPool`: jobs of building as Ray's tasks, wherever a machine of the fleet has a free core."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopwright.measure import machine
from loopwright.measure.device import DeviceError, Failure, TimeUpError
from loopwright.measure.fleet.joining import ray_package
from loopwright.measure.workers.fork_server import Kind
from loopwright.measure.workers.messages import Message
from loopwright.measure.workers.pool import Pool
from loopwright.measure.workers.process import Job, Reply
from loopwright.temporary import TemporaryFolder

BOUND = 900.0
"""Seconds without any answer after which a wait is an error."""
TELL = 10.0
"""Seconds of waiting after which that is said."""

_LOOK = 0.5
_log = logging.getLogger(__name__)
Answer = tuple[dict[str, Any], tuple[bytes, ...], dict[str, str] | None, float]


class TaskPool:
    """As `workers.pool.Pool`, but jobs are tasks of one core each. `known` are those, by
    `job_name`, that were asked for elsewhere, and are not asked for again."""

    def __init__(self) -> None:
        self.deadline = math.inf
        self.known: dict[str, Any] = {}

    def start(self, jobs: int = 1) -> None:
        """Raises `DeviceError` where no core of the fleet builds."""
        if ray_package().cluster_resources().get("CPU", 0) < 1:
            raise DeviceError(
                "no machine of the fleet builds: add one with cores for it, as by "
                "`loopwright fleet add --builders 4`"
            )

    def submit(self, job: Job) -> Any:
        """Ray's reference to the task of a job."""
        known = self.known.get(job_name(job))
        if known is not None:
            return known
        blobs = [bytes(blob) for blob in job.message.blobs]
        return _task().remote(job.message.header, blobs, job.timeout)

    def map(self, jobs: Sequence[Job]) -> list[Reply]:
        """The replies to jobs, in their order."""
        self.start()
        tasks = [self.submit(job) for job in jobs]
        self.finish(tasks)
        return [_reply(task) for task in tasks]

    def finish(self, tasks: Iterable[Any]) -> None:
        """Wait for tasks. Raises `TimeUpError` at the deadline, which cancels them."""
        ray, since, told = ray_package(), time.monotonic(), False
        waiting = list(dict.fromkeys(tasks))
        try:
            while waiting:
                count = len(waiting)
                left = self.deadline - time.monotonic()
                if left <= 0:
                    raise TimeUpError("time was up before all was built")
                _, waiting = ray.wait(
                    waiting, num_returns=count, timeout=min(_LOOK, left), fetch_local=False
                )
                now = time.monotonic()
                if len(waiting) < count:
                    since = now
                elif now - since >= BOUND:
                    raise DeviceError(
                        f"nothing was built for {BOUND:g} s: see `ray status`, and whether other "
                        "tuners keep all cores of the fleet"
                    )
                elif now - since >= TELL and not told:
                    _log.warning("waiting for cores of the fleet to build on")
                    told = True
        except BaseException:
            for task in waiting:
                ray.cancel(task, force=False)
            raise

    def close(self) -> None:
        """Nothing is held here: processes that build end with the tuner, by Ray."""
        self.known.clear()


def job_name(job: Job) -> str:
    """Name of a job, the same for equal ones."""
    return hashlib.sha256(json.dumps(job.message.header, sort_keys=True).encode()).hexdigest()


def carry_out(header: Mapping[str, Any], blobs: Sequence[bytes], timeout: float) -> Answer:
    """A job's answer: header, blobs, failure, and seconds. It runs in one of Ray's processes, in
    a worker that may crash, hang or run out of memory."""
    pool, _folder = _own_pool()
    (reply,) = pool.map([Job(Message(dict(header), tuple(blobs)), timeout)])
    failure = None if reply.failure is None else reply.failure.to_json()
    return reply.message.header, tuple(map(bytes, reply.message.blobs)), failure, reply.seconds


@functools.cache
def _task() -> Any:
    """The task of Ray's. It is done again where its machine is lost, or cannot go on."""
    again = {"max_retries": 2, "retry_exceptions": [DeviceError]}
    return ray_package().remote(num_cpus=1, scheduling_strategy="SPREAD", **again)(carry_out)


@functools.cache
def _own_pool() -> tuple[Pool, TemporaryFolder]:
    """The worker of this process, and the folder that it has."""
    folder = TemporaryFolder()
    _, each = machine.builders()
    return Pool(Kind("build", each, Path(folder.name)), 1), folder


def _reply(task: Any) -> Reply:
    ray = ray_package()
    try:
        header, blobs, failure, seconds = ray.get(task)
    except (ray.exceptions.RayTaskError, ray.exceptions.TaskCancelledError):
        raise  # which is an error of ours, too
    except ray.exceptions.RayError as error:
        reason = f"the machines that built it were lost: {error}"
        return Reply(Message({}), Failure("crash", reason), 0.0)
    told = None if failure is None else Failure.from_json(failure)
    return Reply(Message(header, blobs), told, seconds)
