"""A worker process: `python -m loopwright.measure.worker MODE MEMORY`.

MODE "build" turns configs into code and evaluates the oracle; "run" loads that code, times and
checks it, and never imports TVM. MEMORY is a limit in bytes, 0 for none. Messages
(`loopwright.measure.frames`) come over standard input, each is answered over standard output;
what the worker or a candidate prints goes to standard error. The worker ends with its input.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import sys
import threading
import traceback
from collections.abc import Mapping

from loopwright.measure.device import Failure
from loopwright.measure.frames import CandidateError, Decoder, Frame, Operation, encode

_MOST_WRITTEN = 1 << 30  # bytes of any file, so that a chatty candidate cannot fill the disk
_CHUNK = 1 << 20


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

    def receive(self) -> Frame:
        """The next message. Raises `EOFError` at the end."""
        while (frame := self._decoder.next()) is None:
            data = os.read(self._in, _CHUNK)
            if not data:
                raise EOFError
            self._decoder.feed(data)
        return frame

    def send(self, frame: Frame) -> None:
        """Write a message whole."""
        for piece in encode(frame):
            while len(piece):
                piece = piece[os.write(self._out, piece) :]


def answer(operations: Mapping[str, Operation], frame: Frame) -> Frame:
    """Carry out what a message asks for; what that raises becomes a `Failure` in the answer."""
    try:
        return operations[frame.header["do"]](frame)
    except CandidateError as error:
        failure = Failure(error.kind, str(error), traceback.format_exc())
    except MemoryError as error:
        failure = Failure("memory", f"out of memory: {error}", traceback.format_exc())
    except Exception as error:  # noqa: BLE001 - a bad candidate may raise anything
        failure = Failure("run", f"{type(error).__name__}: {error}", traceback.format_exc())
    return Frame({"failure": failure.to_json()})


def main() -> None:
    """Serve the parent until it ends."""
    mode, memory = sys.argv[1], int(sys.argv[2])
    channel = Channel()
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no dumps of gigabytes for every crash
    faulthandler.enable()
    operations = _operations(mode)
    channel.send(Frame({"ready": mode}))
    while True:
        try:
            frame = channel.receive()
        except EOFError:
            return
        channel.send(answer(operations, frame))


def _operations(mode: str) -> Mapping[str, Operation]:
    if mode == "build":
        # TVM imports torch wherever that is installed: seconds of every start, for no build.
        sys.modules["torch"] = None  # type: ignore[assignment]
        from loopwright.measure import worker_build

        return worker_build.operations()
    from loopwright.measure import worker_run

    return worker_run.operations()


if __name__ == "__main__":
    main()
