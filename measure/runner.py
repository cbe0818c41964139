"""Shared objects are run, timed and checked, one at a time, in a worker process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from loopwright.codegen.library.signature import Signature
from loopwright.measure.builder import Built, Task
from loopwright.measure.device import Comparison, DeviceError, Failure, Stop, TimeUpError, never
from loopwright.measure.lease import Lease, MachineLease
from loopwright.measure.machine import Neighbours
from loopwright.measure.timing import Timing, common_length, spread
from loopwright.measure.workers.messages import Bytes, Message
from loopwright.measure.workers.process import Job, Reply, WorkerLike, Workers

_DATA = 300.0  # seconds in which inputs must be drawn
_SUSPECT = ("crash", "memory", "wrong")
_RETRIES = 2  # of one sample among many
_FEWEST = 3  # samples, of calls that are repeated at all
_TOGETHER = 16  # candidates that are measured at a time, at most
_HELD = 1 << 29  # bytes that these may have for themselves
_ERASER = 64 << 20  # bytes, about, that empty a GPU's caches
_LOSSES = 8  # workers


@dataclass(frozen=True, eq=False)
class Data:
    """The inputs that candidates run on, and what must come out.

    Attributes
    ----------
    seed: of the generator that draws the inputs.
    scaled: whether features are of very different sizes (`workers.hard_data`).
    expected: the outputs as bytes, and their slack where the oracle gave one; none where
        candidates are not checked.
    tolerance: rtol and atol within which outputs of the definition's own sums agree; the atol of
        a candidate is its error growth times that.
    timeout: seconds that a run, or one sample, may take.
    """

    task: Task
    seed: int
    expected: tuple[Bytes, ...]
    tolerance: tuple[float, float]
    timeout: float
    scaled: bool = False


@dataclass
class Sampled:
    """Samples of one candidate among others.

    Attributes
    ----------
    first: seconds of its first call, whose outputs were checked; None before that.
    least: seconds of a call at least, as it was loaded; 0 before that.
    seconds: of one call, sample by sample; none where the first call took too long for more.
    sampling: seconds that the samples took, and `spent` all that was done with it.
    started: when it was loaded first, in seconds since 1970.
    """

    failure: Failure | None
    first: float | None = None
    least: float = 0.0
    seconds: list[float] = field(default_factory=list)
    sampling: float = 0.0
    spent: float = 0.0
    started: float = field(default_factory=time.time)

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of one call, of the first one where it took too long; none of a failure."""
        if self.failure is not None or self.first is None:
            return ()
        return tuple(self.seconds) or (self.first,)

    def goes_on(self, wanted: Callable[[Sampled, float], bool]) -> bool:
        """Return whether to call it again; `wanted` is asked with its first call's seconds."""
        return self.failure is None and (self.first is None or wanted(self, self.first))

    def add(self, reply: Reply) -> None:
        """Take notice of one more call."""
        self.failure = reply.failure
        if reply.failure is not None:
            return
        said = reply.message.header
        if self.first is None:
            self.first, self.least = said["seconds"], said["least"]
        else:
            self.seconds.append(said["seconds"])
            self.sampling += said["spent"]


