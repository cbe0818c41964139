"""Shared objects are run, timed and checked, one at a time, in a worker process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.measure.builder import Built, Task
from loopwright.measure.device import DeviceError
from loopwright.measure.frames import Bytes, Frame
from loopwright.measure.pool import Pool
from loopwright.measure.process import Job, Reply, Worker
from loopwright.measure.timing import Timing

_DATA = 300.0  # seconds in which inputs must be drawn
_SUSPECT = ("crash", "memory", "wrong")


@dataclass(frozen=True, eq=False)
class Data:
    """The inputs that candidates run on, and what must come out.

    Attributes
    ----------
    seed: of the generator that draws the inputs.
    expected: the outputs as bytes; none where candidates are not checked.
    tolerance: rtol and atol within which outputs agree.
    timeout: seconds that a run, or one sample, may take.
    """

    task: Task
    seed: int
    expected: tuple[Bytes, ...]
    tolerance: tuple[float, float]
    timeout: float


class Runner:
    """Runs in the worker of a pool of one, which holds the data of one workload at a time.

    Outputs of more than `most` elements are checked in that many places, unless asked otherwise.
    """

    def __init__(self, pool: Pool, most: int = 1 << 18) -> None:
        self._pool, self._most = pool, most
        self._holds: tuple[Worker, Data] | None = None
        self._loaded: set[int] = set()

    def run(
        self, data: Data, built: Built, timing: Timing, whole: bool = False, outputs: bool = False
    ) -> Reply:
        """Time and check a candidate: "seconds" in the answer, with `outputs` those as blobs.

        `whole` checks all elements. What a candidate did to the worker may have been the fault
        of one before it, so a failure is believed from a fresh worker alone: the candidate gets
        a second try there.
        """
        asked = {
            "do": "run",
            "signature": built.signature,
            "timing": timing.to_json(),
            "most": None if whole else self._most,
            "outputs": outputs,
        }
        job = Job(Frame(asked, (built.code,)), data.timeout)
        reply, fresh = self._ask(data, job)
        if fresh or reply.failure is None or reply.failure.kind not in _SUSPECT:
            return reply
        return self._ask(data, job)[0]

    def compare(
        self, data: Data, candidates: Sequence[Built], timing: Timing, rounds: int
    ) -> list[tuple[float, ...]]:
        """Samples in seconds, `rounds` for each, taken in turns, back and forth. Infinite ones
        for a candidate that fails."""
        samples: list[list[float]] = [[] for _ in candidates]
        sound = [number for number, built in enumerate(candidates) if built.failure is None]
        for turn in range(rounds):
            for number in sound[:: 1 if turn % 2 else -1]:
                reply = self._sample(data, number, candidates[number], timing)
                if reply.failure is not None and reply.failure.kind in _SUSPECT:
                    reply = self._sample(data, number, candidates[number], timing)  # afresh
                if reply.failure is None:
                    samples[number].append(float(reply.frame.header["seconds"]))
                else:
                    sound = [n for n in sound if n != number]
        self._pool.close()  # and all that it has loaded
        return [
            tuple(taken) if number in sound else (math.inf,) * rounds
            for number, taken in enumerate(samples)
        ]

    def close(self) -> None:
        """End the worker."""
        self._pool.close()

    def _sample(self, data: Data, number: int, built: Built, timing: Timing) -> Reply:
        self._ready(data)
        if number not in self._loaded:
            asked = {
                "do": "load",
                "slot": number,
                "signature": built.signature,
                "timing": timing.to_json(),
            }
            reply, _ = self._ask(data, Job(Frame(asked, (built.code,)), data.timeout))
            if reply.failure is not None:
                return reply
            self._loaded.add(number)
        return self._ask(data, Job(Frame({"do": "sample", "slot": number}), data.timeout))[0]

    def _ask(self, data: Data, job: Job) -> tuple[Reply, bool]:
        """The reply, and whether the worker had served no other candidate. It serves none after
        one that may have harmed it: a fault in a GPU's kernel leaves nothing of it usable."""
        fresh = self._ready(data)
        reply = self._pool.map([job])[0]
        if reply.failure is not None and reply.failure.kind in _SUSPECT:
            self._pool.close()
        return reply, fresh

    def _ready(self, data: Data) -> bool:
        """Give the data to the worker unless it has them."""
        self._pool.start()
        worker = self._pool.workers[0]
        if self._holds is None or self._holds[0] is not worker or self._holds[1] is not data:
            self._send(data)
            self._holds = (worker, data)
            self._loaded = set()
        return worker.answers <= 1

    def _send(self, data: Data) -> None:
        asked = {
            "do": "data",
            "workload": data.task.text,
            "kind": data.task.target.kind,
            "threads": data.task.target.threads,
            "seed": data.seed,
            "tolerance": data.tolerance,
        }
        failure = self._pool.map([Job(Frame(asked, data.expected), _DATA)])[0].failure
        if failure is not None:
            raise DeviceError(
                f"the inputs of this workload cannot be made here ({failure}); "
                f"it needs {data.task.workload.min_bytes:,} bytes for inputs and outputs alone"
            )
