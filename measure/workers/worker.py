"""Worker processes, forked from one: `python -m loopwright.measure.workers.worker MODE MEMORY`.

MODE "build" turns configs into code and evaluates the oracle; "run" loads that code, times and
checks it, and never imports TVM; "steps" compiles the steps of networks with open axes. MEMORY is
a limit in bytes for each, 0 for none.

That process (`fork_server.py`) imports what the mode needs; its standard input is a
socket, over which it is asked for workers, and for how they ended. Messages to a worker
(`messages.py`) come over its standard input, each is answered over its standard
output; what it or a candidate prints goes to standard error. All end with their input.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import importlib
import os
import resource
import select
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

from loopwright.measure.device import Failure
from loopwright.measure.workers.fork_server import ALIVE
from loopwright.measure.workers.messages import CandidateError, Decoder, Message, Operation, encode

_MOST_WRITTEN = 1 << 30  # bytes of any file, so that a chatty candidate cannot fill the disk
_LEAST_MEMORY = 1 << 24  # bytes that a worker must be able to get
_CHUNK = 1 << 20
_FAULTS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
)
_MODES = {
    "build": "loopwright.measure.workers.worker_build",
    "run": "loopwright.measure.workers.worker_run",
    "steps": "loopwright.graph.open.step_worker",
}
LINGERS = 1.0  # seconds that a worker may take to end after it closed its output


class Channel:
    """The two pipes to the parent, taken away from everything else in the process."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._decoder = Decoder()
        threading.Thread(target=self._end_with_parent, name="watch", daemon=True).start()

    def _end_with_parent(self) -> None:
        """However the parent ends, its end of the pipe closes, even while a candidate hangs."""
        poll = select.poll()
        poll.register(self._in, 0)  # tells of hang-ups alone
        poll.poll()
        os._exit(0)

    def receive(self) -> Message:
        """The next message. Raises `EOFError` at the end."""
        while (message := self._decoder.next()) is None:
            data = os.read(self._in, _CHUNK)
            if not data:
                raise EOFError
            self._decoder.feed(data)
        return message

    def send(self, message: Message) -> None:
        """Write a message whole."""
        for piece in encode(message):
            while len(piece):
                piece = piece[os.write(self._out, piece) :]


def answer(operations: Mapping[str, Operation], message: Message) -> Message:
    """Carry out what a message asks for; what that raises becomes a `Failure` in the answer, or a
    "fault" of the machine, which says nothing of a candidate."""
    try:
        return operations[message.header["do"]](message)
    except Exception as error:  # noqa: BLE001 - a bad candidate may raise anything
        if _is_fault(error):
            return Message({"fault": str(error)})
        kind, reason = "run", f"{type(error).__name__}: {error}"
        if isinstance(error, CandidateError):
            kind, reason = error.kind, str(error)
        elif isinstance(error, MemoryError):
            kind, reason = "memory", f"out of memory: {error}"
        return Message({"failure": Failure(kind, reason, traceback.format_exc()).to_json()})


def _is_fault(error: BaseException | None) -> bool:
    """Return whether an error comes from the machine: a full disk, a folder that cannot be
    written, a limit of processes or files. A linker says so in words."""
    if error is None:
        return False
    full = isinstance(error, CandidateError) and os.strerror(errno.ENOSPC) in str(error)
    own = isinstance(error, OSError) and error.errno in _FAULTS
    return full or own or _is_fault(error.__cause__)


def main() -> None:
    """Fork workers until the parent ends."""
    mode, memory = sys.argv[1], int(sys.argv[2])
    operations = _operations(mode)
    if not stat.S_ISSOCK(os.fstat(0).st_mode):
        _limit(memory)  # somebody wants to see whether a worker can start
        return
    gc.freeze()  # what is here is shared by all workers, and none needs to look at it again
    with socket.socket(fileno=os.dup(0)) as control:
        while True:
            asked, files, _, _ = socket.recv_fds(control, 64, 3)
            if not asked:
                return
            if asked == b"fork":
                if os.fork() == 0:
                    control.close()
                    _become_worker(mode, memory, operations, files)
                for descriptor in files:
                    os.close(descriptor)
            else:
                control.send(_status(int(asked.removeprefix(b"status "))))


def _status(pid: int) -> bytes:
    """A worker's number and its end, or `ALIVE` after a second. Its children end with it."""
    end = time.monotonic() + LINGERS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)  # while the number is still its own
                _, status = os.waitpid(pid, 0)
                return b"%d %d" % (pid, os.waitstatus_to_exitcode(status))
            time.sleep(0.001)
    return b"%d %d" % (pid, ALIVE)


def _become_worker(
    mode: str, memory: int, operations: Mapping[str, Operation], files: Sequence[int]
) -> NoReturn:
    """Run as a forked process, until it ends."""
    try:
        os.setsid()  # all that it starts can be killed at once
        for standard, descriptor in enumerate(files):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        _serve(mode, memory, operations)
    except BaseException:  # noqa: BLE001 - nothing of the process that was forked may go on
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _serve(mode: str, memory: int, operations: Mapping[str, Operation]) -> None:
    channel = Channel()
    _limit(memory)
    faulthandler.enable()
    channel.send(Message({"ready": mode, "pid": os.getpid()}))
    while True:
        try:
            message = channel.receive()
        except EOFError:
            return
        channel.send(answer(operations, message))


def _limit(memory: int) -> None:
    """Set the limits of a worker. Raises `MemoryError` if it could do nothing within them."""
    if memory:
        _at_most(resource.RLIMIT_AS, memory)
    _at_most(resource.RLIMIT_FSIZE, _MOST_WRITTEN)
    _at_most(resource.RLIMIT_CORE, 0)  # no dumps of gigabytes for every crash
    bytearray(_LEAST_MEMORY)


def _at_most(limit: int, value: int) -> None:
    """Set a limit, to what it is already where that is less: nobody may raise it."""
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _operations(mode: str) -> Mapping[str, Operation]:
    if mode != "run":
        # TVM imports torch wherever that is installed: seconds of every start, for no build.
        sys.modules["torch"] = None  # type: ignore[assignment]
    found: Mapping[str, Operation] = importlib.import_module(_MODES[mode]).operations()
    return found


if __name__ == "__main__":
    main()
