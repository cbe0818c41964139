"""The two ends of a command: bytes go to its standard input, and come from its standard output."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import IO

from loopwright.measure.lease import readable
from loopwright.measure.remote.frames import LinkError
from loopwright.measure.workers.fork_server import last_words
from loopwright.measure.workers.messages import Bytes
from loopwright.temporary import temporary_file

STALL = 30.0
"""Seconds without a byte, in either direction, after which a stream is given up."""

_CHUNK = 1 << 18
_LINE = 4096
_ENDS = 0.5  # seconds in which a command whose output has ended is over


class Stream:
    """A command that runs, in a session of its own, so that Ctrl-C does not reach it."""

    def __init__(self, command: Sequence[str]) -> None:
        """Raises `LinkError` if it cannot be started."""
        self._said = temporary_file()  # see _end
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._said.close()
            raise LinkError(f"{command[0]} cannot be started: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        for file in (self._in, self._out):
            os.set_blocking(file.fileno(), False)
        self._rest = b""  # of what was read with a line
        self._end = weakref.finalize(self, _end, self._process, self._said, os.getpid())

    def write(self, pieces: Iterable[Bytes]) -> None:
        """Write all. Raises `LinkError` where nothing is taken for `STALL` seconds."""
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            while rest.nbytes:
                try:
                    rest = rest[os.write(self._in.fileno(), rest[:_CHUNK]) :]
                except BlockingIOError:
                    if not _wait(self._in, selectors.EVENT_WRITE, STALL):
                        raise LinkError(f"nothing was taken for {STALL:g} s") from None
                except OSError as error:
                    raise LinkError(self._ended()) from error

    def read(self, most: int, timeout: float) -> bytes:
        """Bytes that have come within `timeout` seconds, if any. Raises `LinkError` at the end."""
        if self._rest:
            data, self._rest = self._rest[:most], self._rest[most:]
            return data
        try:
            data = os.read(self._out.fileno(), min(most, _CHUNK))
        except BlockingIOError:
            if not _wait(self._out, selectors.EVENT_READ, timeout):
                return b""
            data = os.read(self._out.fileno(), min(most, _CHUNK))
        if not data:
            raise LinkError(self._ended())
        return data

    def read_line(self, mark: bytes, most: int, end: float) -> bytes:
        """The rest of the line that begins with a mark; what comes before it is skipped. Raises
        `LinkError` at the end, after `most` bytes, or at `end` by the monotonic clock."""
        skipped, data, self._rest = 0, self._rest, b""
        while True:
            while b"\n" in data:
                line, _, data = data.partition(b"\n")
                if line.startswith(mark):
                    self._rest = data
                    return line.removeprefix(mark).strip()
                skipped += len(line) + 1
            left = end - time.monotonic()
            if left <= 0:
                raise LinkError("it did not answer in time")
            if skipped + len(data) > most:
                raise LinkError(f"it said more than {most >> 10} KiB, and nothing that was asked")
            data += self.read(_LINE, left)

    def _ended(self) -> str:
        """The end of the command, with what it said last."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS)
        line, status = self.last_line(), self._process.returncode
        how = "its output ended" if status is None else f"it ended with status {status}"
        return f"{how}: {line}" if line else how

    def last_line(self) -> str:
        """Last line that it printed on standard error, as a terminal may show it."""
        words = "" if self._said.closed else last_words(self._said, 0)
        return readable("".join(words.strip().splitlines()[-1:]).encode())

    def close(self) -> None:
        """End the command. Twice is fine."""
        self._end()


def _wait(file: IO[bytes], event: int, timeout: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(file, event)
        return bool(selector.select(max(timeout, 0.0)))


def _end(process: subprocess.Popen[bytes], said: IO[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the tuner that ends
    for file in (process.stdin, process.stdout):
        if file is not None:
            file.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS)  # it ends by itself with its input
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said.close()