class Runner:
    """Runs in the worker of a pool of one, which holds the data of one workload at a time.

    Outputs of more than `most` elements are checked in that many places, unless asked otherwise.
    The lease of the machine is held while anything runs; by default it is this one's.
    """

    def __init__(self, pool: Workers, most: int = 1 << 18, lease: Lease | None = None) -> None:
        self._pool, self._most = pool, most
        self._lease = lease or MachineLease()
        self._holds: tuple[WorkerLike, Data] | None = None
        self._loaded: set[int] = set()
        self._lost = 0

    def start(self) -> None:
        """Begin to make ready for running. Raises `DeviceError`."""
        self._pool.start()

    def until(self, deadline: float) -> None:
        """Set when runs must be done: see `Device.until`."""
        self._pool.deadline = self._lease.deadline = deadline

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
            "error_growth": built.error_growth,
        }
        job = Job(Message(asked, (built.code,)), data.timeout)
        self._ready(data)
        with self._lease:
            reply, fresh = self._answered(data, job)
            if fresh or reply.failure is None or reply.failure.kind not in _SUSPECT:
                return reply
            return self._answered(data, job)[0]

    def measure(
        self, data: Data, candidates: Sequence[Built], timing: Timing, stop: Stop = never
    ) -> Iterator[Sampled]:
        """Time candidates side by side, and check them: each is sampled until its samples agree,
        or its time is up. A call that is longer than that is not repeated. Those that are not
        begun with before `stop` says so are left out, as are those without a time at the deadline.
        Raises `TimeUpError` where none has one.

        Where workers are lost again and again, since one candidate harms the others, those that
        have a first time keep to what they have.
        """
        once = replace(timing, retries=min(timing.retries, _RETRIES))
        for number, group in enumerate(self._together(data, candidates, timing)):
            if number and stop():
                return
            before = self._lost

            def wanted(one: Sampled, first: float, before: int = before) -> bool:
                if first >= timing.cap or self._lost - before > _LOSSES:
                    return False
                apart = spread(one.seconds, timing.confidence) > timing.relative
                return len(one.seconds) < _FEWEST or (one.sampling < timing.cap and apart)

            yield from self._in_rounds(data, group, once, wanted, stop)

    def compare(
        self, data: Data, candidates: Sequence[Built], timing: Timing, rounds: int
    ) -> Comparison:
        """Take `rounds` samples of each candidate, side by side and of equal length, or as many as
        there are at the deadline. Where not all candidates fit memory, those that do are side by
        side. Raises `TimeUpError` where there is no whole round."""

        def wanted(one: Sampled, _: float) -> bool:
            return len(one.seconds) < rounds

        watch = self._watch(data)
        groups = self._together(data, candidates, timing, len(candidates))
        taken = [o for g in groups for o in self._in_rounds(data, g, timing, wanted)]
        others = 0.0 if watch is None else watch.in_the_way(data.task.target.threads)
        rounds = min([rounds, *(len(one.seconds) for one in taken if one.failure is None)])
        if not rounds:
            raise TimeUpError("time was up before there was a whole round")
        failed = (math.inf,) * rounds
        return Comparison(
            tuple(tuple(one.seconds[:rounds]) if not one.failure else failed for one in taken),
            tuple(built.size for built in candidates),
            others,
        )

    def _watch(self, data: Data) -> Neighbours | None:
        """Watch of what other programs use; None for a GPU, and for another machine."""
        if data.task.target.gpu is not None:
            return None
        self._ready(data)
        pid = self._pool.workers[0].pid
        return None if pid is None else Neighbours(pid)

    def _together(
        self, data: Data, candidates: Sequence[Built], timing: Timing, most: int = _TOGETHER
    ) -> Iterator[list[Built]]:
        """Candidates in groups of at most so many, whose own arrays, outputs and prepared
        constants, fit memory; a GPU has all arguments of each for itself."""
        gpu = data.task.target.gpu is not None
        group: list[Built] = []
        held = 0
        for built in candidates:
            needed = 0
            if built.failure is None:
                s = Signature.from_json(built.signature)
                own = (*s.prepared, *s.outputs, *(s.inputs if gpu else ()))
                needed = sum(p.nbytes for p in own) + gpu * (timing.cache == "cold") * _ERASER
            if group and (held + needed > _HELD or len(group) == most):
                yield group
                group, held = [], 0
            group.append(built)
            held += needed
        if group:
            yield group

    def _in_rounds(
        self,
        data: Data,
        candidates: Sequence[Built],
        timing: Timing,
        wanted: Callable[[Sampled, float], bool],
        stop: Stop | None = None,
    ) -> list[Sampled]:
        """Load candidates, and sample them in rounds, back and forth, as long as it is wanted.

        With `stop`, those that are not begun with before it says so are left out. Without it, all
        are sampled to the deadline, equally long: see `timing.common_length`.
        """
        taken = [Sampled(built.failure) for built in candidates]
        try:
            if any(one.goes_on(wanted) for one in taken):
                self._ready(data)  # before others have to wait
                with self._lease:
                    taken = self._rounds(data, candidates, timing, wanted, stop, taken)
        except TimeUpError:
            self._pool.dismiss()
            if stop is None:
                return taken
            known = [one.first is not None or one.failure is not None for one in taken]
            begun = known.index(False) if False in known else len(known)
            if not begun:
                raise
            return taken[:begun]
        except BaseException:  # Ctrl-C: what is loaded must not be taken for other candidates
            self._pool.dismiss()
            raise
        finally:
            self._loaded.clear()
        return taken

    def _rounds(
        self,
        data: Data,
        candidates: Sequence[Built],
        timing: Timing,
        wanted: Callable[[Sampled, float], bool],
        stop: Stop | None,
        taken: list[Sampled],
    ) -> list[Sampled]:
        """Sample those of `_in_rounds` that are begun with; `taken` is filled."""
        order = list(range(len(candidates)))
        while order := [n for n in order if taken[n].goes_on(wanted)]:
            length = 0.0 if stop else common_length((taken[n].least for n in order), timing)
            for number in order:
                one, built = taken[number], candidates[number]
                if stop and number and one.first is None and stop():
                    taken = taken[:number]
                    order = order[: order.index(number)]
                    break
                reply, fresh = self._sample(data, number, built, timing, one, length)
                failure = reply.failure
                if failure is not None and failure.kind in _SUSPECT and not fresh:
                    reply, _ = self._sample(data, number, built, timing, one, length)
                one.add(reply)
            order.reverse()
        if self._loaded and self._pool.workers:
            self._ask(data, Job(Message({"do": "clear"}), _DATA))
        return taken

    def renew(self) -> None:
        """Have what comes next run in a new process, where arrays and code lie elsewhere."""
        self._pool.dismiss()

    def close(self) -> None:
        """End the worker."""
        self._pool.close()

    def _sample(
        self, data: Data, number: int, built: Built, timing: Timing, one: Sampled, length: float
    ) -> tuple[Reply, bool]:
        """A sample of `length` seconds of a candidate, or its first call, and whether the worker
        had served no other one; it is loaded first where it is not, and checked if it never was.
        """
        while True:  # a worker that is worn may be replaced as soon as it has loaded this
            fresh = self._ready(data)
            if number in self._loaded:
                sample = Message({"do": "sample", "slot": number, "length": length})
                reply, _ = self._ask(data, Job(sample, data.timeout))
                one.spent += reply.seconds
                if reply.broke:
                    continue
                return reply, fresh
            if one.first is None:
                one.started = time.time()
            asked = {
                "do": "load",
                "slot": number,
                "signature": built.signature,
                "timing": timing.to_json(),
                "check": one.first is None,
                "error_growth": built.error_growth,
                "most": self._most,
            }
            reply, _ = self._ask(data, Job(Message(asked, (built.code,)), data.timeout))
            one.spent += reply.seconds
            if reply.broke:
                continue
            if reply.failure is not None:
                return reply, fresh
            self._loaded.add(number)
            if one.first is None:
                return reply, fresh

    def _answered(self, data: Data, job: Job) -> tuple[Reply, bool]:
        """As `_ask`, by as many links as it takes: the pool bounds how often these break."""
        while True:
            reply, fresh = self._ask(data, job)
            if not reply.broke:
                return reply, fresh

    def _ask(self, data: Data, job: Job) -> tuple[Reply, bool]:
        """The reply, and whether the worker had served no other candidate. It serves none after
        one that may have harmed it: a fault in a GPU's kernel leaves nothing of it usable."""
        fresh = self._ready(data)
        reply = self._pool.map([job])[0]
        if reply.failure is not None and reply.failure.kind in _SUSPECT and not reply.broke:
            self._lost += 1
            self._pool.dismiss()
        return reply, fresh

    def _ready(self, data: Data) -> bool:
        """Give the data to the worker unless it has them."""
        self._pool.start()
        worker = self._pool.workers[0]
        if self._holds is None or self._holds[0] is not worker or self._holds[1] is not data:
            self._holds = None  # Ctrl-C may come before all is there
            self._send(data)
            if self._pool.workers[0].answers <= 0:  # that was the last answer of the one before
                self._send(data)
            worker = self._pool.workers[0]
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
            "scaled": data.scaled,
            "tolerance": data.tolerance,
        }
        job = Job(Message(asked, data.expected), _DATA)
        unused = self._pool.workers[0].answers <= 0
        failure = self._pool.map([job])[0].failure
        if failure is not None and failure.kind in _SUSPECT and not unused:
            self._pool.dismiss()  # it may have ended long before it was asked
            failure = self._pool.map([job])[0].failure
        if failure is not None:
            raise DeviceError(
                f"the inputs of this workload cannot be made here ({failure}); "
                f"it needs {data.task.workload.min_bytes:,} bytes for inputs and outputs alone"
            )
