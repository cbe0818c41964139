"""A link to another machine: what a `Runner` asks in place of a pool of workers here.

A stream that breaks is no failure of the candidate that was being run: the link connects again,
and the `Runner` asks again. Too many breaks among few answers are an error.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopwright.measure.device import DeviceError, Failure, TimeUpError
from loopwright.measure.remote.facts import Facts
from loopwright.measure.remote.frames import Kind, LinkError
from loopwright.measure.remote.processor import LostError, RemoteProcessor
from loopwright.measure.remote.route import Route
from loopwright.measure.remote.session import Session
from loopwright.measure.workers.bench import Bench
from loopwright.measure.workers.messages import CandidateError, Message
from loopwright.measure.workers.process import Job, Reply

_BREAKS = 4  # that end it, among so many answers:
_AMONG = 200  # about what ten candidates take
_PAUSE = 0.5  # seconds before a second try to connect; each later one takes twice as long
_ANSWERS = 20_000  # of the process that runs candidates, before it is replaced
_log = logging.getLogger(__name__)


@dataclass
class RemoteWorker:
    """The process there that runs candidates, as a `Runner` knows its worker."""

    answers: int = 0
    pid: int | None = None


class Link:
    """One worker on another machine, and the lease of that machine. `deadline` is as
    `Pool.deadline`; `breaks` counts how often the stream broke."""

    def __init__(self, route: Route) -> None:
        self.deadline = math.inf
        self.breaks = 0
        self.workers: list[RemoteWorker] = []
        self._route = route
        self._session: Session | None = None
        self._answers = 0
        self._recent: list[int] = []  # after how many answers the last breaks came
        self._idle_at = -1  # answers when the worker left last since nothing was asked
        self._held = False
        self._identity: tuple[object, ...] | None = None  # of the machine, once it was reached
        self._processor = RemoteProcessor(self)
        self._operations = Bench(self._processor).operations()

    @property
    def session(self) -> Session:
        """The session that is open; a new one only where there is none."""
        if self._session is None:
            self._session = self._connected()
        return self._session

    @property
    def facts(self) -> Facts:
        """Facts that the machine tells of itself."""
        return self.session.facts

    def start(self) -> None:
        """Make ready for running. Raises `DeviceError`."""
        while not self.workers:
            session = self.session
            try:
                if self._held:
                    session.lock(self.deadline)
            except LinkError as error:
                self._broke(error)
                continue
            self.workers.append(RemoteWorker())

    def map(self, jobs: Sequence[Job]) -> list[Reply]:
        """The replies to jobs, in their order: see `Pool.map`."""
        return [self._reply(job) for job in jobs]

    def _reply(self, job: Job) -> Reply:
        began = time.monotonic()
        if job.message.header["do"] == "data":
            message, failure, broke = *self._with_data(job), False
        else:
            message, failure, broke = self._with_candidate(job)
        for worker in self.workers:
            worker.answers += 1
            if worker.answers >= _ANSWERS:
                self.dismiss()
                break
        return Reply(message, failure, time.monotonic() - began, broke)

    def _with_data(self, job: Job) -> tuple[Message, Failure | None]:
        """The outcome of what no candidate has a part in: done again until it is done."""
        while True:
            self.start()
            try:
                return self._carried_out(job)
            except LinkError as error:
                self._broke(error)
            except LostError as lost:
                self.workers.clear()
                self._count(str(lost.failure))

    def _with_candidate(self, job: Job) -> tuple[Message, Failure | None, bool]:
        """The outcome of what a candidate has a part in, and whether the link broke under it."""
        try:
            outcome = self._carried_out(job)
        except LostError as lost:
            self.workers.clear()
            return Message({}), lost.failure, False
        except LinkError as error:
            self._broke(error)
            reason = f"the link to {self._route.name} broke: {error}"
            return Message({}), Failure("crash", reason), True
        self._answers += 1
        return *outcome, False

    def _carried_out(self, job: Job) -> tuple[Message, Failure | None]:
        if not self.workers or self._session is None:
            raise LinkError("it broke before")
        self._processor.start_job(job.timeout)
        try:
            return self._operations[job.message.header["do"]](job.message), None
        except CandidateError as error:
            return Message({}), Failure(error.kind, str(error))
        except MemoryError as error:
            return Message({}), Failure("memory", f"out of memory: {error}")

    def dismiss(self) -> None:
        """End the process there that runs candidates; another one can be had at once."""
        self.workers.clear()
        self._tell(lambda session: session.ask(Kind.RESTART))

    def close(self) -> None:
        """End the worker there."""
        self._drop()

    def __enter__(self) -> None:
        """Hold the machine's lease."""
        self._held = True
        try:
            while True:
                self.start()
                try:
                    self.session.lock(self.deadline)
                    return
                except LinkError as error:
                    self._broke(error)
        except BaseException:
            self._held = False
            if self._session is not None and self._session.busy:
                self._drop()  # it may be given the lease, and nobody would know
            raise

    def __exit__(self, *_error: object) -> None:
        self._held = False
        self._tell(lambda session: session.ask(Kind.UNLOCK))

    def _tell(self, what: Callable[[Session], object]) -> None:
        """Tell the session something, if there is one; one that is busy ends."""
        if self._session is None:
            return
        if self._session.busy:
            self._drop()
            return
        try:
            what(self._session)
        except LinkError as error:
            self._gone(error)

    def _connected(self) -> Session:
        """A new session; where there was one before, tried as often as that is allowed."""
        while True:
            try:
                session = Session(self._route)
            except DeviceError as error:
                if self._identity is None:
                    raise
                self._count(str(error))
            else:
                self._check(session)
                return session
            pause = _PAUSE * 2 ** len(self._recent)
            if time.monotonic() + pause >= self.deadline:
                raise TimeUpError(f"time was up before {self._route.name} was there again")
            time.sleep(pause)

    def _check(self, session: Session) -> None:
        """Refuse another machine: records would be kept as those of the first one."""
        known, self._identity = self._identity, self._identity or session.facts.identity
        if known not in (None, session.facts.identity):
            session.close()
            raise DeviceError(
                f"{self._route.name} is not the machine any more that it was, but "
                f"{session.facts.processor}: open the device again"
            )

    def _broke(self, error: LinkError) -> None:
        """Go on without the session. Raises `DeviceError` where that was too often."""
        again = error.idle and self._idle_at == self._answers
        if error.idle:
            self._idle_at = self._answers
        self._gone(error)
        if not error.idle or again:
            self._count(str(error))

    def _gone(self, error: LinkError) -> None:
        """Go on without a session that is not needed now: a lease ends with its worker."""
        self._drop()
        if not error.idle:
            self.breaks += 1
            _log.warning("the link to %s broke (%s): connecting again", self._route.name, error)

    def _count(self, why: str) -> None:
        self._recent = [n for n in self._recent if n > self._answers - _AMONG] + [self._answers]
        if len(self._recent) >= _BREAKS:
            raise DeviceError(
                f"the link to {self._route.name} broke {_BREAKS} times within {_AMONG} answers, "
                f"the last time: {why}; try: {self._route.trial}"
            )

    def _drop(self) -> None:
        self.workers.clear()
        if self._session is not None:
            self._session.close()
            self._session = None
