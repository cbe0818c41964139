"""A worker process as its parent sees it: started, asked, timed out, killed."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from loopwright.measure.device import DeviceError, Failure
from loopwright.measure.workers.fork_server import ForkServer, Kind, is_stopped, last_words
from loopwright.measure.workers.messages import Decoder, Message, encode

_START = 120.0  # seconds in which a worker must be there; imports on a cold disk take long
LOOK = 2.0
"""Seconds between two looks at a process that does not answer. One that both find stopped is
ended, so that it is waited for no longer than twice that."""
_CHUNK = 1 << 20
_PRINTED = 1 << 20  # bytes that a worker may have printed before they are dropped
_NO_MEMORY = ("bad_alloc", "out of memory", "MemoryError")


@dataclass(frozen=True)
class Job:
    """A message to a worker, and how many seconds it has to answer."""

    message: Message
    timeout: float


@dataclass(frozen=True)
class Reply:
    """Reply to a job: an answer or a failure, and the seconds until then.

    `broke` where the way to the worker did, in which a candidate has no part; a `Workers` bounds
    how often.
    """

    message: Message
    failure: Failure | None
    seconds: float
    broke: bool = False


class WorkerLike(Protocol):
    """Process that runs; `answers` counts those that it gave, `pid` is known of one here."""

    answers: int
    pid: int | None


class Workers(Protocol):
    """Workers that a runner asks: a `Pool` of one here, or of one on another machine."""

    deadline: float

    @property
    def workers(self) -> Sequence[WorkerLike]: ...

    def start(self) -> None: ...

    def map(self, jobs: Sequence[Job]) -> list[Reply]: ...

    def dismiss(self) -> None: ...

    def close(self) -> None: ...


class Worker:
    """One worker process; it works on one job at a time. Its first "job" is to start."""

    def __init__(self, kind: Kind, fork_server: ForkServer) -> None:
        self.answers = -1
        self.pid: int | None = None
        self.fork_server, self._decoder = fork_server, Decoder()
        self._printed = tempfile.TemporaryFile(dir=kind.folder)  # noqa: SIM115 - see _end
        theirs_in, self._in = _pipe()
        self._out, theirs_out = _pipe()
        try:
            fork_server.fork((theirs_in, theirs_out, self._printed.fileno()))
        except DeviceError:
            for ours in (self._in, self._out):
                os.close(ours)
            raise
        finally:
            for theirs in (theirs_in, theirs_out):
                os.close(theirs)
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._known: list[int] = []  # its number, once it has told
        self._files = [self._in, self._out]
        self._end = weakref.finalize(
            self, _end, fork_server, self._known, self._files, self._printed, os.getpid()
        )
        self._begin(_START)

    def lost(self, failure: Failure) -> str:
        """The way it was lost before it began, if nothing is known against another try: its
        fork server was lost, or it was killed without a word; else empty."""
        if self.pid is not None or failure.kind == "timeout":
            return ""
        if how := self.fork_server.lost():
            return f"the process from which workers are forked {how}"
        return "" if failure.traceback.strip() else "a worker was lost before it began"

    def _begin(self, timeout: float) -> None:
        self._began, self._timeout = time.monotonic(), timeout
        self._look, self._stopped = self._began + LOOK, False
        if os.lseek(self._printed.fileno(), 0, os.SEEK_CUR) > _PRINTED:
            self._printed.truncate(0)
            os.lseek(self._printed.fileno(), 0, os.SEEK_SET)  # the worker's position, too
        self._mark = os.lseek(self._printed.fileno(), 0, os.SEEK_CUR)

    @property
    def alive(self) -> bool:
        """Return whether it can be asked again."""
        return self._end.alive

    @property
    def deadline(self) -> float:
        """End of its time for the present job, by `time.monotonic`."""
        return self._began + self._timeout

    def fileno(self) -> int:
        """File descriptor that becomes readable when it answers or ends."""
        return self._out

    def send(self, job: Job) -> None:
        """Give it a job. If it has ended meanwhile, `receive` will tell."""
        self._begin(job.timeout)
        with contextlib.suppress(BrokenPipeError), selectors.DefaultSelector() as selector:
            selector.register(self._in, selectors.EVENT_WRITE)
            for piece in encode(job.message):
                while len(piece) and selector.select(max(0.0, self.deadline - time.monotonic())):
                    piece = piece[os.write(self._in, piece[:_CHUNK]) :]

    def receive(self) -> Reply | None:
        """The reply, if it is there or the worker has ended or used up its time; else None."""
        try:
            message, ended = self._read()
        except DeviceError as error:
            return self._dead(Failure("crash", str(error), self._last_words()))
        if message is not None:
            return self._reply(message)
        if ended:
            status = None if self.pid is None else self.fork_server.status(self.pid)
            if status is not None:
                self._known.clear()  # its number may be another's
            return self._dead(failure_of(status, self._last_words()))
        if time.monotonic() >= self.deadline:
            reason = f"no answer within {self._timeout:g} s"
            return self._dead(Failure("timeout", reason, self._last_words()))
        if self._stays_stopped():
            reason = "it was stopped, as by SIGSTOP"
            return self._dead(Failure("crash", reason, self._last_words()))
        return None

    def _stays_stopped(self) -> bool:
        """Return whether two looks found it stopped, or what it waits for stopped or ended."""
        if time.monotonic() < self._look:
            return False
        now = is_stopped(self.pid) if self.pid else self.fork_server.hinders()
        before, self._stopped = self._stopped, now
        self._look = time.monotonic() + LOOK
        return before and self._stopped

    def _read(self) -> tuple[Message | None, bool]:
        """A message if one is complete, and whether there can be no more."""
        with contextlib.suppress(BlockingIOError):
            while (message := self._decoder.next()) is None:
                data = os.read(self._out, _CHUNK)
                if not data:
                    return None, True
                self._decoder.feed(data)
            return message, False
        return None, False

    def _reply(self, message: Message) -> Reply:
        self.answers += 1
        if self.pid is None:
            self.pid = int(message.header["pid"])
            self._known.append(self.pid)
            with contextlib.suppress(OSError):  # old systems have none
                self._files.append(os.pidfd_open(self.pid))
            self.fork_server.begun.add(self.pid)
        if (fault := message.header.get("fault")) is not None:
            raise DeviceError(f"this machine cannot go on: {fault}")
        told = message.header.get("failure")
        failure = None if told is None else Failure.from_json(told)
        return Reply(message, failure, time.monotonic() - self._began)

    def _dead(self, failure: Failure) -> Reply:
        self.kill()
        return Reply(Message({}), failure, time.monotonic() - self._began)

    def _last_words(self) -> str:
        """The end of what it printed since the job began."""
        fork_server = self.fork_server.last_words() if self.pid is None else ""
        return fork_server + last_words(self._printed, self._mark)

    def kill(self) -> None:
        """End it, with all processes that it started. Twice is fine."""
        self._end()


def _pipe() -> tuple[int, int]:
    try:
        return os.pipe()
    except OSError as error:
        raise DeviceError(f"no worker can be started: {error}") from error


def _end(
    fork_server: ForkServer, pid: list[int], files: Sequence[int], printed: IO[bytes], owner: int
) -> None:
    """Kill a worker and close the files, its pipes and its handle, if there is one."""
    if os.getpid() != owner:
        return  # a fork of the parent that ends
    # Without a fork server the number may be another's. A worker ends with its pipes, too, but for
    # one that is stopped.
    for number in pid if fork_server.alive else ():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(number, signal.SIGKILL)
        fork_server.status(number)
    for handle in files[2:] if pid and not fork_server.alive else ():
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    for file in files:
        os.close(file)
    printed.close()


def failure_of(status: int | None, words: str) -> Failure:
    """Failure of the candidate that a worker was at when it ended with a status, as
    `os.waitstatus_to_exitcode` says it."""
    if status is None:
        return Failure("crash", "the worker closed its pipe", words)
    if status >= 0:
        return Failure("crash", f"the worker ended with status {status}", words)
    try:
        name = signal.Signals(-status).name
    except ValueError:  # one for programs in real time
        name = f"signal {-status}"
    if -status == signal.SIGKILL:
        return Failure("memory", f"{name}: the system killed it, as for want of memory", words)
    short = any(word in words for word in _NO_MEMORY)
    return Failure("memory" if short else "crash", f"the worker was killed by {name}", words)
